"""Whole answers read at one go say what the wires' full rules say of the same bytes, or are left to those.

Answers are made of the common shape and of what has a rule of its own: other spellings, odd numbers, failures under
HTTP 200, charges, split caches, further models.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.wires import Exchange, Reading
from shim.wires.table import open_reader
from shim.wires.whole import CONTENT_TYPES, SHAPES, read_whole
from tests.wires.recorded import CASES, exchange_of, read, reads_of

JSON = "application/json"
numbers = st.one_of(
    st.integers(0, 60),
    st.just(0),
    st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, -1, 1.0, 1.5, True, False, "7", "", None, [], {}, 3, 4]),
)
odd = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 3), st.sampled_from(["", "x", "error", [], {}, {"a": 1}, [{}]])
)


def some(required: dict[str, st.SearchStrategy[Any]], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


def totalled(usage: dict[str, Any], right: bool) -> dict[str, Any]:
    counts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    return usage | {"total_tokens": sum(counts)} if right and all(type(count) is int for count in counts) else usage


details = some({}, dict.fromkeys(("cached_tokens", "audio_tokens", "reasoning_tokens"), numbers))
odd_details = some(
    {},
    dict.fromkeys(("cached_tokens", "cache_write_tokens", "cache_creation_input_tokens", "reasoning_tokens"), numbers),
)
chat_usage = st.builds(
    totalled,
    some(
        {"prompt_tokens": numbers, "completion_tokens": numbers},
        {
            "total_tokens": numbers,
            "prompt_tokens_details": st.one_of(details, odd_details, odd),
            "completion_tokens_details": st.one_of(details, odd),
        },
    ),
    st.sampled_from([True, True, False]),
)
odd_chat_usage = some(
    {"prompt_tokens": numbers, "completion_tokens": numbers},
    dict.fromkeys(
        ("cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "reasoning_tokens", "cost"), numbers
    )
    | {"is_byok": odd},
)
choice = some(
    {"index": st.just(0)},
    {"finish_reason": st.sampled_from(["stop", "error", None]), "usage": st.one_of(odd, chat_usage), "error": odd},
)
plain_choice = some({"finish_reason": st.sampled_from(["stop", "length"])}, {})
split = some({}, dict.fromkeys(("ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens"), numbers))
names = {"id": st.sampled_from(["chatcmpl-1", "", None, 3]), "model": st.sampled_from(["m-1", "", None, 3])}
claude_usage = some(
    {"input_tokens": numbers, "output_tokens": numbers},
    dict.fromkeys(("cache_read_input_tokens", "cache_creation_input_tokens"), numbers)
    | {"service_tier": odd, "cache_creation": st.one_of(split, odd)},
)
odd_claude_usage = some(
    {"input_tokens": numbers},
    {
        "output_tokens": numbers,
        "cache_creation_input_tokens": numbers,
        "cache_creation": st.one_of(split, odd),
        "output_tokens_details": some({}, {"thinking_tokens": numbers}),
        "iterations": st.just(
            [{"type": "compaction", "input_tokens": 3}, {"type": "advisor_message", "output_tokens": 1}]
        ),
        "speed": st.sampled_from(["fast", "standard"]),
        "cost": numbers,
    },
)
ANSWERS = {
    "openai-chat": some(
        {
            **names,
            "choices": st.one_of(st.lists(plain_choice, max_size=2), st.lists(choice, max_size=2), odd),
            "usage": st.one_of(chat_usage, chat_usage, odd_chat_usage, odd),
        },
        {
            "object": st.sampled_from(["chat.completion", "error"]),
            "service_tier": odd,
            "error": odd,
            "base_resp": st.one_of(odd, some({}, {"status_code": numbers})),
            "x_groq": st.one_of(odd, some({}, {"usage": chat_usage, "error": odd})),
            "timings": st.just({"cache_n": 2}),
        },
    ),
    "anthropic-messages": some(
        {**names, "usage": st.one_of(claude_usage, claude_usage, odd_claude_usage, odd)},
        {
            "type": st.sampled_from(["message", "message", "message_start", "message_stop", "error", None]),
            "message": some({}, {"usage": claude_usage, "model": st.just("m-2")}),
            "error": odd,
            "base_resp": st.one_of(odd, some({}, {"status_code": numbers})),
        },
    ),
}


def by_the_rules(wire: str, content_type: str, body: bytes) -> Reading:
    reader = open_reader(wire, Exchange(200, content_type))
    reader.feed(body)
    return reader.finish(complete=True)


@pytest.mark.parametrize("wire", SHAPES)
def test_the_short_way_says_what_the_rules_say(wire: str) -> None:
    @settings(max_examples=600, deadline=None)
    @given(ANSWERS[wire], st.sampled_from(["", " ", "\n\n", " {}"]), st.sampled_from([JSON, "application/x-ndjson"]))
    def check(answer: dict[str, Any], tail: str, content_type: str) -> None:
        body = (json.dumps(answer) + tail).encode()
        short = read_whole(wire, content_type, body)
        assert short is None or short == by_the_rules(wire, content_type, body)

    check()


@pytest.mark.parametrize(
    ("wire", "answer"),
    [
        (
            "openai-chat",
            {
                "id": "chatcmpl-1",
                "model": "m-1",
                "choices": [{"finish_reason": "stop", "message": {"content": "hello"}}],
                "usage": {
                    "prompt_tokens": 9,
                    "completion_tokens": 5,
                    "total_tokens": 14,
                    "prompt_tokens_details": {"cached_tokens": 4},
                    "completion_tokens_details": {"reasoning_tokens": 2},
                },
            },
        ),
        (
            "anthropic-messages",
            {
                "id": "msg_1",
                "type": "message",
                "model": "c-1",
                "usage": {"input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": 4, "service_tier": "batch"},
            },
        ),
    ],
)
def test_the_common_shape_is_read_the_short_way(wire: str, answer: dict[str, Any]) -> None:
    body = json.dumps(answer).encode()
    for content_type in CONTENT_TYPES:
        short = read_whole(wire, content_type, body)
        assert short is not None
        assert short == by_the_rules(wire, content_type, body)


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_body_that_is_not_one_object_is_left_to_the_rules(cut: int) -> None:
    body = json.dumps({"id": "1", "choices": [{}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}).encode()
    assert read_whole("openai-chat", JSON, body[:cut]) is None
    assert read_whole("openai-chat", JSON, b"[" + body + b"]") is None


@pytest.mark.parametrize("name", CASES)
def test_recorded_answers_are_read_the_same_both_ways(name: str) -> None:
    case = CASES[name]
    body = b"".join(reads_of(case))
    short = read_whole(case["wire"], exchange_of(case).content_type, body)
    assert short is None or short == read(case, [body])


@pytest.mark.parametrize(
    "text",
    [
        rb"\u0041",
        rb"\ud800",
        b"\xff",
        b"\xed\xa0\x80",
        rb"\x",
        b"\x01",
        b'","usage":{"prompt_tokens":1},"a":"',
        b"[" * 2000,
    ],
)
@pytest.mark.parametrize("number", [b"1e400", b"1", b"01", b"1" * 400, b"NaN", b"1.5e3"])
def test_text_and_numbers_that_are_passed_over_change_nothing(text: bytes, number: bytes) -> None:
    usage = b'"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}'
    body = b'{"id":"1","a":"%b","n":%b,"choices":[{"message":{"content":"%b"}}],%b}' % (text, number, text, usage)
    short = read_whole("openai-chat", JSON, body)
    assert short is None or short == by_the_rules("openai-chat", JSON, body)
