"""Codex: packed rollouts, and sub-agents' rollouts that begin with their parent's events."""

import json
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from collector.runtimes import SourceError, codex_parents
from collector.runtimes.codex import NEEDLES, READER, Codex, _relevant
from collector.runtimes.codex_parents import rollouts
from tests.runtimes.transcripts import Read, read_home, total, write

PARENT, CHILD, OTHER = (f"01a22d56-0000-7000-8000-00000000000{n}" for n in (1, 2, 3))
NAMES = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")


def at(second: int) -> str:
    return f"2026-11-30T16:{second // 60:02d}:{second % 60:02d}.000Z"


def used(*calls: int) -> dict[str, int]:
    """The usage of some calls: number n has 1000 + n of input, n of output."""
    values = (sum(1000 + n for n in calls), 500 * len(calls), sum(calls), len(calls))
    return dict(zip(NAMES, values, strict=True))


def meta(thread: str, second: int, **more) -> dict:
    payload = {"id": thread, "timestamp": at(second), "model_provider": "openai", **more}
    return {"timestamp": at(second), "type": "session_meta", "payload": payload}


def turn(number: int, second: int) -> dict:
    payload = {"turn_id": f"01a22d56-7000-7000-8000-{number:012d}", "model": "gpt-5"}
    return {"timestamp": at(second), "type": "turn_context", "payload": payload}


def counted(second: int, *calls: int) -> dict:
    """A ``token_count`` after the last of these calls."""
    info = {"total_token_usage": used(*calls), "last_token_usage": used(calls[-1])}
    return {"timestamp": at(second), "type": "event_msg", "payload": {"type": "token_count", "info": info}}


def recorded(thread: str, number: int, second: int, *calls: int) -> dict:
    """A ``token_usage_record`` of the last of these calls, as versions since 0.165 write it before the count."""
    payload = {
        "thread_id": thread,
        "turn_id": f"01a22d56-7000-7000-8000-{number:012d}",
        "response_id": f"resp_{calls[-1]}",
    }
    payload |= {"usage": used(calls[-1]), "thread_token_usage": used(*calls)}
    return {"timestamp": at(second), "type": "token_usage_record", "payload": payload}


def rollout(home: Path, thread: str, *entries: dict, folder: str = "sessions/2026/11/30") -> Path:
    return write(home / ".codex" / folder / f"rollout-2026-11-30T16-00-00-{thread}.jsonl", *entries)


def packed(path: Path) -> Path:
    archive = path.with_name(path.name + ".zst")
    archive.write_bytes(zstandard.compress(path.read_bytes()))
    path.unlink()
    return archive


def parent(calls: int = 3) -> list[dict]:
    """A session of one turn, recorded call by call."""
    entries = [meta(PARENT, 0), turn(1, 1)]
    for number in range(1, calls + 1):
        so_far = range(1, number + 1)
        entries += [recorded(PARENT, 1, 10 * number, *so_far), counted(10 * number, *so_far)]
    return entries


def replayed(entries: list[dict], second: int | None) -> list[dict]:
    """What a spawned agent's rollout keeps of its parent's: no records, no turns; with new times, or the old ones."""
    kept = [entry for entry in entries if entry["type"] not in ("token_usage_record", "turn_context")]
    return [entry if second is None else entry | {"timestamp": at(second)} for entry in kept]


def spawned(**more) -> dict:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
    return meta(CHILD, 100, source=source, thread_source="subagent", **more)


def both_ways(home: Path) -> dict[str, list[int]]:
    """The output of the calls that each session keeps, whichever is read first."""
    found = []
    for backwards in (False, True):
        read = read_home(Codex(), home, backwards=backwards)
        sessions = {record.session_id for record in read.records.values()}
        found.append({one: sorted(r.tokens.output_tokens for r in read.of(one)) for one in sessions})
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("second", [None, 100])
def test_a_sub_agents_rollout_that_begins_with_its_parents_events_counts_its_own_calls(tmp_path, second):
    own = [turn(2, 101), recorded(CHILD, 2, 110, 7), counted(110, 7), recorded(CHILD, 2, 120, 7, 8), counted(120, 7, 8)]
    rollout(tmp_path, PARENT, *parent())
    rollout(tmp_path, CHILD, spawned(), *replayed(parent(), second), *own)
    assert both_ways(tmp_path) == {PARENT: [1, 2, 3], CHILD: [7, 8]}
    assert read_home(Codex(), tmp_path).sessions[CHILD].parent_session_id == PARENT


def test_older_sub_agents_without_records_count_their_own_calls_too(tmp_path):
    old = [entry for entry in parent() if entry["type"] != "token_usage_record"]
    rollout(tmp_path, PARENT, *old)
    rollout(
        tmp_path, CHILD, spawned(forked_from_id=PARENT), *replayed(old, 100), turn(2, 101), counted(110, 1, 2, 3, 7)
    )
    assert both_ways(tmp_path) == {PARENT: [1, 2, 3], CHILD: [7]}


def test_a_fork_that_states_its_parents_total_once_more_counts_from_there(tmp_path):
    rollout(tmp_path, PARENT, *parent())
    rollout(
        tmp_path,
        CHILD,
        meta(CHILD, 100, forked_from_id=PARENT),
        counted(100, 1, 2, 3),
        turn(2, 101),
        counted(110, 1, 2, 3, 7),
    )
    assert both_ways(tmp_path) == {PARENT: [1, 2, 3], CHILD: [7]}


def test_a_fork_that_states_the_total_of_a_parent_that_is_gone_counts_from_there_too(tmp_path):
    fork = (meta(CHILD, 100, forked_from_id=PARENT), counted(100, 1, 2, 3), turn(2, 101), counted(110, 1, 2, 3, 7))
    rollout(tmp_path, CHILD, *fork)
    assert both_ways(tmp_path) == {CHILD: [7]}


def test_what_a_sub_agents_rollout_copied_of_a_parent_that_is_gone_stays_the_parents(tmp_path):
    copies = [entry | {"ordinal": n} for n, entry in enumerate(replayed(parent(), None), 1)]
    own = [turn(2, 101) | {"ordinal": 5}, counted(110, 7) | {"ordinal": 6}]
    for thread in (CHILD, OTHER):
        first = spawned(subagent_history_start_ordinal=5)
        first["payload"]["id"] = thread
        rollout(tmp_path, thread, first, *copies, *(own if thread == CHILD else []))
    assert both_ways(tmp_path) == {PARENT: [1, 2, 3], CHILD: [7]}


def test_a_parent_that_went_on_or_was_archived_is_looked_into_again(tmp_path):
    reader, read = Codex(), Read()
    path = rollout(tmp_path, PARENT, *parent(2))
    rollout(tmp_path, CHILD, spawned(), *replayed(parent(2), 50), turn(2, 101), counted(110, 7))
    for source in reader.sources(tmp_path, {}):
        read.take(reader, source)
    moved = rollout(tmp_path, PARENT, *parent(3), folder="archived_sessions")
    path.unlink()
    rollout(tmp_path, OTHER, spawned() | {"payload": spawned()["payload"] | {"id": OTHER}}, *replayed(parent(3), 100))
    for source in reader.sources(tmp_path, {}):
        read.take(reader, source)
    assert moved.exists()
    assert total(read.records.values(), "output_tokens") == 1 + 2 + 3 + 7


def test_a_folder_is_looked_through_once_however_many_parents_are_gone(tmp_path, monkeypatch):
    for number in range(5):
        thread, gone = (f"01a22d56-{group}-7000-8000-{number:012d}" for group in ("1111", "2222"))
        rollout(tmp_path, thread, meta(thread, 1, forked_from_id=gone), turn(1, 2), counted(3, 10 + number))
    looks = []
    monkeypatch.setattr(codex_parents, "rollouts", lambda root: looks.append(root) or rollouts(root))
    reader, read = Codex(), Read()
    for source in reader.sources(tmp_path, {}):
        read.take(reader, source)
    assert (len(read.records), len(looks)) == (5, 1)


def test_a_packed_rollout_is_read_as_it_was_and_packing_changes_nothing(tmp_path):
    path = rollout(tmp_path, PARENT, *parent())
    want = read_home(READER, tmp_path).facts()
    archive = packed(path)
    assert read_home(READER, tmp_path).facts() == want
    path.write_bytes(zstandard.decompress(archive.read_bytes()))
    assert [source.path for source in READER.sources(tmp_path, {})] == [path]
    read = read_home(READER, tmp_path)
    path.unlink()
    for source in READER.sources(tmp_path, {}):
        read.take(READER, source)
    assert (read.facts(), set(read.sessions)) == (want, {PARENT})


def test_a_packed_parent_tells_its_totals(tmp_path):
    packed(rollout(tmp_path, PARENT, *parent()))
    rollout(tmp_path, CHILD, spawned(), *replayed(parent(), 100), turn(2, 101), counted(110, 7))
    assert both_ways(tmp_path) == {PARENT: [1, 2, 3], CHILD: [7]}


@given(
    st.lists(st.sampled_from([b"", b"x", b"y" * 9, *NEEDLES, NEEDLES[0] + b" " + NEEDLES[2]]), min_size=1, max_size=9)
)
def test_the_lines_that_may_count_are_told_without_looking_at_the_others(every):
    wanted = [
        line
        for number, line in enumerate(every)
        if number in (0, len(every) - 1) or any(needle in line for needle in NEEDLES)
    ]
    assert list(_relevant(b"".join(line + b"\n" for line in every))) == wanted


def test_an_archive_of_empty_lines_is_no_burden(tmp_path):
    path = rollout(tmp_path, PARENT, *parent())
    path.write_bytes(path.read_bytes() + b"\n" * (16 << 20))
    packed(path)
    tracemalloc.start()
    try:
        assert len(read_home(READER, tmp_path).records) == 3
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_a_damaged_archive_is_an_error_of_that_rollout_alone(tmp_path):
    archive = packed(rollout(tmp_path, PARENT, *parent()))
    archive.write_bytes(b"\x28\xb5\x2f\xfd" + json.dumps({}).encode() * 9)
    (source,) = READER.sources(tmp_path, {})
    with pytest.raises(SourceError, match="damaged archive"):
        list(READER.read(source, None))


@pytest.mark.parametrize("frames", [1, 3])
def test_an_archive_that_is_cut_off_is_an_error_and_one_of_several_frames_is_not(tmp_path, frames):
    path = rollout(tmp_path, PARENT, *parent())
    text = path.read_bytes()
    archive = packed(path)
    size = len(text) // frames + 1
    whole = b"".join(zstandard.compress(text[at : at + size]) for at in range(0, len(text), size))
    archive.write_bytes(whole)
    assert len(read_home(READER, tmp_path).records) == 3
    (source,) = READER.sources(tmp_path, {})
    for cut in (1, 5, len(whole) // 2, len(whole)):
        archive.write_bytes(whole[:-cut])
        with pytest.raises(SourceError, match="cut off"):
            list(READER.read(source, None))


def full(second: int) -> dict:
    """The count after a call that did not fit into the context window."""
    nothing = dict.fromkeys(NAMES, 0)
    info = {"total_token_usage": nothing | {"total_tokens": 272_000}, "last_token_usage": nothing}
    return {"timestamp": at(second), "type": "event_msg", "payload": {"type": "token_count", "info": info}}


def test_a_call_that_did_not_fit_into_the_context_window_is_none(tmp_path):
    rollout(tmp_path, PARENT, meta(PARENT, 0), turn(1, 1), counted(2, 1), full(4), counted(5, 2), counted(6, 2, 3))
    read = read_home(READER, tmp_path)
    assert sorted(record.tokens.output_tokens for record in read.of(PARENT)) == [1, 2, 3]
    assert read.skipped == {"no_usage": 1}


def test_a_count_that_follows_a_record_is_no_call_though_its_total_is_another(tmp_path):
    before_the_update = [meta(PARENT, 0), turn(1, 1), counted(2, 1)]
    since = [recorded(PARENT, 1, 4, 2), counted(4, 1, 2), full(5), recorded(PARENT, 1, 6, 2, 3), counted(6, 3)]
    rollout(tmp_path, PARENT, *before_the_update, *since)
    assert sorted(record.tokens.output_tokens for record in read_home(READER, tmp_path).of(PARENT)) == [1, 2, 3]


def test_a_session_that_was_resumed_before_totals_went_on_begins_to_count_anew(tmp_path):
    second = counted(9, 5, 6)
    rollout(tmp_path, PARENT, meta(PARENT, 0), turn(1, 1), counted(2, 1), turn(2, 5), counted(6, 5), second, second)
    assert sorted(record.tokens.output_tokens for record in read_home(READER, tmp_path).of(PARENT)) == [1, 5, 6]
