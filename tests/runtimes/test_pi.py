"""Pi: a file that a newer version migrates and branched sessions, of calls with and without a response's id."""

import json
from pathlib import Path

import pytest

from collector.runtimes.pi import Pi
from collector.stores import stores
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


def settings(home: Path, folder: object) -> None:
    path = home / ".pi/agent/settings.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"sessionDir": folder}))


def test_the_settings_may_name_another_folder_for_sessions_beside_which_the_old_ones_stay(tmp_path):
    write(file(tmp_path, FIRST), header(FIRST, 0), answer(1, 100))
    write(tmp_path / "kept/here" / f"t_{SECOND}.jsonl", header(SECOND, 9), answer(10, 20))
    for folder in ("~/kept/here", str(tmp_path / "kept/here")):
        settings(tmp_path, folder)
        read = read_home(Pi(), tmp_path)
        assert [total(read.of(name), "input_tokens") for name in (FIRST, SECOND)] == [100, 20]
        assert "kept/here" in {store.folder for store in stores(tmp_path, ["pi"])}
    moved = read_home(Pi(), tmp_path, {"PI_CODING_AGENT_SESSION_DIR": "~/kept"})
    assert set(moved.sessions) == {SECOND}


@pytest.mark.parametrize("folder", [".pi/sessions", "/", "/etc", "~/..", "~/.pi/agent/sessions", "", 7, None])
def test_settings_that_name_no_other_folder_of_the_home_name_none(tmp_path, folder):
    write(file(tmp_path, FIRST), header(FIRST, 0), answer(1, 100))
    write(tmp_path / f".pi/sessions/t_{SECOND}.jsonl", header(SECOND, 9), answer(10, 20))
    settings(tmp_path, folder)
    assert [source.path for source in Pi().sources(tmp_path, {})] == [file(tmp_path, FIRST)]


def test_sessions_that_one_version_left_in_the_agents_folder_count_once_when_the_next_moves_them(tmp_path):
    """0.30.0, https://github.com/badlogic/pi-mono/issues/320"""
    left = write(tmp_path / f".pi/agent/t_{FIRST}.jsonl", header(FIRST, 0), answer(1, 100))
    read = read_home(Pi(), tmp_path)
    assert total(read.of(FIRST), "input_tokens") == 100
    file(tmp_path, FIRST).parent.mkdir(parents=True)
    left.rename(file(tmp_path, FIRST))
    for source in Pi().sources(tmp_path, {}):
        read.take(Pi(), source)
    assert total(read.of(FIRST), "input_tokens") == 100


@pytest.mark.parametrize("backwards", [False, True])
def test_a_branchs_summary_counts_once_though_another_model_came_before_it_in_the_branch(tmp_path, backwards):
    """A branched session has the entries of its branch alone; the original has what was said on the other one too."""
    usage = {"input": 7, "output": 5, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0.25}}
    summary = {"type": "branch_summary", "timestamp": "2026-08-12T08:00:05.000Z", "usage": usage}
    root, left = answer(1, 100), answer(3, 200, model="m-2")
    first = write(file(tmp_path, FIRST), header(FIRST, 0), root, left, summary)
    write(file(tmp_path, SECOND), header(SECOND, 10, first), root, summary, answer(11, 20))
    read = read_home(Pi(), tmp_path, backwards=backwards)
    assert [total(read.of(name), "input_tokens") for name in (FIRST, SECOND)] == [307, 20]
    assert sorted(record.model for record in read.of(FIRST)) == ["m-1", "m-2", "m-2"]


def test_sessions_of_subagents_lie_in_folders_beside_the_session_that_ran_them(tmp_path):
    """pi-subagents: <session>/<run>/run-0/session.jsonl, and the same again below that for theirs."""
    parent = write(file(tmp_path, FIRST), header(FIRST, 0), answer(1, 100))
    child = parent.with_suffix("") / "0c40cb23/run-0/session.jsonl"
    write(child, header(SECOND, 2), answer(3, 20))
    write(child.with_suffix("") / "1d51dc34/run-1/session.jsonl", header(THIRD, 4), answer(5, 3))
    read = read_home(Pi(), tmp_path)
    assert [total(read.of(name), "input_tokens") for name in (FIRST, SECOND, THIRD)] == [100, 20, 3]
