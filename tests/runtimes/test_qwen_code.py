"""Qwen Code: branches of a session, archived chats and the ledgers beside them, calls that only telemetry tells of."""

import json
from pathlib import Path

import pytest

from collector.runtimes.qwen_code import QwenCode
from tests.runtimes.transcripts import Read, read_home, write

FIRST, SECOND, THIRD = (f"{letter}bcd0000-0000-4000-8000-000000000001" for letter in "bac")


def line(session: str, number: int, kind: str = "assistant", **more) -> dict:
    entry = {"uuid": f"0000abcd-0000-4000-8000-{number:012d}", "sessionId": session, "type": kind}
    entry |= {"timestamp": f"2026-08-23T08:{number:02d}:00.000Z", "model": "qwen3-coder-plus"}
    if kind == "assistant":
        usage = {"promptTokenCount": 100, "candidatesTokenCount": number, "totalTokenCount": 100 + number}
        entry["usageMetadata"] = usage
    return entry | more


def session(name: str, *numbers: int) -> list[dict]:
    """A prompt and its answer for every number."""
    return [entry for n in numbers for entry in (line(name, n, "user"), line(name, n + 1))]


def branch(entries: list[dict], source: str, name: str) -> list[dict]:
    """The copies, as ``forkSession`` writes them: a branch of a branch names the nearest."""
    return [
        entry | {"sessionId": name, "forkedFrom": {"sessionId": source, "messageUuid": entry["uuid"]}}
        for entry in entries
    ]


def chat(home: Path, name: str, entries: list[dict], folder: str = "chats") -> Path:
    return write(home / ".qwen/projects/-work" / folder / f"{name}.jsonl", *entries)


def by_session(read: Read) -> dict[str, list[int]]:
    names = {record.session_id for record in read.records.values()}
    return {name: sorted(record.tokens.output_tokens for record in read.of(name)) for name in names}


@pytest.mark.parametrize("backwards", [False, True])
def test_a_branch_pays_for_its_own_calls_and_the_session_it_copied_for_the_others(tmp_path, backwards):
    first = session(FIRST, 0, 10)
    second = [*branch(first, FIRST, SECOND), *session(SECOND, 20)]
    third = [*branch(second, SECOND, THIRD), *session(THIRD, 30)]
    for name, entries in ((FIRST, first), (SECOND, second), (THIRD, third)):
        chat(tmp_path, name, entries)
    read = read_home(QwenCode(), tmp_path, backwards=backwards)
    assert by_session(read) == {FIRST: [1, 11], SECOND: [21], THIRD: [31]}
    assert read.sessions[SECOND].started_ts - read.sessions[FIRST].started_ts == 20 * 60
    assert (read.sessions[SECOND].parent_session_id, read.sessions[THIRD].parent_session_id) == (FIRST, SECOND)


def test_calls_of_a_session_that_was_deleted_stay_its_own_in_a_branch(tmp_path):
    chat(tmp_path, SECOND, [*branch(session(FIRST, 0), FIRST, SECOND), *session(SECOND, 20)])
    assert by_session(read_home(QwenCode(), tmp_path)) == {FIRST: [1], SECOND: [21]}


def test_an_archived_chat_is_read_and_archiving_changes_nothing(tmp_path):
    path = chat(tmp_path, FIRST, session(FIRST, 0, 10))
    reader = QwenCode()
    read = read_home(reader, tmp_path)
    want = read.facts()
    chat(tmp_path, FIRST, session(FIRST, 0, 10), "chats/archive")
    path.unlink()
    for source in reader.sources(tmp_path, {}):
        read.take(reader, source)
    assert read.facts() == want == read_home(QwenCode(), tmp_path).facts()


def test_a_ledger_beside_a_chat_is_no_session(tmp_path):
    chat(tmp_path, FIRST, session(FIRST, 0))
    chat(
        tmp_path, f"{FIRST}.ledger", [{"promptId": "x", "timestamp": "2026-08-23T09:00:00.000Z", "state": "completed"}]
    )
    assert set(read_home(QwenCode(), tmp_path).sessions) == {FIRST}


@pytest.mark.parametrize("source", ["code-reviewer", "代码审查", "my helper", ""])
def test_a_sub_agents_call_counts_whatever_its_user_called_it(tmp_path, source):
    call = {"id": "ee17317a-8ef7-4739-a44e-368ae238dff4", "sessionId": FIRST, "timestamp": "2026-08-23T08:00:00Z"}
    call |= {"model": "q", "inputTokens": 100, "outputTokens": 10, "cachedTokens": 60, "totalTokens": 110}
    chat(tmp_path, FIRST, [])
    write(tmp_path / ".qwen/usage/token-usage-2026-08.jsonl", call | {"source": source}, call | {"source": "main"})
    (record,) = read_home(QwenCode(), tmp_path).of(FIRST)
    assert (record.tokens.input_tokens, record.tokens.cache_read_tokens) == (40, 60)


def test_calls_of_a_session_whose_chat_nobody_recorded_count_from_the_usage_log(tmp_path):
    call = {"id": "ee17317a-8ef7-4739-a44e-368ae238dff4", "timestamp": "2026-08-23T08:00:00Z", "source": "main"}
    call |= {"model": "q", "inputTokens": 100, "outputTokens": 10, "cachedTokens": 60, "totalTokens": 110}
    log = [call | {"sessionId": FIRST}, call | {"sessionId": SECOND, "id": call["id"][::-1]}]
    recorded = chat(tmp_path, FIRST, session(FIRST, 0))
    write(tmp_path / ".qwen/usage/token-usage-2026-08.jsonl", *log)
    read = read_home(QwenCode(), tmp_path)
    chats = len(read.of(FIRST))
    (record,) = read.of(SECOND)
    assert (record.tokens.input_tokens, read.skipped["in_chat"]) == (40, 1)
    # What was in a chat stays there when that is deleted, though the log is read from its start.
    recorded.unlink()
    write(tmp_path / ".qwen/usage/token-usage-2026-08.jsonl", log[1], log[0])
    for source in QwenCode().sources(tmp_path, {}):
        read.take(QwenCode(), source)
    assert (len(read.of(FIRST)), len(read.of(SECOND))) == (chats, 1)


def test_zeros_in_the_usage_log_of_a_call_whose_provider_sent_no_usage_are_not_measured(tmp_path):
    names = ("inputTokens", "outputTokens", "cachedTokens", "thoughtsTokens", "totalTokens")
    call = {"id": "ee17317a-8ef7-4739-a44e-368ae238dff4", "sessionId": FIRST, "timestamp": "2026-08-23T08:00:00Z"}
    call |= {"source": "helper", "model": "q", **dict.fromkeys(names, 0)}
    write(tmp_path / ".qwen/usage/token-usage-2026-08.jsonl", call, call | {"id": call["id"][::-1], "outputTokens": 1})
    assert [record.usage for record in read_home(QwenCode(), tmp_path).of(FIRST)] == ["missing", "reported"]


def response(name: str, number: int, output: int, **more) -> dict:
    """What telemetry says of a response, under an id that no other line has."""
    event = {"event.name": "qwen-code.api_response", "model": "qwen3-coder-plus", "response_id": f"chatcmpl-{number}"}
    event |= {"input_token_count": 100, "output_token_count": output, "total_token_count": 100 + output}
    identity = f"1111abcd-0000-4000-8000-{number:012d}"
    return line(name, number, "system", uuid=identity, subtype="ui_telemetry", systemPayload={"uiEvent": event | more})


def summed(name: str, number: int) -> dict:
    return line(name, number, "system", subtype="chat_compression", systemPayload={"info": {}})


@pytest.mark.parametrize("late", [False, True], ids=["before its line", "after its line"])
def test_a_summary_is_a_call_though_telemetry_alone_tells_of_it(tmp_path, late):
    first, second = [response(FIRST, 1, 2), line(FIRST, 2)], [response(FIRST, 5, 6), line(FIRST, 6)]
    entries = [*first[:: -1 if late else 1], response(FIRST, 3, 33), summed(FIRST, 4), *second[:: -1 if late else 1]]
    chat(tmp_path, FIRST, entries)
    whole = read_home(QwenCode(), tmp_path)
    assert by_session(whole) == {FIRST: [2, 6, 33]}
    chat(tmp_path, SECOND, [*branch(entries, FIRST, SECOND), *session(SECOND, 20)])
    assert by_session(read_home(QwenCode(), tmp_path, backwards=True)) == {FIRST: [2, 6, 33], SECOND: [21]}


def test_calls_that_failed_and_side_calls_count_once_a_later_one_is_repeated(tmp_path):
    path = chat(tmp_path, FIRST, [response(FIRST, 1, 40), response(FIRST, 2, 50), response(FIRST, 3, 4)])
    reader, read = QwenCode(), Read()
    for entry in (None, line(FIRST, 4), response(FIRST, 5, 60), line(FIRST, 7)):
        if entry is not None:
            path.write_text(path.read_text() + json.dumps(entry) + "\n")
        for source in reader.sources(tmp_path, {}):
            read.take(reader, source)
    # The last line repeats nothing that telemetry told before it, so of that nothing is known.
    assert by_session(read) == {FIRST: [4, 7, 40, 50]}
    assert read.facts() == read_home(QwenCode(), tmp_path).facts()


def test_a_response_that_is_told_twice_is_one(tmp_path):
    told = response(FIRST, 1, 2)
    again = told | {"uuid": "2222abcd-0000-4000-8000-000000000001"}
    chat(tmp_path, FIRST, [told, again, line(FIRST, 2), again, response(FIRST, 3, 4), line(FIRST, 4)])
    assert by_session(read_home(QwenCode(), tmp_path)) == {FIRST: [2, 4]}


def test_a_chat_that_is_written_anew_while_a_response_waits_for_its_line_counts_it_once(tmp_path):
    entries = [response(FIRST, 1, 2), line(FIRST, 2), response(FIRST, 3, 4)]
    path = chat(tmp_path, FIRST, entries)
    reader, read = QwenCode(), Read()
    for written in (entries, [*entries, line(FIRST, 4)]):
        path.unlink()
        chat(tmp_path, FIRST, written)
        for source in reader.sources(tmp_path, {}):
            read.take(reader, source)
    assert by_session(read) == {FIRST: [2, 4]}


@pytest.mark.parametrize(
    ("began", "counted"), [(None, [2, 30]), (0, [2]), (5, [2, 30])], ids=["none", "before", "later"]
)
def test_a_sub_agents_call_counts_from_the_chat_where_the_usage_log_cannot_have_it(tmp_path, began, counted):
    helper = response(FIRST, 3, 30, subagent_name="helper")
    chat(tmp_path, FIRST, [response(FIRST, 1, 2), line(FIRST, 2), helper])
    if began is not None:
        log = {"id": "x", "sessionId": FIRST, "timestamp": f"2026-08-23T08:{began:02d}:00Z", "source": "main"}
        write(tmp_path / ".qwen/usage/token-usage-2026-08.jsonl", log)
    assert by_session(read_home(QwenCode(), tmp_path)) == {FIRST: counted}
