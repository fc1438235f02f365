"""Stores in the shape that current programs write them, beyond those that are kept as files here."""

import json
import sqlite3
from pathlib import Path

import pytest
import zstandard

from collector.runtimes import SourceError
from collector.runtimes.codex import READER as CODEX
from collector.runtimes.gemini_cli import READER as GEMINI
from collector.runtimes.kimi_code import READER as KIMI_CODE
from collector.runtimes.openclaw import READER as OPENCLAW
from collector.runtimes.pi import READER as PI
from collector.runtimes.qwen_code import READER as QWEN
from tests.runtimes.transcripts import Read, dollars, read_home, total, write

SESSION = "e900efa1-a7eb-4415-83c0-862f37f71bd9"
DDL = """
CREATE TABLE session_windows (session_id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL) STRICT;
CREATE TABLE transcript_events (
  session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT, created_at INTEGER NOT NULL,
  event_zstd BLOB, event_utf8_bytes INTEGER, navigation_json TEXT, PRIMARY KEY (session_id, seq)) STRICT;
CREATE TABLE session_transcript_archives (
  session_id TEXT NOT NULL, generation TEXT NOT NULL, encoding TEXT NOT NULL, archive_blob BLOB NOT NULL,
  PRIMARY KEY (session_id, generation)) STRICT;
"""


def header(session: str = SESSION, **more) -> dict:
    return {"type": "session", "version": 4, "id": session, "timestamp": "2026-11-30T20:21:49.863Z", **more}


def answer(number: int, *, cost: float = 0.003, provider: str = "mock", used: bool = True, **more) -> dict:
    usage = {"input": 1500 + 2 * number, "output": 50 + 5 * number, "cacheRead": 500 + number, "cacheWrite": 0}
    usage = usage if used else dict.fromkeys(usage, 0)
    message = {
        "role": "assistant",
        "provider": provider,
        "model": "gpt-5",
        "usage": {**usage, "reasoningTokens": 7, "cost": {"total": cost if used else 0}},
        "stopReason": "stop",
        "timestamp": 1796070110511 + number,
        "responseId": f"chatcmpl-mock-{number}",
        **more,
    }
    return {"type": "message", "id": f"e-{number}", "timestamp": "2026-11-30T20:21:50.633Z", "message": message}


def database(home: Path) -> sqlite3.Connection:
    path = home / ".openclaw/agents/main/agent/openclaw-agent.sqlite"
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(DDL)
    return connection


def insert(connection: sqlite3.Connection, seq: int, entry: dict, session: str = SESSION, *, packed: bool = False):
    text = json.dumps(entry)
    data = zstandard.compress(text.encode()) if packed else None
    row = (session, seq, None if packed else text, 0, data, len(text))
    with connection:
        connection.execute("INSERT INTO transcript_events VALUES (?,?,?,?,?,?,NULL)", row)


def test_openclaws_database_is_read_in_the_wal_and_out_of_zstd(tmp_path):
    connection = database(tmp_path)
    for seq, entry in enumerate((header(), answer(1))):
        insert(connection, seq, entry)
    insert(connection, 2, answer(2), packed=True)
    read = read_home(OPENCLAW, tmp_path)
    connection.close()
    assert total(read.of(SESSION), "input_tokens") == 1502 + 1504
    assert {record.owner for record in read.of(SESSION)} == {read.sessions[SESSION].started_ts}
    assert read.records["chatcmpl-mock-1:1796070110512"].tokens.reasoning_tokens == 7
    assert dollars(read.of(SESSION)) == 0.006


def test_openclaws_new_rows_are_read_from_the_last_one_on(tmp_path):
    connection = database(tmp_path)
    insert(connection, 0, header())
    insert(connection, 1, answer(1))
    read = read_home(OPENCLAW, tmp_path)
    insert(connection, 2, answer(2))
    (source,) = OPENCLAW.sources(tmp_path, {})
    batches = list(OPENCLAW.read(source, read.states[source.path]))
    connection.close()
    assert [record.response_id for batch in batches for record in batch.records] == ["chatcmpl-mock-2"]
    assert batches[-1].records[0].owner == read.sessions[SESSION].started_ts


def test_rows_that_openclaw_wrote_anew_under_old_numbers_are_read(tmp_path):
    """A transcript of ten rows is rewritten shorter, by a compaction or a rewind, and grows beyond ten in one pass."""
    connection = database(tmp_path)
    for seq in range(10):
        insert(connection, seq, answer(seq) if seq else header())
    read = read_home(OPENCLAW, tmp_path)
    with connection:
        connection.execute("DELETE FROM transcript_events WHERE session_id = ?", (SESSION,))
    for seq in range(15):
        insert(connection, seq, header() if not seq else answer(seq if seq < 4 else 20 + seq))
    (source,) = OPENCLAW.sources(tmp_path, {})
    read.take(OPENCLAW, source)
    connection.close()
    assert {record.response_id for record in read.of(SESSION)} == {
        f"chatcmpl-mock-{number}" for number in (*range(1, 10), *range(24, 35))
    }


def test_openclaws_archives_keep_what_a_deleted_session_spent(tmp_path):
    connection = database(tmp_path)
    text = "".join(json.dumps(entry) + "\n" for entry in (header(), answer(1))).encode()
    for session, encoding, blob in (("one", "identity", text), ("two", "zstd", zstandard.compress(text))):
        with connection:
            row = (session, "g", encoding, blob)
            connection.execute("INSERT INTO session_transcript_archives VALUES (?,?,?,?)", row)
    read = read_home(OPENCLAW, tmp_path)
    connection.close()
    assert total(read.records.values(), "output_tokens") == 55


def test_what_is_no_session_id_in_openclaws_database_does_not_become_one(tmp_path):
    """A table that is not strict holds anything: what a user said where an id should be, numbers, no text at all."""
    path = tmp_path / ".openclaw/agents/main/agent/openclaw-agent.sqlite"
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path)
    odd = ["said by a user", b"\xff", 5, None, "n" * 300, SESSION]
    with connection:
        connection.execute("CREATE TABLE transcript_events (session_id, seq, event_json, event_zstd)")
        connection.execute("CREATE TABLE session_transcript_archives (session_id, encoding, archive_blob)")
        for seq, session in enumerate(odd):
            row = (session, seq, json.dumps(answer(seq)))
            connection.execute("INSERT INTO transcript_events VALUES (?,?,?,NULL)", row)
            for encoding, blob in (("identity", b"{}"), ("zstd", "text"), ("zstd", 7)):
                connection.execute("INSERT INTO session_transcript_archives VALUES (?,?,?)", (session, encoding, blob))
    connection.close()
    read = read_home(OPENCLAW, tmp_path)
    assert {record.session_id for record in read.records.values()} == {SESSION}
    assert set(read.sessions) == {SESSION}
    assert read.skipped["bad_session"] == 5


def test_a_session_in_the_old_files_and_in_the_database_counts_once(tmp_path):
    connection = database(tmp_path)
    insert(connection, 0, header())
    insert(connection, 1, answer(1))
    write(tmp_path / ".openclaw/agents/main/sessions" / f"{SESSION}.jsonl", header(), answer(1))
    assert len(read_home(OPENCLAW, tmp_path).records) == 1
    connection.close()


def summary(kind: str, number: int, *, used: bool = True) -> dict:
    entry = {"type": kind, "id": f"s-{number}", "parentId": None, "timestamp": "2026-11-30T20:30:00.000Z"}
    return {**entry, "usage": answer(number)["message"]["usage"]} if used else entry


def test_the_calls_that_wrote_pis_summaries_count_once_for_the_model_that_was_used_last(tmp_path):
    sessions = tmp_path / ".pi/agent/sessions/--work--"
    change = {"type": "model_change", "id": "c-1", "timestamp": "2026-11-30T20:31:00.000Z", "provider": "far"}
    entries = [answer(1), summary("compaction", 2), change | {"modelId": "other"}, summary("branch_summary", 3)]
    write(sessions / f"t_{SESSION}.jsonl", header(), *entries, summary("compaction", 4, used=False))
    fork = "01a22d56-0000-7000-8000-000000000001"
    write(sessions / f"t_{fork}.jsonl", header(fork, timestamp="2026-12-01T00:00:00Z"), *entries)
    for backwards in (False, True):
        records = read_home(PI, tmp_path, backwards=backwards).records.values()
        assert {record.session_id for record in records} == {SESSION}
        assert sorted((r.tokens.input_tokens, r.provider, r.model) for r in records) == [
            (1502, "mock", "gpt-5"),
            (1504, "mock", "gpt-5"),
            (1506, "far", "other"),
        ]
        assert dollars(records) == pytest.approx(0.009)


@pytest.mark.parametrize("more", [0, 300])
def test_a_summary_in_openclaws_database_has_its_model_wherever_the_pass_before_ended(tmp_path, more):
    connection = database(tmp_path)
    rows = [header(), answer(1), *[{"type": "custom", "id": f"x-{n}"} for n in range(more)]]
    for seq, entry in enumerate(rows):
        insert(connection, seq, entry)
    read = read_home(OPENCLAW, tmp_path)
    insert(connection, len(rows), summary("compaction", 2))
    (source,) = OPENCLAW.sources(tmp_path, {})
    read.take(OPENCLAW, source)
    connection.close()
    whole = read_home(OPENCLAW, tmp_path)
    assert read.facts() == whole.facts()
    assert {record.model for record in whole.of(SESSION)} == {"gpt-5"}


def test_an_answer_without_usage_is_missing_not_free(tmp_path):
    """A custom provider is not asked for usage by 2026.3.31, which then stores zeros."""
    sessions = tmp_path / ".openclaw/agents/main/sessions"
    write(sessions / f"{SESSION}.jsonl", header(), answer(1, used=False), answer(2, provider="anthropic"))
    first, second = read_home(OPENCLAW, tmp_path).of(SESSION)
    assert (first.usage, first.vendor_pico, first.tokens.total) == ("missing", None, 0)
    assert (second.usage, second.vendor_pico) == ("reported", 3_000_000_000)


def test_zero_dollars_are_believed_of_a_local_provider_only(tmp_path):
    config = {"models": {"providers": {"box": {"baseUrl": "http://127.0.0.1:8000/v1"}, "far": {"baseUrl": "http://h"}}}}
    (tmp_path / ".openclaw").mkdir()
    (tmp_path / ".openclaw/openclaw.json").write_text(json.dumps(config))
    entries = [
        answer(number, provider=provider, model="qwen3:8b", cost=0)
        for number, provider in enumerate(("box", "far", "ollama"), 1)
    ]
    write(tmp_path / ".openclaw/agents/main/sessions/s.jsonl", header(), *entries)
    records = read_home(OPENCLAW, tmp_path).of(SESSION)
    assert [(record.vendor_pico, record.local) for record in records] == [(0, True), (None, False), (0, True)]


def test_qwens_side_calls_come_from_the_usage_log_and_its_main_calls_from_the_chat(tmp_path):
    chat, side = "2908b72b-1401-42e2-bd3e-2de83a436e84", "ee17317a-8ef7-4739-a44e-368ae238dff4"
    counts = {"promptTokenCount": 2021, "candidatesTokenCount": 85, "thoughtsTokenCount": 14, "totalTokenCount": 2106}
    row = {"uuid": chat, "sessionId": SESSION, "timestamp": "2026-11-30T20:21:25.172Z", "type": "assistant"}
    usage = {**counts, "cachedContentTokenCount": 507}
    write(tmp_path / f".qwen/projects/-w/chats/{SESSION}.jsonl", {**row, "model": "q", "usageMetadata": usage})
    log = {"sessionId": SESSION, "timestamp": "2026-11-30T20:21:25.290Z", "model": "q", "inputTokens": 2024}
    log |= {"outputTokens": 90, "cachedTokens": 508, "thoughtsTokens": 15, "totalTokens": 2114}
    write(
        tmp_path / ".qwen/usage/token-usage-2026-11.jsonl",
        {**log, "id": "9344dacc-a381-47d3-9e3d-4fdd59c8dd5c", "source": "main"},
        {**log, "id": side, "source": "managed-auto-memory-extractor"},
    )
    read = read_home(QWEN, tmp_path)
    assert set(read.records) == {chat, side}
    assert total(read.of(SESSION), "input_tokens") == (2021 - 507) + (2024 - 508)
    assert total(read.of(SESSION), "output_tokens") == 85 + 90


@pytest.mark.parametrize(
    ("counts", "output"),
    [({"totalTokenCount": 1100}, 100), ({"totalTokenCount": 1140}, 140), ({}, 100)],
    ids=["inside", "beside", "untold"],
)
def test_qwens_thoughts_are_inside_the_candidates_or_beside_them_as_the_total_tells(tmp_path, counts, output):
    usage = {"promptTokenCount": 1000, "candidatesTokenCount": 100, "thoughtsTokenCount": 40, **counts}
    row = {"uuid": "u", "sessionId": "s", "timestamp": "2026-11-30T20:21:25Z", "type": "assistant"}
    write(tmp_path / ".qwen/projects/-w/chats/s.jsonl", {**row, "usageMetadata": usage})
    (record,) = read_home(QWEN, tmp_path).records.values()
    assert (record.tokens.output_tokens, record.tokens.reasoning_tokens) == (output, 40)


def token_count(second: int, total_input: int, last_input: int) -> dict:
    usage = {"cached_input_tokens": 0, "output_tokens": 10, "reasoning_output_tokens": 0}
    info = {
        "total_token_usage": {**usage, "input_tokens": total_input},
        "last_token_usage": {**usage, "input_tokens": last_input},
    }
    entry = {"timestamp": f"2026-08-21T08:00:{second:02d}Z", "type": "event_msg"}
    return {**entry, "payload": {"type": "token_count", "info": info}}


def rollout(home: Path, session: str, *entries: dict, **meta) -> Path:
    payload = {"id": session, "model_provider": "openai", **meta}
    first = {"timestamp": "2026-08-21T08:00:00Z", "type": "session_meta", "payload": payload}
    context = {"timestamp": "2026-08-21T08:00:00Z", "type": "turn_context"}
    context["payload"] = {"model": "gpt-5", "turn_id": f"{session}-turn"}
    return write(home / f".codex/sessions/2026/08/21/rollout-x-{session}.jsonl", first, context, *entries)


def test_codexs_forks_that_copy_nothing_go_on_from_the_parents_total(tmp_path):
    fork = "ffff0000-0000-7000-8000-000000000002"
    rollout(tmp_path, fork, token_count(5, 9000, 500), token_count(9, 9600, 600), forked_from_id="parent")
    assert total(read_home(CODEX, tmp_path).of(fork), "input_tokens") == 500 + 600


def test_codexs_total_that_drops_is_a_new_beginning(tmp_path):
    session = "ffff0000-0000-7000-8000-000000000003"
    rollout(tmp_path, session, token_count(5, 1000, 1000), token_count(9, 300, 300))
    assert total(read_home(CODEX, tmp_path).of(session), "input_tokens") == 1300


def test_codexs_local_provider_is_known_by_its_id(tmp_path):
    session = "ffff0000-0000-7000-8000-000000000004"
    rollout(tmp_path, session, token_count(5, 1000, 1000), model_provider="ollama")
    rollout(tmp_path, session[:-1] + "5", token_count(5, 1001, 1001))
    assert [record.local for record in read_home(CODEX, tmp_path).records.values()] == [True, False]


def test_geminis_chat_may_not_be_a_document_at_all(tmp_path):
    path = tmp_path / ".gemini/tmp/p/chats/session-1.json"
    path.parent.mkdir(parents=True)
    path.write_text("[]")
    with pytest.raises(SourceError):
        read_home(GEMINI, tmp_path)


def test_geminis_tool_prompt_tokens_are_input_where_the_total_counts_them(tmp_path):
    tokens = {"input": 1000, "output": 100, "cached": 0, "thoughts": 40, "tool": 30, "total": 1170}
    entry = {"id": "m", "timestamp": "2026-08-22T09:00:03Z", "type": "gemini", "model": "g", "tokens": tokens}
    write(tmp_path / ".gemini/tmp/p/chats/session-1.jsonl", {"sessionId": "s"}, entry)
    (record,) = read_home(GEMINI, tmp_path).records.values()
    assert (record.tokens.input_tokens, record.tokens.output_tokens) == (1030, 140)


def test_kimi_codes_fork_leaves_the_copied_calls_to_the_session_that_was_made_first(tmp_path):
    usage = {"inputOther": 100, "output": 10, "inputCacheRead": 0, "inputCacheCreation": 0}
    copied = {"type": "usage.record", "model": "a", "usage": usage, "usageScope": "turn", "time": 1786971604000}
    root = tmp_path / ".kimi-code/sessions/wd_demo_0123456789ab"
    for session, made, own in (("session_b", "13:00", []), ("session_a", "14:00", [{**copied, "time": 1786975300000}])):
        write(root / session / "agents/main/wire.jsonl", copied, *own)
        state = {"createdAt": f"2026-08-17T{made}:00.000Z"}
        state |= {"forkedFrom": "session_b"} if own else {}
        (root / session / "state.json").write_text(json.dumps(state))
    read = read_home(KIMI_CODE, tmp_path)
    assert [len(read.of(session)) for session in ("session_a", "session_b")] == [1, 1]
    assert read.sessions["session_a"].parent_session_id == "session_b"


def test_pis_charge_that_the_provider_stated_is_billed(tmp_path):
    entry = answer(1)
    entry["message"]["usage"]["cost"] |= {"totalFromProvider": True}
    write(tmp_path / ".pi/agent/sessions/--w--/2026_x.jsonl", header(), entry, answer(2))
    read: Read = read_home(PI, tmp_path)
    assert [record.vendor_basis for record in read.of(SESSION)] == ["billed", "runtime_price"]
