"""Claude Code: which session pays for a copied call, what a cost-state adds, and which line of a message counts."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.record import PICO
from collector.runtimes.claude_code import READER, ClaudeCode
from collector.runtimes.values import iso
from tests.runtimes.transcripts import Read, dollars, read_home, total, write

MODEL = "claude-sonnet-4-5"
# USD per million tokens of that model: input, cache read, 5-minute write, 1-hour write, output.
PRICES = (3, 0.3, 3.75, 6, 15)
PARENT = "a5a0bf30-bf03-4a9f-af12-d38ed73c27a3"
FORK = "0d3e7d4e-ea58-41a7-9ed1-e2054fea24d1"


def at(second: float) -> str:
    return f"2026-11-30T20:{int(second) // 60:02d}:{second % 60:06.3f}Z"


def epoch(second: float) -> float:
    return iso(at(second)) or 0.0


def user(session: str, uuid: str, second: float, **more) -> dict:
    return {"type": "user", "uuid": uuid, "sessionId": session, "timestamp": at(second), **more}


def call(session: str, number: int, second: float, *, output: int | None = None, **more) -> dict:
    usage = {
        "input_tokens": 1500 + 2 * number,
        "cache_creation_input_tokens": 100 + 10 * number,
        "cache_read_input_tokens": 500 + number,
        "output_tokens": 50 + 5 * number if output is None else output,
        "service_tier": "standard",
        "cache_creation": {
            "ephemeral_5m_input_tokens": 60 + 4 * number,
            "ephemeral_1h_input_tokens": 40 + 6 * number,
        },
    }
    message = {"id": f"msg_mock_{number}", "model": MODEL, "usage": usage, "content": []}
    entry = {"type": "assistant", "uuid": f"a-{number}", "sessionId": session, "timestamp": at(second)}
    return {**entry, "requestId": f"req_{number}", "isSidechain": False, "message": message, **more}


def used(*numbers: int) -> dict[str, int]:
    """The sum of some calls as a cost-state writes it."""
    return {
        "inputTokens": sum(1500 + 2 * n for n in numbers),
        "outputTokens": sum(50 + 5 * n for n in numbers),
        "cacheReadInputTokens": sum(500 + n for n in numbers),
        "cacheCreationInputTokens": sum(100 + 10 * n for n in numbers),
        "cacheCreationEphemeral1hInputTokens": sum(40 + 6 * n for n in numbers),
    }


def price(*numbers: int) -> float:
    u = used(*numbers)
    long_lived = u["cacheCreationEphemeral1hInputTokens"]
    parts = (u["inputTokens"], u["cacheReadInputTokens"], u["cacheCreationInputTokens"] - long_lived, long_lived)
    return sum(a * b for a, b in zip((*parts, u["outputTokens"]), PRICES, strict=True)) / 1e6


def cost_state(session: str, *numbers: int, start: int = 1796068800000, known: bool = True, **more) -> dict:
    usage = {MODEL: {**used(*numbers), "costUSD": price(*numbers)}}
    entry = {"type": "cost-state", "sessionId": session, "totalCostUSD": price(*numbers), "startTime": start}
    return {**entry, "modelUsage": usage, "hasUnknownModelCost": not known, **more}


def transcript(home: Path, session: str, *entries: dict) -> Path:
    return write(home / ".claude/projects/-work" / f"{session}.jsonl", *entries)


def compacted(session: str = PARENT) -> list[dict]:
    """Two turns, a compaction whose calls 4 and 5 have no row, a third turn."""
    return [
        {"type": "queue-operation", "sessionId": session, "timestamp": at(2.3)},
        user(session, "u-1", 2.374),
        call(session, 1, 2.454),
        cost_state(session, 1),
        user(session, "u-2", 2.967),
        call(session, 2, 3.043),
        cost_state(session, 1, 2),
        user(session, "u-3", 3.93),
        cost_state(session, 1, 2, 4, 5),
        user(session, "u-4", 4.351),
        call(session, 6, 4.408),
        cost_state(session, 1, 2, 4, 5, 6),
    ]


def fork_in_print_mode() -> list[dict]:
    """As 2.1 writes it: today's line first, then the parent's with their old times, then its own."""
    copies = [{**entry, "sessionId": FORK} for entry in compacted()[1:6] if entry["type"] != "cost-state"]
    own = [user(FORK, "f-1", 3.407), call(FORK, 3, 3.462), cost_state(FORK, 1, 2, 3)]
    return [{"type": "queue-operation", "sessionId": FORK, "timestamp": at(3.366)}, *copies, *own]


def test_the_surplus_of_a_cost_state_is_one_more_record_and_the_sum_is_what_claude_code_says(tmp_path):
    transcript(tmp_path, PARENT, *compacted())
    read = read_home(READER, tmp_path)
    rows, surplus = [r for r in read.of(PARENT) if r.grain == "call"], read.of(PARENT)[-1]
    assert sorted(row.response_id for row in rows) == ["msg_mock_1", "msg_mock_2", "msg_mock_6"]
    assert (surplus.grain, surplus.tokens.input_tokens) == ("session", used(4, 5)["inputTokens"])
    assert surplus.tokens.cache_write_1h_tokens == used(4, 5)["cacheCreationEphemeral1hInputTokens"]
    assert dollars(read.of(PARENT)) == pytest.approx(price(1, 2, 4, 5, 6), abs=1e-12)
    assert {record.vendor_basis for record in read.of(PARENT)} == {"runtime_price"}


def test_each_row_costs_what_claude_code_charged_for_it(tmp_path):
    transcript(tmp_path, PARENT, *compacted())
    read = read_home(READER, tmp_path)
    for number in (1, 2, 6):
        assert read.records[f"msg_mock_{number}"].vendor_pico / PICO == pytest.approx(price(number), rel=1e-9)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_fork_pays_for_its_own_call_alone_though_its_cost_state_begins_with_the_parents(tmp_path, backwards):
    transcript(tmp_path, PARENT, *compacted())
    transcript(tmp_path, FORK, *fork_in_print_mode())
    read = read_home(ClaudeCode(), tmp_path, backwards=backwards)
    assert [record.key for record in read.of(FORK)] == ["msg_mock_3"]
    assert dollars(read.of(FORK)) == pytest.approx(price(3), abs=1e-12)
    assert read.sessions[FORK].parent_session_id == PARENT
    assert total(read.of(PARENT), "output_tokens") == used(1, 2, 4, 5, 6)["outputTokens"]


def test_a_fork_whose_parent_is_gone_still_has_no_surplus(tmp_path):
    transcript(tmp_path, FORK, *fork_in_print_mode())
    read = read_home(ClaudeCode(), tmp_path)
    assert all(record.grain == "call" for record in read.records.values())
    assert read.records["msg_mock_3"].vendor_pico / PICO == pytest.approx(price(3), rel=1e-6)


def test_a_fork_of_a_compacted_session_does_not_take_over_the_compaction(tmp_path):
    parent = compacted()
    transcript(tmp_path, PARENT, *parent)
    start = {"type": "queue-operation", "sessionId": FORK, "timestamp": at(9)}
    own = [user(FORK, "f-1", 9.1), call(FORK, 7, 9.2), cost_state(FORK, 1, 2, 4, 5, 6, 7)]
    transcript(tmp_path, FORK, start, *({**entry, "sessionId": FORK} for entry in parent[7:8] + parent[9:11]), *own)
    read = read_home(ClaudeCode(), tmp_path, backwards=True)
    assert [record.key for record in read.of(FORK)] == ["msg_mock_7"]
    assert dollars(read.of(FORK)) == pytest.approx(price(7), abs=1e-12)


def named_fork() -> list[dict]:
    """A fork of the compacted session that says so, and two calls of its own."""
    origin = {"forkedFrom": {"sessionId": PARENT, "messageUuid": "x"}}
    copies = [{**entry, "sessionId": FORK, **origin} for entry in compacted() if entry["type"] in ("user", "assistant")]
    own = [user(FORK, "f-1", 9.1), call(FORK, 7, 9.2), cost_state(FORK, 1, 2, 4, 5, 6, 7)]
    return [*copies, *own, call(FORK, 8, 60), cost_state(FORK, 1, 2, 4, 5, 6, 7, 8)]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_fork_alone_in_another_home_does_not_count_its_parents_compaction_once_more(tmp_path, backwards):
    transcript(tmp_path / "a", PARENT, *compacted())
    transcript(tmp_path / "b", FORK, *named_fork())
    read = Read()
    for home in ("b", "a") if backwards else ("a", "b"):
        take_all(read, ClaudeCode(), tmp_path / home)
    assert total(read.of(PARENT), "output_tokens") == used(1, 2, 4, 5, 6)["outputTokens"]
    assert total(read.of(FORK), "output_tokens") == used(7, 8)["outputTokens"]
    assert dollars(read.of(PARENT)) == pytest.approx(price(1, 2, 4, 5, 6), abs=1e-12)
    assert dollars(read.of(FORK)) == pytest.approx(price(7, 8), rel=1e-6)


def test_what_a_fork_says_of_a_lost_session_is_taken_back_when_that_turns_up_and_says_otherwise(tmp_path):
    origin = {"forkedFrom": {"sessionId": PARENT, "messageUuid": "x"}}
    parent = [user(PARENT, "u-1", 1), call(PARENT, 1, 2), cost_state(PARENT, 1)]
    lines = [{**entry, "sessionId": FORK, **origin} for entry in parent[:2]]
    lines += [user(FORK, "f-1", 60), call(FORK, 7, 61), cost_state(FORK, 1, 3, 7)]
    transcript(tmp_path, FORK, *lines)
    read = read_home(ClaudeCode(), tmp_path)
    assert total(read.of(PARENT), "output_tokens") == used(1, 3)["outputTokens"]
    assert total(read.of(FORK), "output_tokens") == used(7)["outputTokens"]
    transcript(tmp_path, PARENT, *parent)
    transcript(tmp_path, FORK, *lines, call(FORK, 8, 62), cost_state(FORK, 1, 3, 7, 8))
    take_all(read, ClaudeCode(), tmp_path)
    assert total(read.of(PARENT), "output_tokens") == used(1)["outputTokens"]
    assert total(read.of(FORK), "output_tokens") == used(3, 7, 8)["outputTokens"]
    assert dollars(read.records.values()) == pytest.approx(price(1, 3, 7, 8), abs=1e-12)


def test_a_fork_of_a_session_without_a_total_began_with_none(tmp_path):
    copies = [entry for entry in named_fork()[:-4] if entry["type"] != "cost-state"]
    transcript(tmp_path, FORK, *copies, user(FORK, "f-1", 9.1), call(FORK, 7, 9.2), cost_state(FORK, 7, 3))
    read = read_home(ClaudeCode(), tmp_path)
    assert total(read.of(FORK), "output_tokens") == used(3, 7)["outputTokens"]
    assert dollars(read.of(FORK)) == pytest.approx(price(3, 7), abs=1e-12)


def test_a_fork_that_names_its_parent_gives_the_copies_back(tmp_path):
    origin = {"forkedFrom": {"sessionId": PARENT, "messageUuid": "x"}}
    copies = [user(FORK, "u-1", 1, **origin), call(FORK, 1, 2, **origin)]
    transcript(tmp_path, FORK, *copies, user(FORK, "f-1", 60), call(FORK, 2, 61))
    read = read_home(ClaudeCode(), tmp_path)
    assert [record.key for record in read.of(PARENT)] == ["msg_mock_1"]
    assert [record.key for record in read.of(FORK)] == ["msg_mock_2"]
    assert read.sessions[FORK].parent_session_id == PARENT


@pytest.mark.parametrize("named", ["a/b", "/etc/passwd", "..", "n" * 256])
def test_a_fork_that_names_what_no_file_can_be_called_is_read_all_the_same(tmp_path, named):
    copy = call(FORK, 1, 2, forkedFrom={"sessionId": named, "messageUuid": "x"})
    transcript(tmp_path, FORK, copy, call(FORK, 2, 61))
    read = read_home(ClaudeCode(), tmp_path)
    assert {key: record.session_id for key, record in read.records.items()} == {
        "msg_mock_1": named,
        "msg_mock_2": FORK,
    }


@pytest.mark.parametrize("parent", ["00000000-0000-4000-8000-000000000001", "ffffffff-0000-4000-8000-000000000001"])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_silent_copy_belongs_to_the_session_whose_own_lines_came_first(tmp_path, parent, backwards):
    shared = [("u-1", 1), ("u-2", 5)]
    for session, later, number in ((parent, 10, 2), (FORK, 600, 3)):
        lines = [user(session, uuid, second) for uuid, second in shared]
        own = [user(session, f"own-{number}", later), call(session, number, later + 1)]
        transcript(tmp_path, session, lines[0], call(session, 1, 2), lines[1], *own)
    read = read_home(ClaudeCode(), tmp_path, backwards=backwards)
    assert sorted(record.key for record in read.of(parent)) == ["msg_mock_1", "msg_mock_2"]
    assert [record.key for record in read.of(FORK)] == ["msg_mock_3"]
    assert read.sessions[FORK].started_ts - read.sessions[parent].started_ts == 599


def test_a_fork_that_goes_on_after_its_parents_transcript_was_deleted_takes_nothing_over(tmp_path):
    parent = transcript(tmp_path, PARENT, *compacted())
    copies = [{**entry, "sessionId": FORK} for entry in compacted()[7:8] + compacted()[9:11]]
    start = {"type": "queue-operation", "sessionId": FORK, "timestamp": at(9)}
    lines = [start, *copies, user(FORK, "f-1", 9.1), call(FORK, 7, 9.2), cost_state(FORK, 1, 2, 4, 5, 6, 7)]
    transcript(tmp_path, FORK, *lines)
    read = read_home(ClaudeCode(), tmp_path)
    parent.unlink()
    transcript(tmp_path, FORK, *lines, call(FORK, 8, 60), cost_state(FORK, 1, 2, 4, 5, 6, 7, 8))
    take_all(read, ClaudeCode(), tmp_path)
    assert sorted(record.key for record in read.of(FORK)) == ["msg_mock_7", "msg_mock_8"]
    assert dollars(read.of(FORK)) == pytest.approx(price(7, 8), abs=1e-12)


@pytest.mark.parametrize("deleted", [["a1"], ["a1", "a2"]])
def test_sub_agents_whose_files_were_deleted_are_not_counted_once_more_by_the_next_total(tmp_path, deleted):
    lines = [user(PARENT, "u", 1), call(PARENT, 1, 2), user(PARENT, "v", 8), cost_state(PARENT, 1, 2, 3, 4)]
    agents = transcript(tmp_path, PARENT, *lines).with_suffix("") / "subagents"
    write(agents / "agent-a1.jsonl", call(PARENT, 2, 3, isSidechain=True))
    write(agents / "agent-a2.jsonl", call(PARENT, 3, 4, isSidechain=True))
    read = read_home(ClaudeCode(), tmp_path)
    for name in deleted:
        (agents / f"agent-{name}.jsonl").unlink()
    for number, second in ((5, 60), (6, 61)):
        lines += [call(PARENT, number, second), cost_state(PARENT, *range(1, number + 1))]
        transcript(tmp_path, PARENT, *lines)
        take_all(read, ClaudeCode(), tmp_path)
        assert total(read.of(PARENT), "output_tokens") == used(*range(1, number + 1))["outputTokens"]
        assert dollars(read.of(PARENT)) == pytest.approx(price(*range(1, number + 1)), abs=1e-9)


def take_all(read: Read, reader: ClaudeCode, home: Path) -> None:
    for source in reader.sources(home, {}):
        read.take(reader, source)


def test_dollars_of_a_model_that_claude_code_did_not_know_are_not_believed(tmp_path):
    transcript(tmp_path, PARENT, user(PARENT, "u", 1), call(PARENT, 1, 2), cost_state(PARENT, 1, 2, known=False))
    read = read_home(ClaudeCode(), tmp_path)
    assert dollars(read.of(PARENT)) is None
    assert total(read.of(PARENT), "input_tokens") == used(1, 2)["inputTokens"]


def test_a_total_that_does_not_cover_the_rows_prices_none_of_them(tmp_path):
    rows = [call(PARENT, 1, 2), call(PARENT, 2, 3), call(PARENT, 3, 4)]
    transcript(tmp_path, PARENT, user(PARENT, "u", 1), *rows, cost_state(PARENT, 3))
    read = read_home(ClaudeCode(), tmp_path)
    assert dollars(read.of(PARENT)) is None
    assert len(read.of(PARENT)) == 3


def test_rows_after_the_last_cost_state_wait_for_the_next(tmp_path):
    path = transcript(tmp_path, PARENT, *compacted(), user(PARENT, "u-9", 30), call(PARENT, 9, 31))
    read = read_home(ClaudeCode(), tmp_path)
    assert read.records["msg_mock_9"].vendor_pico is None
    with path.open("ab") as file:
        file.write(write(tmp_path / "more", cost_state(PARENT, 1, 2, 4, 5, 6, 9)).read_bytes())
    for source in READER.sources(tmp_path, {}):
        read.take(READER, source)
    assert read.records["msg_mock_9"].vendor_pico / PICO == pytest.approx(price(9), rel=1e-9)
    assert dollars(read.of(PARENT)) == pytest.approx(price(1, 2, 4, 5, 6, 9), abs=1e-12)


def test_a_transcript_names_a_model_with_its_date_and_the_total_without(tmp_path):
    dated = call(PARENT, 1, 2)
    dated["message"] |= {"model": f"{MODEL}-20250929"}
    transcript(tmp_path, PARENT, user(PARENT, "u", 1), dated, cost_state(PARENT, 1))
    assert total(read_home(ClaudeCode(), tmp_path).of(PARENT), "input_tokens") == 1502


def test_sub_agents_rows_are_covered_by_the_total_of_their_session(tmp_path):
    path = transcript(tmp_path, PARENT, user(PARENT, "u", 1), call(PARENT, 1, 5), cost_state(PARENT, 1, 2))
    agent = call(PARENT, 2, 3, isSidechain=True, agentId="a1")
    write(path.with_suffix("") / "subagents" / "agent-a1.jsonl", agent)
    read = read_home(ClaudeCode(), tmp_path)
    assert sorted(record.key for record in read.of(PARENT)) == ["msg_mock_1", "msg_mock_2"]
    assert dollars(read.of(PARENT)) == pytest.approx(price(1, 2), abs=1e-12)


def test_a_background_agents_calls_after_the_last_dated_line_are_part_of_a_total_that_was_written_later(tmp_path):
    began = int(epoch(1) * 1000)
    lines = [user(PARENT, "u", 1), call(PARENT, 1, 5), cost_state(PARENT, 1, start=began, totalDuration=4_500)]
    path = transcript(tmp_path, PARENT, *lines)
    agent = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    rows = [call(PARENT, 2, 30, isSidechain=True)]
    write(agent, *rows)
    read = read_home(READER, tmp_path)
    # Ten minutes later the session is resumed: its clock goes on from where it stood.
    paused = [cost_state(PARENT, 1, 2, start=began, totalDuration=40_000), user(PARENT, "v", 700)]
    later = [call(PARENT, 3, 702), cost_state(PARENT, 1, 2, 3, start=began, totalDuration=42_100)]
    last = cost_state(PARENT, 1, 2, 3, 4, start=began, totalDuration=62_000)
    for more, numbers in (([paused[0]], (1, 2)), ([paused[1], *later], (1, 2, 3)), ([last], (1, 2, 3, 4))):
        lines += more
        if 4 in numbers:
            write(agent, *rows, call(PARENT, 4, 720, isSidechain=True))
        transcript(tmp_path, PARENT, *lines)
        take_all(read, READER, tmp_path)
        assert sorted(read.records) == [f"msg_mock_{number}" for number in numbers]
        assert dollars(read.of(PARENT)) == pytest.approx(price(*numbers), abs=1e-12)
        assert read_home(ClaudeCode(), tmp_path).facts() == read.facts()


def test_a_surplus_that_turns_out_to_be_a_row_is_taken_back(tmp_path):
    lines = [user(PARENT, "u", 1), call(PARENT, 1, 2), user(PARENT, "v", 9), cost_state(PARENT, 1, 2)]
    agent = transcript(tmp_path, PARENT, *lines).with_suffix("") / "subagents" / "agent-a1.jsonl"
    read = read_home(READER, tmp_path)
    assert total(read.of(PARENT), "input_tokens") == used(1, 2)["inputTokens"]
    write(agent, call(PARENT, 2, 3, isSidechain=True))
    take_all(read, READER, tmp_path)
    assert sorted(read.records) == ["msg_mock_1", "msg_mock_2"]
    assert dollars(read.of(PARENT)) == pytest.approx(price(1, 2), abs=1e-12)


def test_sub_agents_whose_session_has_no_transcript_are_read(tmp_path):
    folder = tmp_path / ".claude/projects/-work" / PARENT / "subagents"
    write(folder / "agent-a1.jsonl", call(PARENT, 2, 3, isSidechain=True))
    write(folder / "workflows" / "wf-1" / "agent-a2.jsonl", call(PARENT, 3, 4, isSidechain=True))
    assert total(read_home(ClaudeCode(), tmp_path).of(PARENT), "input_tokens") == used(2, 3)["inputTokens"]


def test_sub_agents_beside_the_transcripts_are_no_sessions_of_their_own(tmp_path):
    transcript(tmp_path, PARENT, user(PARENT, "u", 1), call(PARENT, 1, 5))
    transcript(tmp_path, "agent-a1b2c3d4", call(PARENT, 2, 3, isSidechain=True))
    read = read_home(ClaudeCode(), tmp_path)
    assert (set(read.sessions), len(read.of(PARENT))) == ({PARENT}, 2)


def test_a_sub_agents_file_that_vanishes_before_it_is_read_hides_nothing_and_takes_nothing_back(tmp_path):
    path = transcript(tmp_path, PARENT, user(PARENT, "u", 1), call(PARENT, 1, 5))
    agents = path.with_suffix("") / "subagents"
    write(agents / "agent-a1.jsonl", call(PARENT, 2, 3, isSidechain=True))
    write(agents / "agent-a2.jsonl", call(PARENT, 3, 4, isSidechain=True))
    reader, read = ClaudeCode(), Read()
    for when_read in (("a1", "a2"), ("a2",)):
        (source,) = reader.sources(tmp_path, {})
        assert len(source.parts) == len(when_read)
        (agents / f"agent-{when_read[0]}.jsonl").unlink()
        read.take(reader, source)
        assert read.skipped == {"vanished": 1}
        read.skipped.clear()
    assert sorted(read.records) == ["msg_mock_1", "msg_mock_3"]
    assert read.sessions[PARENT].ended_ts == read.records["msg_mock_1"].ts


def test_a_sub_agents_file_that_vanishes_after_it_was_read_stays_counted(tmp_path):
    path = transcript(tmp_path, PARENT, user(PARENT, "u", 1), call(PARENT, 1, 5))
    agent = write(path.with_suffix("") / "subagents" / "agent-a1.jsonl", call(PARENT, 2, 3, isSidechain=True))
    reader = ClaudeCode()
    read = read_home(reader, tmp_path)
    agent.unlink()
    for source in reader.sources(tmp_path, {}):
        read.take(reader, source)
    assert (sorted(read.records), read.skipped) == (["msg_mock_1", "msg_mock_2"], {})


def test_what_a_fork_says_of_its_parents_calls_does_not_replace_the_parents_dollars(tmp_path):
    transcript(tmp_path, PARENT, user(PARENT, "u-1", 1), call(PARENT, 1, 2), cost_state(PARENT, 1))
    origin = {"forkedFrom": {"sessionId": PARENT, "messageUuid": "x"}}
    lines = [user(FORK, "u-1", 1, **origin), call(FORK, 1, 2, **origin), user(FORK, "f-1", 60), call(FORK, 2, 61)]
    read = Read()
    for more in (cost_state(FORK, 1, 2), call(FORK, 3, 62), cost_state(FORK, 1, 2, 3)):
        lines.append(more)
        transcript(tmp_path, FORK, *lines)
        for source in READER.sources(tmp_path, {}):
            read.take(READER, source)
    assert dollars(read.of(PARENT)) == pytest.approx(price(1), abs=1e-12)


def step(kind: str, number: int, **more) -> dict:
    counts = {"input_tokens": 10 * number, "output_tokens": number, "cache_read_input_tokens": 0}
    return {"type": kind, **counts, "cache_creation_input_tokens": 0, **more}


def test_another_models_advice_is_a_call_of_that_model_and_a_compaction_within_a_call_is_added(tmp_path):
    early, late = call(PARENT, 1, 2), call(PARENT, 1, 3)
    late["message"]["usage"] |= {
        "iterations": [
            step("message", 1),
            step("advisor_message", 700, model="claude-opus-4-7"),
            step("compaction", 90),
            step("advisor_message", 500, model="claude-opus-4-7"),
            step("message", 2, model="claude-sonnet-4-5"),
        ]
    }
    total_of_both = cost_state(PARENT, 1)
    total_of_both["modelUsage"][MODEL]["inputTokens"] += 900
    total_of_both["modelUsage"][MODEL]["outputTokens"] += 90
    total_of_both["modelUsage"]["claude-opus-4-7"] = {"inputTokens": 12_000, "outputTokens": 1_200, "costUSD": 0.09}
    transcript(tmp_path, PARENT, user(PARENT, "u", 1), early, late, total_of_both)
    read = read_home(ClaudeCode(), tmp_path)
    assert {key: (r.model, r.tokens.input_tokens, r.tokens.output_tokens) for key, r in read.records.items()} == {
        "msg_mock_1": (MODEL, 1502 + 900, 55 + 90),
        "msg_mock_1:advisor:0": ("claude-opus-4-7", 7000, 700),
        "msg_mock_1:advisor:1": ("claude-opus-4-7", 5000, 500),
    }


def test_steps_that_are_not_what_they_should_be_do_not_spoil_the_call(tmp_path):
    odd = call(PARENT, 1, 2)
    odd["message"]["usage"]["iterations"] = [7, {"type": []}, step("advisor_message", 3, model="m", input_tokens=-1)]
    transcript(tmp_path, PARENT, odd)
    read = read_home(ClaudeCode(), tmp_path)
    assert read.records["msg_mock_1"].tokens.output_tokens == 55
    assert read.records["msg_mock_1:advisor:0"].tokens[:1] == (None,)


@pytest.mark.parametrize("text", [b"\xe2\x82", rb"\ud83d", rb"\ude00 and more"])
@pytest.mark.parametrize("known_by", ["msg_mock_1", "a-1"])
def test_half_a_character_in_a_text_does_not_spoil_the_call_whichever_id_it_has(tmp_path, known_by, text):
    odd = call(PARENT, 1, 2)
    odd["message"] |= {"content": "TEXT", "id": known_by if known_by == "msg_mock_1" else ""}
    path = transcript(tmp_path, PARENT, odd)
    path.write_bytes(path.read_bytes().replace(b"TEXT", text))
    assert set(read_home(ClaudeCode(), tmp_path).records) == {known_by}


@given(st.lists(st.integers(1, 500), min_size=2, max_size=5), st.data())
@settings(max_examples=25, deadline=None)
def test_the_line_with_the_largest_output_counts_wherever_it_stands(tmp_path_factory, outputs, data):
    home = tmp_path_factory.mktemp("home")
    lines = [call(PARENT, 1, second, output=output) for second, output in enumerate(outputs, 1)]
    transcript(home, PARENT, *data.draw(st.permutations(lines)))
    read = read_home(ClaudeCode(), home)
    assert read.records["msg_mock_1"].tokens.output_tokens == max(outputs)


def test_a_session_that_spans_midnight_and_two_models_keeps_both(tmp_path):
    late, early = call(PARENT, 1, 1), call(PARENT, 2, 2)
    late |= {"timestamp": "2026-11-30T23:59:59.900Z"}
    early |= {"timestamp": "2026-12-01T00:00:00.100Z"}
    early["message"] |= {"model": "claude-haiku-4-5"}
    transcript(tmp_path, PARENT, late, early)
    records = read_home(ClaudeCode(), tmp_path).of(PARENT)
    assert [(record.model, record.ts % 86400) for record in records] == [
        (MODEL, pytest.approx(86399.9)),
        ("claude-haiku-4-5", pytest.approx(0.1)),
    ]


def every_cut(size: int) -> Iterator[int]:
    return itertools.chain(range(0, size, 97), (size - 1,))


def test_a_store_read_half_way_through_a_write_ends_as_if_it_had_been_whole(tmp_path):
    home = tmp_path / "whole"
    transcript(home, PARENT, *compacted())
    want = read_home(ClaudeCode(), home).facts()
    data = (home / ".claude/projects/-work" / f"{PARENT}.jsonl").read_bytes()
    for cut in every_cut(len(data)):
        reader, half, read = ClaudeCode(), tmp_path / f"cut-{cut}", Read()
        path = transcript(half, PARENT)
        path.write_bytes(data[:cut])
        for source in reader.sources(half, {}):
            read.take(reader, source)
        with path.open("ab") as file:
            file.write(data[cut:])
        for source in reader.sources(half, {}):
            read.take(reader, source)
        assert read.facts() == want


def test_config_dirs_may_be_several(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name / "projects" / "-work" / f"{name}.jsonl", call(name, 1, 1))
    environ = {"CLAUDE_CONFIG_DIR": f"{tmp_path}/one,{tmp_path}/two"}
    assert len(list(READER.sources(tmp_path / "home", environ))) == 2
