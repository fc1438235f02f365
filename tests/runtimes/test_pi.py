"""Pi: a file that a newer version migrates and branched sessions, of calls with and without a response's id."""

from pathlib import Path

import pytest

from collector.runtimes.pi import Pi
from tests.runtimes.transcripts import Read, read_home, total, write

START = 1_786_521_600_000
FIRST, SECOND, THIRD = (f"0198a001-0000-7000-8000-00000000000{letter}" for letter in "abc")


def header(name: str, second: int, parent: Path | None = None) -> dict:
    made = {"type": "session", "version": 3, "id": name, "timestamp": f"2026-08-12T08:00:{second:02d}.000Z"}
    return made if parent is None else {**made, "parentSession": str(parent)}


def answer(second: int, fresh: int, **more: object) -> dict:
    usage = {"input": fresh, "output": 5, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0.25}}
    message = {"role": "assistant", "provider": "acme", "model": "m-1", "usage": usage, "stopReason": "stop"}
    message |= {"timestamp": START + 1000 * second, **more}
    return {"type": "message", "timestamp": f"2026-08-12T08:00:{second:02d}.900Z", "message": message}


def file(home: Path, name: str) -> Path:
    return home / f".pi/agent/sessions/--work--/2026-08-12T08-00-00-000Z_{name}.jsonl"


def test_a_file_of_the_first_version_counts_once_when_its_entries_are_given_ids(tmp_path):
    old = [answer(1, 100), answer(2, 200), answer(3, 200)]
    path = write(file(tmp_path, FIRST), {**header(FIRST, 0), "version": 1}, *old)
    read = Read()
    (source,) = Pi().sources(tmp_path, {})
    read.take(Pi(), source)
    named = [{**entry, "id": f"{number:08x}", "parentId": None} for number, entry in enumerate(old, 0xABC)]
    write(path, header(FIRST, 0), *named, {**answer(9, 7), "id": "0000ffff"})
    read.take(Pi(), source)
    assert total(read.of(FIRST), "input_tokens") == 500 + 7
    assert read.records.keys() == read_home(Pi(), tmp_path).records.keys()


@pytest.mark.parametrize("backwards", [False, True])
def test_a_branch_of_a_branch_pays_for_what_each_added(tmp_path, backwards):
    calls = [answer(1, 100, responseId="msg_0123456789abcdef"), answer(2, 200)]
    first = write(file(tmp_path, FIRST), header(FIRST, 0), *calls, answer(3, 1))
    second = write(file(tmp_path, SECOND), header(SECOND, 10, first), *calls, answer(11, 20))
    write(file(tmp_path, THIRD), header(THIRD, 30, second), *calls, answer(11, 20), answer(31, 3))
    read = read_home(Pi(), tmp_path, backwards=backwards)
    assert [total(read.of(name), "input_tokens") for name in (FIRST, SECOND, THIRD)] == [301, 20, 3]
    assert (read.sessions[SECOND].parent_session_id, read.sessions[THIRD].parent_session_id) == (FIRST, SECOND)
