"""The official SDKs through a real shim process: their results are equal with and without it, and the line is right."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.programs import Shim, running_shim
from tests.e2e.provider import Running, provider

CHAT_TOKENS = {
    "input_tokens": 176,
    "cache_read_tokens": 1024,
    "cache_write_tokens": None,
    "output_tokens": 150,
    "reasoning_tokens": 64,
}
MESSAGE_TOKENS = {
    "input_tokens": 21,
    "cache_read_tokens": 4096,
    "cache_write_tokens": 300,
    "cache_write_1h_tokens": 100,
    "output_tokens": 57,
    "reasoning_tokens": None,
}
Call = Callable[[str, str], Any]


def ask(wish: str) -> list[Any]:
    return [{"role": "user", "content": wish}]


def dumped(value: Any) -> Any:
    return value.model_dump(mode="json")


def chat_plain(base: str, wish: str) -> Any:
    with openai.OpenAI(base_url=f"{base}/v1", api_key="sk-test") as client:
        return dumped(client.chat.completions.create(model="gpt-5-mini", messages=ask(wish)))


def chat_stream(base: str, wish: str) -> Any:
    with openai.OpenAI(base_url=f"{base}/v1", api_key="sk-test") as client:
        return [dumped(c) for c in client.chat.completions.create(model="gpt-5-mini", messages=ask(wish), stream=True)]


def chat_stream_with_usage(base: str, wish: str) -> Any:
    with openai.OpenAI(base_url=f"{base}/v1", api_key="sk-test") as client:
        chunks = client.chat.completions.create(
            model="gpt-5-mini", messages=ask(wish), stream=True, stream_options={"include_usage": True}
        )
        return [dumped(chunk) for chunk in chunks]


def chat_async(base: str, wish: str) -> Any:
    async def call() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="sk-test") as client:
            stream = await client.chat.completions.create(model="gpt-5-mini", messages=ask(wish), stream=True)
            return [dumped(chunk) async for chunk in stream]

    return asyncio.run(call())


def message_plain(base: str, wish: str) -> Any:
    with anthropic.Anthropic(base_url=base, api_key="sk-test") as client:
        return dumped(client.messages.create(model="claude-sonnet-4-6", max_tokens=100, messages=ask(wish)))


def message_stream(base: str, wish: str) -> Any:
    with (
        anthropic.Anthropic(base_url=base, api_key="sk-test") as client,
        client.messages.stream(model="claude-sonnet-4-6", max_tokens=100, messages=ask(wish)) as stream,
    ):
        return [dumped(event) for event in stream], dumped(stream.get_final_message())


def message_async(base: str, wish: str) -> Any:
    async def call() -> Any:
        async with anthropic.AsyncAnthropic(base_url=base, api_key="sk-test") as client:
            return dumped(await client.messages.create(model="claude-sonnet-4-6", max_tokens=100, messages=ask(wish)))

    return asyncio.run(call())


CHATS = (chat_plain, chat_stream, chat_stream_with_usage, chat_async)
MESSAGES = (message_plain, message_stream, message_async)


class Pair:
    """One provider asked directly and one through a shim."""

    def __init__(self, direct: Running, behind: Running, shim: Shim) -> None:
        self.direct = direct
        self.behind = behind
        self.shim = shim

    def __call__(self, call: Call, wish: str) -> tuple[Any, Any, list[dict[str, Any]]]:
        """Make one call both ways; gives both results and the lines written for it."""
        name = "openai" if call in CHATS else "anthropic"
        self.direct.tries.clear()
        self.behind.tries.clear()
        before = len(self.shim.lines())
        without = outcome(call, self.direct.url, wish)
        with_shim = outcome(call, f"{self.shim.url}/picoclaw/{name}", wish)
        return without, with_shim, self.shim.wait_for_lines(before + self.behind.tries.total())[before:]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with provider() as direct, provider() as behind:
        upstreams = {"OPENAI": behind.url, "ANTHROPIC": behind.url}
        with running_shim(tmp_path_factory.mktemp("shim"), upstreams) as shim:
            yield Pair(direct, behind, shim)


def outcome(call: Call, base: str, wish: str) -> Any:
    """What the caller gets: the result, or the class, status and body of the SDK's error."""
    try:
        return call(base, wish)
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        return type(error).__name__, error.status_code, error.body


def tokens(line: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in expected}


@pytest.mark.parametrize("wish", ["say hello", "call a tool"])
@pytest.mark.parametrize("call", CHATS)
def test_openai_results_are_equal_and_the_line_is_right(both: Pair, call: Call, wish: str) -> None:
    without, with_shim, lines = both(call, wish)
    assert with_shim == without
    assert [tokens(line, CHAT_TOKENS) for line in lines] == [CHAT_TOKENS]
    assert (lines[0]["model"], lines[0]["wire"], lines[0]["usage"]) == ("gpt-5-mini", "openai-chat", "reported")


@pytest.mark.parametrize("wish", ["say hello", "call a tool"])
@pytest.mark.parametrize("call", MESSAGES)
def test_anthropic_results_are_equal_and_the_line_is_right(both: Pair, call: Call, wish: str) -> None:
    without, with_shim, lines = both(call, wish)
    assert with_shim == without
    assert [tokens(line, MESSAGE_TOKENS) for line in lines] == [MESSAGE_TOKENS]
    assert (lines[0]["model"], lines[0]["wire"]) == ("claude-sonnet-4-6", "anthropic-messages")


@pytest.mark.parametrize("call", [chat_plain, chat_stream, message_plain])
def test_a_retry_after_429_is_two_calls_of_which_one_used_tokens(both: Pair, call: Call) -> None:
    without, with_shim, lines = both(call, "be limited")
    assert with_shim == without
    assert [(line["http_status"], line["outcome"], line["usage"]) for line in lines] == [
        (429, "rejected", "missing"),
        (200, "completed", "reported"),
    ]


@pytest.mark.parametrize(("wish", "status", "tries"), [("break", 500, 3), ("refuse", 400, 1)])
@pytest.mark.parametrize("call", [chat_plain, chat_stream, message_plain])
def test_errors_reach_the_sdk_as_the_provider_sent_them(
    both: Pair, call: Call, wish: str, status: int, tries: int
) -> None:
    without, with_shim, lines = both(call, wish)
    assert with_shim == without
    assert with_shim[1] == status
    assert [line["outcome"] for line in lines] == ["rejected"] * tries
    assert "sk-test" not in json.dumps(lines)
