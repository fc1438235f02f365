"""Gemini CLI: resumed, rewound and nested chats, and logs that were written anew."""

from pathlib import Path

import pytest

from collector.runtimes.gemini_cli import GeminiCli
from tests.runtimes.transcripts import Read, read_home, total, write

SESSION, AGENT = (f"{letter}aaa0000-0000-4000-8000-000000000001" for letter in "ab")
HEADER = {"sessionId": SESSION, "projectHash": "h", "startTime": "2026-08-20T10:00:00.000Z", "kind": "main"}


def answer(number: int, **tokens) -> dict:
    counts = {"input": 100 * number, "output": number, "cached": 0, "thoughts": 0, "tool": 0, **tokens}
    counts.setdefault("total", counts["input"] + counts["output"] + counts["thoughts"])
    name = f"{number:08d}-1111-4222-8333-444455556666"
    moment = f"2026-08-20T10:{number:02d}:00.000Z"
    return {"id": name, "timestamp": moment, "type": "gemini", "tokens": counts, "model": "gemini-2.5-pro"}


def chats(home: Path) -> Path:
    return home / ".gemini/tmp/project/chats"


def read(home: Path) -> Read:
    return read_home(GeminiCli(), home)


def test_a_sub_agents_chat_names_the_session_whose_folder_it_lies_in(tmp_path):
    write(chats(tmp_path) / "session-2026-08-20T10-00-aaaa0000.jsonl", HEADER, answer(1))
    write(chats(tmp_path) / SESSION / f"{AGENT}.jsonl", {**HEADER, "sessionId": AGENT, "kind": "subagent"}, answer(2))
    found = read(tmp_path)
    assert {name: session.parent_session_id for name, session in found.sessions.items()} == {
        SESSION: None,
        AGENT: SESSION,
    }
    assert [record.parent_session_id for record in found.of(AGENT)] == [SESSION]


def test_calls_that_a_log_lost_when_it_was_written_anew_count_from_the_one_that_was_put_aside(tmp_path):
    log = chats(tmp_path) / "session-2026-08-20T10-00-aaaa0000.jsonl"
    write(log.with_name(log.name + ".unreadable-1786900000000"), HEADER, answer(1), {"$rewindTo": "x"}, answer(2))
    write(log, HEADER, answer(2), answer(3))
    assert total(read(tmp_path).of(SESSION), "input_tokens") == 100 + 200 + 300


def test_a_log_that_was_put_aside_because_its_header_is_gone_is_of_the_session_beside_it(tmp_path):
    log = chats(tmp_path) / "session-2026-08-20T10-00-aaaa0000.jsonl"
    write(log.with_name(log.name + ".unreadable-1786900000000"), {"$set": {"summary": "x"}}, answer(1), answer(2))
    write(log, HEADER, answer(2), answer(3))
    found = read(tmp_path)
    assert total(found.of(SESSION), "input_tokens") == 100 + 200 + 300
    assert set(found.sessions) == {SESSION}


def test_a_document_that_was_resumed_as_a_log_counts_once(tmp_path):
    document = chats(tmp_path) / "session-2026-08-20T10-00-aaaa0000.json"
    write(document, {**HEADER, "lastUpdated": "2026-08-20T10:02:00.000Z", "messages": [answer(1), answer(2)]})
    write(document.with_suffix(".jsonl"), HEADER, answer(1), answer(2), {"$set": {"sessionId": SESSION}}, answer(3))
    assert total(read(tmp_path).of(SESSION), "input_tokens") == 600


@pytest.mark.parametrize(
    ("total_tokens", "fresh"),
    [(100 + 1 + 30 + 50, 100 + 50 - 40), (100 + 1 + 30, 100 - 40), (0, 100 - 40)],
    ids=["apart", "inside", "untold"],
)
def test_tokens_of_tool_prompts_are_input_where_the_total_counts_them_apart(tmp_path, total_tokens, fresh):
    write(chats(tmp_path) / "s.jsonl", HEADER, answer(1, cached=40, thoughts=30, tool=50, total=total_tokens))
    (record,) = read(tmp_path).of(SESSION)
    assert (record.tokens.input_tokens, record.tokens.output_tokens) == (fresh, 1 + 30)
