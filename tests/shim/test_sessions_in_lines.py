"""Sessions as they stand in lines: a PicoClaw-shaped client and SDK-shaped ones in front of a real shim process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.programs import Shim, running_shim
from tests.fake_upstream import FakeUpstream, whole
from tests.shim.raw import eventually

Message = dict[str, Any]
ANSWER = b'{"id":"c","model":"gpt-5","usage":{"prompt_tokens":1,"completion_tokens":1}}'


def picoclaw_system(chat: str, minute: int, summary: str = "") -> Message:
    text = (
        f"# picoclaw\nYou are a helpful assistant.\n\n---\n\n## Current Time\n2026-11-30 20:{minute:02} (Monday)\n\n"
        f"## Current Session\nChannel: telegram\nChat ID: {chat}\n\n## Current Sender\nCurrent sender: 7"
    )
    return {"role": "system", "content": text + (f"\n\n---\n\nCONTEXT_SUMMARY: …\n\n{summary}" if summary else "")}


class Client:
    """Posts bodies through the shim and gives the new line of each call."""

    def __init__(self, shim: Shim) -> None:
        self.shim = shim

    def post(self, path: str, body: Any, **headers: str) -> dict[str, Any]:
        before = len(self.shim.lines())
        httpx.post(f"{self.shim.url}/picoclaw/openai{path}", json=body, headers=headers, timeout=10).raise_for_status()
        return eventually(lambda: self.shim.lines()[before:])[0]

    def chat(self, *messages: Message) -> str:
        line = self.post("/v1/chat/completions", {"model": "gpt-5", "messages": list(messages)})
        assert line["session_source"] == "conversation"
        return str(line["session"])


@pytest.fixture
def client(shim: Shim, provider: FakeUpstream) -> Client:
    provider.answers(whole(ANSWER))
    return Client(shim)


def test_two_interleaved_picoclaw_chats_stay_two_over_compactions(client: Client) -> None:
    histories: dict[str, list[Message]] = {chat: [{"role": "user", "content": "What is on today?"}] for chat in "AB"}
    sessions: dict[str, set[str]] = {chat: set() for chat in histories}
    summary = ""
    for turn in range(9):
        for chat, history in histories.items():
            sessions[chat].add(client.chat(picoclaw_system(chat, turn, summary and f"{summary} {chat}"), *history))
            history += [
                {"role": "assistant", "content": f"{chat} answer {turn}"},
                {"role": "user", "content": f"question {chat} {turn}"},
            ]
        if turn % 3 == 2:  # PicoClaw keeps the last turns and puts a summary of the rest into the system text
            summary = f"Summary {turn}"
            for history in histories.values():
                del history[:-3]
    assert [len(found) for found in sessions.values()] == [1, 1]
    assert sessions["A"] != sessions["B"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_compacted_chat_stays_one_over_a_restart(tmp_path: Path, upstream: FakeUpstream, workers: str) -> None:
    upstream.answers(whole(ANSWER))
    history = [{"role": "user", "content": f"question {number}"} for number in range(4)]
    found = set()
    for system, kept in ((picoclaw_system("A", 1), history[:3]), (picoclaw_system("A", 2, "A summary"), history[2:])):
        with running_shim(tmp_path, {"OPENAI": upstream.url}, VM_USAGE_WORKERS=workers) as shim:
            found.add(Client(shim).chat(system, *kept))
            shim.stop()
    assert len(found) == 1


def test_a_growing_history_is_one_session(client: Client) -> None:
    history: list[Message] = [{"role": "system", "content": "You help."}, {"role": "user", "content": "grow"}]
    found = set()
    for turn in range(5):
        found.add(client.chat(*history))
        history += [{"role": "assistant", "content": f"a{turn}"}, {"role": "user", "content": f"q{turn}"}]
    assert len(found) == 1


def test_a_chain_of_responses_is_one_session(client: Client, provider: FakeUpstream) -> None:
    found, previous = [], {}
    for number in range(3):
        body = {"id": f"resp_chain{number}", "object": "response", "status": "completed", "model": "gpt-5"}
        provider.answers(whole(json.dumps({**body, "usage": {"input_tokens": 1, "output_tokens": 1}}).encode()))
        line = client.post("/v1/responses", {"model": "gpt-5", "input": f"step {number}", **previous})
        found.append((line["session"], line["session_source"]))
        previous = {"previous_response_id": f"resp_chain{number}"}
    assert len({session for session, _ in found}) == 1
    assert [source for _, source in found] == ["conversation", "body", "body"]


def test_what_is_declared_comes_first(client: Client) -> None:
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}], "prompt_cache_key": "k-1"}
    assert client.post("/v1/chat/completions", body)["session_source"] == "body"
    by_header = client.post("/v1/chat/completions", body, **{"X-Session-Id": "k-1"})
    assert by_header["session_source"] == "header"
    assert by_header["session"] == client.post("/v1/chat/completions", body)["session"]


def test_calls_without_identity_share_the_gap(client: Client) -> None:
    lines = [client.post("/v1/embeddings", {"model": "e", "input": text}) for text in ("one", "two")]
    assert [line["session_source"] for line in lines] == ["gap", "gap"]
    assert lines[0]["session"] == lines[1]["session"]
