"""Messages are skipped by marks in their bytes; parsing every one of them gives the same reading.

Streams are made of what providers send and of what tries to fool a search: quoted keys and markers in text, keys
written with escapes, every white space JSON allows, several data lines, keep-alives, placeholders and late reports.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.wires import Exchange, Reading
from shim.wires.table import open_reader
from tests.wires.plain import read_plainly

BAIT = (
    '"usage":{"prompt_tokens":999}',
    "[DONE]",
    '"error":{}',
    "\\",
    '\\"usage\\"',
    "usage",
    "data: x\n\n",
    '"done":true',
)
texts = st.one_of(st.text(max_size=12), st.sampled_from(BAIT))
counts = st.one_of(st.integers(0, 50), st.just(0), st.sampled_from(["7", "x", None, -1, 2.0, True, 1.5]))


def fixed(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(parts)


def usage_of(*names: str) -> st.SearchStrategy[Any]:
    """A usage object as it should be, as a placeholder, or malformed."""
    report = st.fixed_dictionaries({}, optional=dict.fromkeys(names, counts))
    return st.one_of(report, report, st.sampled_from([None, {}, [], "x", 3]))


def documents(wire: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(*VOCABULARY[wire])


def chat(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    named = {"id": st.just("chatcmpl-1"), "model": st.sampled_from(["m-1", "m-1", ""])}
    return st.fixed_dictionaries(named | parts)


def choice(finish: Any, **delta: Any) -> st.SearchStrategy[Any]:
    return st.builds(lambda text: [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], texts)


CHAT_USAGE = usage_of("prompt_tokens", "completion_tokens", "total_tokens")
GEMINI_USAGE = usage_of("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount")
CLAUDE_USAGE = usage_of("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
PLAIN_USAGE = usage_of("input_tokens", "output_tokens", "total_tokens")
DASHSCOPE_OUTPUT = fixed(text=texts, finish_reason=st.sampled_from(["null", "stop", None]))
ERROR = st.just({"error": {"message": "x"}})


def gemini(finish: str | None) -> st.SearchStrategy[dict[str, Any]]:
    candidate = st.builds(
        lambda text: [{"content": {"parts": [{"text": text}]}} | ({"finishReason": finish} if finish else {})], texts
    )
    base = {"modelVersion": st.just("g-1"), "responseId": st.just("r1"), "candidates": candidate}
    return st.fixed_dictionaries(base, optional={"usageMetadata": GEMINI_USAGE})


def typed(kind: str, **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind)} | parts)


def response(usage: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    base = {"id": st.just("resp_1"), "model": st.just("m-1"), "error": st.none(), "instructions": texts, "usage": usage}
    return st.fixed_dictionaries(base)


VOCABULARY: dict[str, tuple[st.SearchStrategy[dict[str, Any]], ...]] = {
    "openai-chat": (
        chat(choices=choice(None)),
        chat(choices=choice(None), usage=st.none()),
        chat(choices=choice(None), usage=CHAT_USAGE),
        chat(choices=choice("stop"), x_groq=st.fixed_dictionaries({"usage": CHAT_USAGE})),
        chat(choices=choice("stop"), usage=CHAT_USAGE, timings=st.just({"cache_n": 3})),
        chat(choices=choice(None), base_resp=st.sampled_from([{"status_code": 0}, {"status_code": 10}])),
        ERROR,
    ),
    "gemini": (gemini(None), gemini(None), gemini("STOP"), ERROR),
    "anthropic-messages": (
        typed("message_start", message=fixed(id=st.just("msg_1"), model=st.just("c-1"), usage=CLAUDE_USAGE)),
        typed("content_block_delta", delta=fixed(text=texts, usage=CLAUDE_USAGE)),
        typed("message_delta", usage=CLAUDE_USAGE),
        typed("ping"),
        typed("message_stop"),
        typed("error", error=st.just({"type": "overloaded_error"})),
    ),
    "openai-responses": (
        typed("response.created", response=response(st.none())),
        typed("response.output_text.delta", delta=texts, usage=PLAIN_USAGE),
        typed("response.in_progress", response=response(PLAIN_USAGE)),
        typed("response.completed", response=response(PLAIN_USAGE)),
        typed("response.failed", response=response(PLAIN_USAGE)),
        typed("error", message=texts),
    ),
    "dashscope-generation": (
        fixed(output=DASHSCOPE_OUTPUT, request_id=st.just("r1")),
        fixed(output=DASHSCOPE_OUTPUT, request_id=st.just("r1"), usage=PLAIN_USAGE),
        st.just({"code": "InternalError", "message": "x"}),
    ),
    "ollama": (
        fixed(model=st.just("l-1"), done=st.booleans(), response=texts, eval_count=counts, prompt_eval_count=counts),
        ERROR,
    ),
}  # fmt: skip

spacings = st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : "), (",\t", ":\t")])


def written(document: dict[str, Any], spacing: tuple[str, str], ascii_only: bool, hidden: bool) -> str:
    text = json.dumps(document, separators=spacing, ensure_ascii=ascii_only)
    return text.replace('"usage', '"\\u0075sage') if hidden else text


messages = {
    wire: st.builds(written, documents(wire), spacings, st.booleans(), st.sampled_from([False, False, False, True]))
    for wire in VOCABULARY
}
ends = st.sampled_from(["\n", "\n", "\r\n", "\r"])


def event(text: str, broken: bool) -> str:
    """An event; ``broken``: the document spread over data lines, as the grammar allows at any white space."""
    return "data: " + (re.sub(r"(?<=[{,]) ", "\ndata: ", text) if broken else text)


@st.composite
def streams(draw: st.DrawFn, wire: str) -> bytes:
    """A stream of one wire, its line ends as drawn."""
    parts = draw(st.lists(messages[wire], max_size=14))
    if wire == "ollama":
        return ("\n".join(parts) + draw(st.sampled_from(["", "\n"]))).encode("utf-8", "surrogatepass")
    noise = st.sampled_from([": keep-alive", "data: ping", "data:", "event: x", "data: [DONE]", "data: [1]"])
    lines = [draw(st.one_of(st.just(event(part, draw(st.booleans()))), noise)) for part in parts]
    tail = draw(st.sampled_from(["", "\n", "\n\n"]))
    text = "\n\n".join(lines) + tail
    return text.replace("\n", draw(ends)).encode("utf-8", "surrogatepass")


def read_fast(wire: str, body: bytes, cuts: list[int]) -> Reading:
    content_type = "application/x-ndjson" if wire == "ollama" else "text/event-stream"
    reader = open_reader(wire, Exchange(200, content_type))
    edges = sorted({0, *(cut % (len(body) + 1) for cut in cuts), len(body)})
    for start, end in itertools.pairwise(edges):
        reader.feed(body[start:end])
    return reader.finish(complete=True)


@pytest.mark.parametrize("wire", VOCABULARY)
def test_skipping_messages_says_what_parsing_all_of_them_says(wire: str) -> None:
    @settings(max_examples=150, deadline=None)
    @given(streams(wire), st.lists(st.integers(0, 10_000), max_size=6))
    def check(body: bytes, cuts: list[int]) -> None:
        plainly = read_plainly(wire, body)
        assert read_fast(wire, body, []) == plainly
        assert read_fast(wire, body, cuts) == plainly

    check()


@pytest.mark.parametrize("wire", VOCABULARY)
def test_byte_by_byte_says_the_same(wire: str) -> None:
    @settings(max_examples=30, deadline=None)
    @given(streams(wire))
    def check(body: bytes) -> None:
        assert read_fast(wire, body, list(range(len(body)))) == read_fast(wire, body, [])

    check()


def stream_of(*documents: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(document).encode() + b"\n\n" for document in documents)


def test_a_key_written_with_escapes_is_found_far_from_both_ends() -> None:
    chunk = stream_of({"id": "c", "model": "m", "choices": []})
    usage = stream_of({"usage": {"prompt_tokens": 3, "completion_tokens": 4}}).replace(b"usage", rb"\u0075sage")
    reading = read_fast("openai-chat", chunk * 400 + usage + chunk * 400, [])
    assert reading.tokens.output_tokens == 4


@pytest.mark.parametrize("cuts", [[], [20_000], list(range(0, 60_000, 97))])
def test_what_a_running_total_says_of_the_end_outlives_the_next_total(cuts: list[int]) -> None:
    named = {"modelVersion": "g", "responseId": "r"}
    totals = [named | {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": n}} for n in range(400)]
    totals[50]["candidates"] = [{"finishReason": "STOP"}]
    reading = read_fast("gemini", stream_of(*totals), cuts)
    assert (reading.ended, reading.tokens.output_tokens) == (True, 399)
