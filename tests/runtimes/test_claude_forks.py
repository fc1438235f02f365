"""Claude Code's silent forks: whose a shared call is, where transcripts were cut, in whatever order they are read."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import ingest_store
from collector.ingest import Ingest
from collector.ledger.sqlite import SqliteLedger
from collector.query import Query
from collector.rows import Page
from collector.runtimes import claude_copies
from collector.runtimes.claude_code import ClaudeCode
from collector.runtimes.kin import Search
from collector.runtimes.lineage import Lineage
from collector.runtimes.values import iso
from collector.settings import Settings
from tests.collector.worlds import ALLOWLIST, PRICER, ZONE
from tests.runtimes.claude_worlds import Transcript, World, stamp, worlds
from tests.runtimes.transcripts import Read, read_home, write

FIRST, SECOND, THIRD = (f"{letter}0000000-0000-4000-8000-000000000000" for letter in "cab")


def put(home: Path, name: str, lines: list[dict]) -> Path:
    return write(home / ".claude/projects/-work" / f"{name}.jsonl", *lines)


def written(home: Path, world: World) -> Path:
    for name, one in world.transcripts.items():
        put(home, name, one.lines)
    return home


def owners(read: Read) -> dict[str, str]:
    return {key: record.session_id for key, record in read.records.items()}


def starts(read: Read) -> dict[str, float]:
    return {name: session.started_ts for name, session in read.sessions.items()}


def take(read: Read, reader: ClaudeCode, home: Path, names: list[str]) -> None:
    """Read the transcripts that there are, in this order."""
    sources = {source.path.stem: source for source in reader.sources(home, {})}
    for name in names:
        if name in sources:
            read.take(reader, sources[name])


@given(worlds(), st.data())
@settings(max_examples=100, deadline=None)
def test_every_call_counts_once_for_the_session_that_wrote_it_first_in_any_order(tmp_path_factory, world, data):
    home = written(tmp_path_factory.mktemp("home"), world)
    read = Read()
    take(read, ClaudeCode(), home, data.draw(st.permutations(sorted(world.transcripts))))
    assert set(read.records) == {call for one in world.transcripts.values() for call in one.calls()}
    assert {call: owner for call, owner in owners(read).items() if world.told(call)} == {
        call: world.wrote[call] for call in read.records if world.told(call)
    }
    assert starts(read) == starts(read) | world.known_forks()
    in_workers = Read()
    for name in sorted(world.transcripts):
        take(in_workers, ClaudeCode(), home, [name])
    assert (owners(in_workers), starts(in_workers)) == (owners(read), starts(read))


@given(worlds(), st.data())
@settings(max_examples=100, deadline=None)
def test_passes_between_writing_and_cutting_end_like_one_pass(tmp_path_factory, world, data):
    home, read, reader = tmp_path_factory.mktemp("home"), Read(), ClaudeCode()
    seen: set[str] = set()
    for name, lines in world.steps:
        put(home, name, lines)
        if data.draw(st.booleans()):
            take(read, reader, home, data.draw(st.permutations(sorted(world.transcripts))))
            seen |= set(read.records)
        if data.draw(st.booleans()):
            reader = ClaudeCode()
    take(read, reader, home, sorted(world.transcripts))
    assert set(read.records) == seen | {call for one in world.transcripts.values() for call in one.calls()}
    assert {call: owner for call, owner in owners(read).items() if world.told(call)} == {
        call: world.wrote[call] for call in read.records if world.told(call)
    }
    fresh = read_home(ClaudeCode(), home)
    assert starts(read) == starts(read) | world.known_forks()
    assert all(owners(read)[call] == owner for call, owner in owners(fresh).items() if world.told(call))


def session(name: str, *minutes: int) -> Transcript:
    one = Transcript(name)
    for minute in minutes:
        one.turn(minute)
    return one


def home_of(tmp_path: Path, *transcripts: Transcript) -> Path:
    for one in transcripts:
        put(tmp_path, one.name, one.lines)
    return tmp_path


def at(minute: int) -> float | None:
    return iso(stamp(minute))


def by_session(read: Read) -> dict[str, list[int]]:
    """The minutes of the calls that each session keeps."""
    found: dict[str, list[int]] = {}
    for key, owner in sorted(owners(read).items()):
        found.setdefault(owner, []).append(int(key[4:]))
    return found


def both_ways(home: Path) -> Read:
    read = read_home(ClaudeCode(), home)
    backwards = read_home(ClaudeCode(), home, backwards=True)
    assert (owners(read), starts(read)) == (owners(backwards), starts(backwards))
    return read


def test_calls_that_an_original_lost_at_its_beginning_are_given_back_to_it_by_a_fork(tmp_path):
    one = session(FIRST, 0, 10, 20)
    fork = one.fork(SECOND, 3)
    fork.turn(30)
    del one.lines[:5]
    read = both_ways(home_of(tmp_path, one, fork))
    assert by_session(read) == {FIRST: [0, 10, 20], SECOND: [30]}
    assert starts(read)[SECOND] == at(30)
    assert read.sessions[SECOND].parent_session_id == FIRST


def test_calls_that_an_original_lost_at_its_end_count_once_for_the_fork_that_still_has_them(tmp_path):
    one = session(FIRST, 0, 10, 20)
    fork = one.fork(SECOND, 3)
    fork.turn(30)
    del one.lines[-3:]
    read = both_ways(home_of(tmp_path, one, fork))
    assert by_session(read) == {FIRST: [0, 10], SECOND: [20, 30]}
    assert starts(read)[SECOND] == at(20)


def test_calls_that_two_forks_still_have_of_a_lost_end_count_for_the_one_that_went_on_first(tmp_path):
    one = session(FIRST, 0, 10, 20, 25)
    early, late = one.fork(SECOND, 4), one.fork(THIRD, 4)
    early.turn(30)
    late.turn(40)
    del one.lines[-6:]
    read = both_ways(home_of(tmp_path, one, early, late))
    assert by_session(read) == {FIRST: [0, 10], SECOND: [20, 25, 30], THIRD: [40]}


def test_an_original_that_went_on_after_its_fork_is_told_by_the_snapshots_that_a_fork_does_not_copy(tmp_path):
    one = session(FIRST, 0, 10)
    fork = one.fork(SECOND, 2)
    fork.turn(30)
    one.turn(40)
    assert by_session(both_ways(home_of(tmp_path, one, fork))) == {FIRST: [0, 10, 40], SECOND: [30]}


@pytest.mark.parametrize("names", [[FIRST, SECOND], [SECOND, FIRST]])
def test_a_fork_that_is_seen_while_it_is_copied_begins_with_its_own_first_line_later(tmp_path, names):
    one = session(FIRST, 0, 10)
    fork = one.fork(SECOND, 2)
    read, reader = Read(), ClaudeCode()
    put(tmp_path, FIRST, one.lines)
    put(tmp_path, SECOND, fork.lines[:3])
    take(read, reader, tmp_path, names)
    fork.turn(30)
    put(tmp_path, SECOND, fork.lines)
    take(read, reader, tmp_path, names)
    assert by_session(read) == {FIRST: [0, 10], SECOND: [30]}
    assert (read.sessions[SECOND].started_ts, read.sessions[SECOND].parent_session_id) == (at(30), FIRST)


def test_a_fork_that_begins_at_a_compaction_is_found_in_the_middle_of_its_original(tmp_path):
    one = session(FIRST, 0, 10)
    one.add(20, {"type": "system", "subtype": "compact_boundary", "uuid": "boundary"})
    one.lines[-1] |= {"parentUuid": None, "logicalParentUuid": "answer-10"}
    one.turn(21)
    fork = one.fork(SECOND, 4)
    del fork.lines[:4]
    fork.turn(30)
    read = both_ways(home_of(tmp_path, one, fork))
    assert by_session(read) == {FIRST: [0, 10, 21], SECOND: [30]}
    assert starts(read)[SECOND] == at(30)


def test_a_session_that_goes_on_from_another_files_last_message_keeps_what_is_its_own(tmp_path):
    one, other = session(FIRST, 0, 10), session(SECOND, 20, 30)
    other.lines[1]["parentUuid"] = "answer-10"
    one.turn(40)
    read = both_ways(home_of(tmp_path, one, other))
    assert by_session(read) == {FIRST: [0, 10, 40], SECOND: [20, 30]}
    assert starts(read) == {FIRST: at(0), SECOND: at(20)}


def test_a_side_chain_at_the_cut_does_not_hide_what_a_fork_copied(tmp_path):
    one = session(FIRST, 0, 10)
    one.lines[2:2] = [
        {**one.lines[1], "uuid": f"side-{n}", "parentUuid": "user-0", "isSidechain": True} for n in range(30)
    ]
    one.turn(20)
    fork = Transcript(SECOND)
    for line in one.lines:
        if "uuid" in line and "isSidechain" not in line:
            fork.add(0, {**line, "timestamp": line["timestamp"]})
            fork.lines[-1]["timestamp"] = line["timestamp"]
    fork.turn(30)
    del one.lines[:2]
    assert by_session(both_ways(home_of(tmp_path, one, fork))) == {FIRST: [0, 10, 20], SECOND: [30]}


def branch(source: Transcript, name: str, turns: int) -> Transcript:
    """As ``/branch`` writes it: every copied line names the session that was forked."""
    copy = source.fork(name, turns)
    for line in copy.lines:
        line["forkedFrom"] = {"sessionId": source.name, "messageUuid": line["uuid"]}
    return copy


def test_copies_that_a_branch_holds_twice_do_not_make_it_older(tmp_path):
    one = session(FIRST, 0, 10, 20)
    fork = branch(one, SECOND, 3)
    again = [{key: value for key, value in line.items() if key != "forkedFrom"} for line in fork.lines[:4]]
    fork.lines += [{**line, "parentUuid": None} for line in again]
    fork.turn(30)
    read = both_ways(home_of(tmp_path, fork))
    assert by_session(read) == {FIRST: [0, 10, 20], SECOND: [30]}
    assert starts(read) == {SECOND: at(30)}


def test_a_branch_of_a_branch_gives_the_first_sessions_calls_back_to_the_first(tmp_path):
    one = session(FIRST, 0, 10)
    middle = branch(one, SECOND, 2)
    middle.turn(20)
    last = branch(middle, THIRD, 3)
    last.turn(30)
    want = {FIRST: [0, 10], SECOND: [20], THIRD: [30]}
    assert by_session(both_ways(home_of(tmp_path / "all", one, middle, last))) == want
    assert by_session(both_ways(home_of(tmp_path / "gone", middle, last))) == want


def test_a_silent_fork_of_a_branch_starts_with_its_own_line(tmp_path):
    middle = branch(session(FIRST, 0, 10), SECOND, 2)
    middle.turn(20)
    last = middle.fork(THIRD, 3)
    last.turn(30)
    read = both_ways(home_of(tmp_path, middle, last))
    assert by_session(read) == {FIRST: [0, 10], SECOND: [20], THIRD: [30]}
    assert (starts(read)[THIRD], read.sessions[THIRD].parent_session_id) == (at(30), SECOND)


def test_a_fork_that_begins_with_a_line_of_its_own_day_gives_back_what_its_cut_original_lost(tmp_path):
    one = session(FIRST, 0, 10, 20)
    fork = one.fork(SECOND, 3)
    fork.lines.insert(0, {"type": "queue-operation", "sessionId": SECOND, "timestamp": stamp(30)})
    fork.turn(31)
    del one.lines[:5]
    read = both_ways(home_of(tmp_path, one, fork))
    assert by_session(read) == {FIRST: [0, 10, 20], SECOND: [31]}
    assert (starts(read)[SECOND], read.sessions[SECOND].parent_session_id) == (at(30), FIRST)


class Counted:
    """A reader whose searches are counted, by the names of the files that are searched."""

    def __init__(self) -> None:
        self.searched: list[str] = []
        self.reader = ClaudeCode()
        files = self.reader.lineage._list_files
        search = Search(self.noted(claude_copies.holds), claude_copies.ended)
        self.reader.lineage = Lineage(claude_copies.head, claude_copies.marks, files, search)

    def noted(self, holds: Callable) -> Callable:
        def search(path, wanted):
            self.searched.append(path.stem)
            return holds(path, wanted)

        return search


def test_transcripts_are_searched_once_for_all_cut_ones_and_a_new_one_costs_one_search(tmp_path):
    sessions = [session(f"{number:08x}-0000-4000-8000-000000000000", 3 * number) for number in range(6)]
    counted, read = Counted(), Read()
    names = [one.name for one in sessions]
    take(read, counted.reader, home_of(tmp_path, *sessions), names)
    assert counted.searched == []
    for one in sessions[:2]:
        one.lines[1]["parentUuid"] = "lost"
    counted, read = Counted(), Read()
    take(read, counted.reader, home_of(tmp_path, *sessions), names)
    assert sorted(counted.searched) == names
    take(read, counted.reader, tmp_path, names)
    assert sorted(counted.searched) == names
    new = session(FIRST, 5)
    take(read, counted.reader, home_of(tmp_path, new), [*names, FIRST])
    assert sorted(counted.searched) == sorted([*names, FIRST])


def test_transcripts_that_ended_before_a_cut_one_begins_are_not_searched(tmp_path):
    cut = session(SECOND, 1000)
    cut.lines[1]["parentUuid"] = "lost"
    counted = Counted()
    home = home_of(tmp_path, session(FIRST, 0, 10), cut, session(THIRD, 2000))
    take(Read(), counted.reader, home, [FIRST, SECOND, THIRD])
    assert counted.searched == []


def test_a_search_does_not_go_through_what_it_looks_for(tmp_path):
    """Each of a thousand cut transcripts is asked for the beginnings of all others."""

    class Asked(set):
        def __iter__(self):
            raise AssertionError

    one = session(FIRST, 0, 10)
    home_of(tmp_path, one)
    here = {line["uuid"] for line in one.lines if "uuid" in line}
    wanted = Asked([*here, "elsewhere"])
    assert claude_copies.holds(tmp_path / f".claude/projects/-work/{FIRST}.jsonl", wanted) == here


@pytest.mark.parametrize("workers", [0, 2])
def test_the_ledger_lists_a_fork_of_a_cut_session_from_its_own_first_line(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(ingest_store, "workers_for", lambda size: workers)
    one = session(FIRST, 0, 10, 20)
    fork = one.fork(SECOND, 3)
    fork.turn(30)
    last = fork.fork(THIRD, 4)
    last.turn(40)
    del one.lines[:5], fork.lines[:7]
    home = home_of(tmp_path / "home", one, fork, last)
    settings = Settings.from_env({"HOME": str(tmp_path), "VM_USAGE_VM": "vm-1", "VM_USAGE_TZ": ZONE})
    ledger = SqliteLedger(tmp_path / "ledger.db", ZONE)
    Ingest(ledger, settings, ALLOWLIST, PRICER, homes=[home]).once()
    rows = {row.session_id: row for row in Query(ledger, ledger.calendar).sessions(page=Page(limit=10)).rows}
    ledger.close()
    assert {name: row.input_tokens for name, row in rows.items()} == {FIRST: 30, SECOND: 30, THIRD: 40}
    assert [iso(rows[name].started_at) for name in (SECOND, THIRD)] == [at(30), at(40)]
