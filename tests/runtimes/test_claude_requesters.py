"""Claude Code's copies that say which session made the request (2.1.3xx), wherever the copy and its original lie."""

from pathlib import Path

import pytest

from collector.runtimes.claude_code import ClaudeCode
from tests.runtimes.test_claude_code import (
    FORK,
    PARENT,
    call,
    compacted,
    cost_state,
    epoch,
    price,
    take_all,
    transcript,
    used,
    user,
)
from tests.runtimes.transcripts import Read, dollars, read_home, total, write

THIRD = "7c0f8a51-5a0e-4b62-8a35-0d9a4a3c1b11"
START = {"type": "queue-operation", "sessionId": FORK, "timestamp": "2026-11-30T20:00:09.000Z"}


def copies(name: str, source: list[dict]) -> list[dict]:
    """As ``--fork-session`` copies messages: under the new name, an answer with the session that asked for it."""
    found = []
    for entry in source:
        if entry["type"] == "assistant":
            asked = entry.get("requestSessionId", entry["sessionId"])
            found.append({**entry, "sessionId": name, "requestSessionId": asked})
        elif entry["type"] in ("user", "system"):
            found.append({**entry, "sessionId": name})
    return found


def forked(*before: dict) -> list[dict]:
    """A fork of the compacted session: in print mode a line of today comes first, else the copies do."""
    own = [user(FORK, "f-1", 9.1), call(FORK, 7, 9.2), cost_state(FORK, 1, 2, 4, 5, 6, 7)]
    return [*before, *copies(FORK, compacted()), *own, call(FORK, 8, 60), cost_state(FORK, 1, 2, 4, 5, 6, 7, 8)]


def elsewhere(home: Path, session: str, *entries: dict) -> Path:
    return write(home / ".claude/projects/-elsewhere" / f"{session}.jsonl", *entries)


@pytest.mark.parametrize("before", [[START], []])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_fork_in_another_folder_takes_over_neither_calls_nor_totals(tmp_path, before, backwards):
    transcript(tmp_path, PARENT, *compacted())
    elsewhere(tmp_path, FORK, *forked(*before))
    read = read_home(ClaudeCode(), tmp_path, backwards=backwards)
    assert total(read.of(PARENT), "output_tokens") == used(1, 2, 4, 5, 6)["outputTokens"]
    assert total(read.of(FORK), "output_tokens") == used(7, 8)["outputTokens"]
    assert dollars(read.of(FORK)) == pytest.approx(price(7, 8), abs=1e-12)
    assert read.sessions[FORK].parent_session_id == PARENT
    assert read.sessions[FORK].started_ts == epoch(9 if before else 9.1)


@pytest.mark.parametrize("before", [[START], []])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_silent_fork_alone_in_another_home_gives_its_parents_compaction_back(tmp_path, before, backwards):
    transcript(tmp_path / "a", PARENT, *compacted())
    transcript(tmp_path / "b", FORK, *forked(*before))
    read = Read()
    for home in ("b", "a") if backwards else ("a", "b"):
        take_all(read, ClaudeCode(), tmp_path / home)
    assert total(read.of(PARENT), "output_tokens") == used(1, 2, 4, 5, 6)["outputTokens"]
    assert total(read.of(FORK), "output_tokens") == used(7, 8)["outputTokens"]
    assert dollars(read.of(PARENT)) == pytest.approx(price(1, 2, 4, 5, 6), abs=1e-12)


def test_a_fork_of_a_fork_gives_every_call_back_though_no_other_transcript_is_there(tmp_path):
    middle = [*copies(FORK, compacted()[:6]), user(FORK, "f-1", 9.1), call(FORK, 7, 9.2)]
    lines = [*copies(THIRD, middle), user(THIRD, "t-1", 60), call(THIRD, 8, 61)]
    transcript(tmp_path, THIRD, *lines)
    read = read_home(ClaudeCode(), tmp_path)
    assert {key: record.session_id for key, record in read.records.items()} == {
        "msg_mock_1": PARENT,
        "msg_mock_2": PARENT,
        "msg_mock_7": FORK,
        "msg_mock_8": THIRD,
    }
    assert (read.sessions[THIRD].parent_session_id, read.sessions[THIRD].started_ts) == (FORK, epoch(60))


@pytest.mark.parametrize("before", [[START], []])
def test_a_fork_that_is_read_after_each_line_ends_as_if_it_were_read_once(tmp_path, before):
    lines, read, reader = forked(*before), Read(), ClaudeCode()
    for number in range(1, len(lines) + 1):
        transcript(tmp_path, FORK, *lines[:number])
        take_all(read, reader, tmp_path)
    once = read_home(ClaudeCode(), tmp_path)
    assert read.facts() == once.facts()
    assert read.sessions == once.sessions


def later(session: str, second: float, *numbers: int) -> list[dict]:
    """A prompt and its calls."""
    return [user(session, f"u-{session[:1]}-{second}", second), *(call(session, n, second + 1) for n in numbers)]


@pytest.mark.parametrize("folder", [transcript, elsewhere])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_fork_of_a_fork_began_with_the_total_of_that_fork_not_of_the_original_that_went_on(
    tmp_path, folder, backwards
):
    middle = [*copies(FORK, compacted()[:6]), *later(FORK, 9, 7), cost_state(FORK, 1, 2, 7)]
    parent = [*compacted()[:7], *later(PARENT, 20, 11, 12, 13), cost_state(PARENT, 1, 2, 11, 12, 13)]
    last = [*copies(THIRD, middle), *later(THIRD, 60, 21, 22, 23, 24), cost_state(THIRD, 1, 2, 7, 21, 22, 23, 24, 9)]
    transcript(tmp_path, PARENT, *parent)
    folder(tmp_path, FORK, *middle)
    transcript(tmp_path, THIRD, *last)
    read = read_home(ClaudeCode(), tmp_path, backwards=backwards)
    assert total(read.of(PARENT), "output_tokens") == used(1, 2, 11, 12, 13)["outputTokens"]
    assert total(read.of(FORK), "output_tokens") == used(7)["outputTokens"]
    assert total(read.of(THIRD), "output_tokens") == used(21, 22, 23, 24, 9)["outputTokens"]
    assert dollars(read.of(THIRD)) == pytest.approx(price(21, 22, 23, 24, 9), abs=1e-12)


def test_a_branch_whose_clock_began_after_its_copies_has_its_first_compaction_for_itself(tmp_path):
    """``/branch`` within a running program begins a new total, at zero."""
    origin = {"forkedFrom": {"sessionId": PARENT, "messageUuid": "x"}}
    lines = [{**entry, **origin} for entry in copies(FORK, [user(PARENT, "u", 1), call(PARENT, 1, 2)])]
    began = int(epoch(8) * 1000)
    lines += [user(FORK, "f", 9), cost_state(FORK, 4, 5, start=began)]
    lines += [user(FORK, "g", 10), call(FORK, 7, 11), cost_state(FORK, 4, 5, 7, start=began)]
    transcript(tmp_path, FORK, *lines)
    read = read_home(ClaudeCode(), tmp_path)
    assert total(read.of(PARENT), "output_tokens") == used(1)["outputTokens"]
    assert total(read.of(FORK), "output_tokens") == used(4, 5, 7)["outputTokens"]
    assert dollars(read.of(FORK)) == pytest.approx(price(4, 5, 7), abs=1e-12)


def test_calls_that_were_made_before_the_total_began_are_no_part_of_it(tmp_path):
    """A session of a program that kept no totals goes on in one that does."""
    began = int(epoch(60) * 1000)
    lines = [*later(PARENT, 1, 1), *later(PARENT, 10, 2), *later(PARENT, 61, 3)]
    transcript(tmp_path, PARENT, *lines, cost_state(PARENT, 3, 4, start=began))
    read = read_home(ClaudeCode(), tmp_path)
    assert total(read.of(PARENT), "output_tokens") == used(1, 2, 3, 4)["outputTokens"]
    assert read.records["msg_mock_1"].vendor_pico is None
    assert dollars(read.of(PARENT)) == pytest.approx(price(3, 4), abs=1e-12)


@pytest.mark.parametrize("backwards", [False, True])
def test_what_a_fork_takes_for_its_parents_surplus_gives_way_to_a_parent_that_has_none(tmp_path, backwards):
    parent = [*later(PARENT, 3, 1), user(PARENT, "v", 6), cost_state(PARENT, 1, 2)]
    agents = transcript(tmp_path / "a", PARENT, *parent).with_suffix("") / "subagents"
    write(agents / "agent-a1.jsonl", call(PARENT, 2, 5, isSidechain=True))
    transcript(tmp_path / "b", FORK, *copies(FORK, parent), *later(FORK, 60, 7), cost_state(FORK, 1, 2, 7))
    read = Read()
    for home in ("b", "a") if backwards else ("a", "b"):
        take_all(read, ClaudeCode(), tmp_path / home)
    assert total(read.of(PARENT), "output_tokens") == used(1, 2)["outputTokens"]
    assert total(read.of(FORK), "output_tokens") == used(7)["outputTokens"]


def test_a_message_that_a_compaction_kept_is_no_call_of_no_tokens(tmp_path):
    """A fork's copy of it has zeros, for its tokens are part of an earlier context."""
    kept = call(PARENT, 1, 2)
    kept["message"]["usage"] = dict.fromkeys(kept["message"]["usage"], 0) | {"iterations": []}
    transcript(tmp_path, FORK, *copies(FORK, [user(PARENT, "u", 1), kept]), *later(FORK, 60, 7))
    assert list(read_home(ClaudeCode(), tmp_path).records) == ["msg_mock_7"]
    transcript(tmp_path, PARENT, user(PARENT, "u", 1), call(PARENT, 1, 2))
    for backwards in (False, True):
        read = read_home(ClaudeCode(), tmp_path, backwards=backwards)
        assert total(read.of(PARENT), "output_tokens") == used(1)["outputTokens"]


def test_an_answer_whose_provider_sent_no_usage_is_a_call_of_which_nothing_is_known(tmp_path):
    silent = call(PARENT, 2, 5)
    silent["message"]["usage"] = dict.fromkeys(("input_tokens", "output_tokens"), 0)
    transcript(tmp_path, PARENT, user(PARENT, "u", 1), call(PARENT, 1, 2), silent, cost_state(PARENT, 1))
    record = read_home(ClaudeCode(), tmp_path).records["msg_mock_2"]
    assert (record.usage, record.tokens.known, record.vendor_pico) == ("missing", False, None)


def test_a_transcript_that_the_program_moved_to_another_folder_goes_on(tmp_path):
    """``/cd`` moves it to the folder of the new directory."""
    lines, read, reader = [*later(PARENT, 3, 1)], Read(), ClaudeCode()
    for number, second in ((2, 10), (3, 20), (4, 30)):
        lines += [user(PARENT, f"v-{number}", second), cost_state(PARENT, *range(1, number + 1))]
        transcript(tmp_path, PARENT, *lines)
        take_all(read, reader, tmp_path)
    transcript(tmp_path, PARENT).unlink()
    lines += [user(PARENT, "w", 60), cost_state(PARENT, 1, 2, 3, 4, 5)]
    elsewhere(tmp_path, PARENT, *lines)
    take_all(read, ClaudeCode(), tmp_path)
    assert total(read.of(PARENT), "output_tokens") == used(1, 2, 3, 4, 5)["outputTokens"]
    assert dollars(read.of(PARENT)) == pytest.approx(price(1, 2, 3, 4, 5), abs=1e-12)


@pytest.mark.parametrize("home", ["with its parent", "alone"])
def test_an_interactive_fork_begins_after_what_followed_the_last_answer_that_it_copied(tmp_path, home):
    """The program writes attachments and the length of a turn behind an answer, a fork's total when that is left."""
    ends: list[dict] = [{**user("", kind, 4.6), "type": kind} for kind in ("attachment", "system")]
    parent = [*compacted()[:-1], *({**line, "sessionId": PARENT} for line in ends), compacted()[-1]]
    own = [*later(FORK, 60, 7), user(FORK, "g", 70), cost_state(FORK, 1, 2, 4, 5, 6, 7, 8)]
    elsewhere(tmp_path, FORK, *copies(FORK, compacted()), *({**line, "sessionId": FORK} for line in ends), *own)
    if home != "alone":
        transcript(tmp_path, PARENT, *parent)
        read = read_home(ClaudeCode(), tmp_path)
        assert total(read.of(FORK), "output_tokens") == used(7, 8)["outputTokens"]
        assert total(read.of(PARENT), "output_tokens") == used(1, 2, 4, 5, 6)["outputTokens"]
    assert read_home(ClaudeCode(), tmp_path).sessions[FORK].started_ts == epoch(60)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_fork_that_copied_no_answer_with_usage_began_with_its_parents_total_too(tmp_path, backwards):
    """After a compaction a fork has of its parent's answers the one that was kept, without its tokens."""
    kept = call(PARENT, 6, 5.5)
    kept["message"]["usage"] = dict.fromkeys(kept["message"]["usage"], 0) | {"iterations": []}
    copied = copies(FORK, [user(PARENT, "summary", 5), kept])
    transcript(tmp_path / "a", PARENT, *compacted())
    transcript(tmp_path / "b", FORK, *copied, *later(FORK, 60, 7), cost_state(FORK, 1, 2, 4, 5, 6, 7))
    read = Read()
    for home in ("b", "a") if backwards else ("a", "b"):
        take_all(read, ClaudeCode(), tmp_path / home)
    assert total(read.of(PARENT), "output_tokens") == used(1, 2, 4, 5, 6)["outputTokens"]
    assert total(read.of(FORK), "output_tokens") == used(7)["outputTokens"]


@pytest.mark.parametrize("kind", [[], {}, None, 7])
def test_a_line_of_no_kind_after_what_was_copied_is_a_line_like_any_other(tmp_path, kind):
    lines = forked()
    own = next(number for number, line in enumerate(lines) if line.get("uuid") == "f-1")
    transcript(tmp_path, FORK, *lines[:own], {**lines[own], "type": kind}, *lines[own + 1 :])
    assert read_home(ClaudeCode(), tmp_path).sessions[FORK].started_ts == epoch(9.1)


@pytest.mark.parametrize("odd", [{"totalDuration": 2**62}, {"startTime": 2**62, "totalDuration": 1}])
def test_a_clock_beyond_all_dates_does_not_date_a_total(tmp_path, odd):
    transcript(tmp_path, PARENT, *later(PARENT, 3, 1), user(PARENT, "v", 9), {**cost_state(PARENT, 1, 2), **odd})
    read = read_home(ClaudeCode(), tmp_path)
    assert max(record.ts for record in read.of(PARENT)) <= epoch(9)
    assert total(read.of(PARENT), "output_tokens") == used(1, 2)["outputTokens"]


def test_turns_of_a_program_that_was_killed_are_no_part_of_the_next_total(tmp_path):
    """An interactive session writes its total when it is left; killed, it writes none, and the next one lacks it."""
    began = int(epoch(0) * 1000)
    first = [*later(PARENT, 1, 1), cost_state(PARENT, 1, start=began, totalDuration=3_000)]
    killed = later(PARENT, 60, 2)
    # The background agent of the first program ended after its last dated line, and is part of its total.
    resumed = [*later(PARENT, 120, 3), cost_state(PARENT, 1, 3, 4, 5, start=began, totalDuration=6_000)]
    path = transcript(tmp_path, PARENT, *first, *killed, *resumed)
    write(path.with_suffix("") / "subagents" / "agent-a1.jsonl", call(PARENT, 5, 4, isSidechain=True))
    read = read_home(ClaudeCode(), tmp_path)
    assert total(read.of(PARENT), "output_tokens") == used(1, 2, 3, 4, 5)["outputTokens"]
    assert read.records["msg_mock_2"].vendor_pico is None
    assert dollars(read.of(PARENT)) == pytest.approx(price(1, 3, 4, 5), abs=1e-12)


def test_an_answer_that_was_written_behind_its_total_is_part_of_it(tmp_path):
    """As an interrupted program writes it: the total, then the answer and that it was interrupted."""
    began = int(epoch(0) * 1000)
    lines = [*later(PARENT, 1, 1), cost_state(PARENT, 1, start=began, totalDuration=3_000)]
    lines += [user(PARENT, "p", 60), cost_state(PARENT, 1, 2, start=began, totalDuration=6_000)]
    lines += [call(PARENT, 2, 61), user(PARENT, "interrupted", 62)]
    lines += [*later(PARENT, 120, 3), cost_state(PARENT, 1, 2, 3, start=began, totalDuration=9_000)]
    transcript(tmp_path, PARENT, *lines)
    read = read_home(ClaudeCode(), tmp_path)
    assert total(read.of(PARENT), "output_tokens") == used(1, 2, 3)["outputTokens"]
    assert dollars(read.of(PARENT)) == pytest.approx(price(1, 2, 3), abs=1e-12)
