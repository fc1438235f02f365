"""The usage option: added to the request by its bytes, and exactly its event taken out of the answer."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.inject import REFUSAL_SECONDS, REFUSALS_KEPT, Refusals, UsageRemover, add_option, is_usage_event, wants

USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}\n\n'
DELTA = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}],"usage":null}\n\n'
FINISH = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"total_tokens":7}}\n\n'
FILTER = b'data: {"choices":[],"model":"","prompt_filter_results":[]}\n\n'
DONE = b"data: [DONE]\n\n"
QUOTED = b'data: {"choices":[{"delta":{"content":"\\"choices\\":[],\\"usage\\":{\\"a\\":1}"}}]}\n\n'
COMMENT = b": keep-alive\n\n"


@pytest.mark.parametrize(
    ("wire", "request_body", "wanted"),
    [
        ("openai-chat", {"stream": True}, True),
        ("openai-completions", {"stream": True}, True),
        ("openai-chat", {"stream": True, "stream_options": None}, True),
        ("openai-chat", {"stream": True, "stream_options": {}}, True),
        ("openai-chat", {"stream": True, "stream_options": {"include_usage": False}}, True),
        ("openai-chat", {"stream": True, "stream_options": {"include_usage": True}}, False),
        ("openai-chat", {"stream": True, "stream_options": "what"}, False),
        ("openai-chat", {"stream": False}, False),
        ("openai-chat", {"stream": 1}, False),
        ("openai-chat", {}, False),
        ("openai-chat", None, False),
        ("openai-responses", {"stream": True}, False),
        ("anthropic-messages", {"stream": True}, False),
    ],
)
def test_only_a_stream_that_would_end_without_usage_wants_it(wire: str, request_body: object, wanted: bool):
    assert wants("openai", wire, request_body) is wanted


def test_an_upstream_that_always_reports_is_not_asked():
    assert not wants("openrouter", "openai-chat", {"stream": True})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
options = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "include_usage": st.sampled_from([False, None]),
        "include_obfuscation": st.booleans(),
        "stream_options": json_values,
    },
)


@given(
    st.dictionaries(st.text(max_size=5), json_values, max_size=4),
    st.booleans(),
    options,
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_the_option_is_all_that_changes(
    rest: dict, present: bool, given_options: object, indent: int, ascii_only: bool
):
    request = {**rest, "stream": True} | ({"stream_options": given_options} if present else {})
    body = json.dumps(request, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return  # lone surrogates: such a body is forwarded as it is
    edited = add_option(body, parsed)
    assert edited is not None
    expected = {**parsed, "stream_options": {**(parsed.get("stream_options") or {}), "include_usage": True}}
    assert orjson.loads(edited) == expected


def test_every_other_byte_stays():
    body = b' {"model" : "m",\t"stream":true,\r\n "stream_options": { "include_usage" : false , "x":[1,{"a":":"}]} }\n'
    assert add_option(body, orjson.loads(body)) == body.replace(b"false", b"true")
    body = b'\n{ "stream":true, "messages":[{"content":"\\"stream_options\\":{}"}]}'
    edited = add_option(body, orjson.loads(body))
    assert edited == body.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)


@pytest.mark.parametrize("second", [b'"stream_options"', b'"stream\\u005foptions"'])
def test_a_name_that_is_written_twice_is_left_alone(second: bytes):
    twice = b'{"stream":true,"stream_options":null,%b:{}}' % second
    assert add_option(twice, orjson.loads(twice)) is None


def test_a_name_may_be_written_in_escapes():
    body = b'{"stream":true,"stream\\u005foptions":{"include\\u005fusage":false}}'
    assert add_option(body, orjson.loads(body)) == body.replace(b"false", b"true")


def through(*pieces: bytes) -> bytes:
    remover = UsageRemover()
    return b"".join(remover.feed(piece) for piece in pieces) + remover.end()


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_exactly_the_usage_event_is_removed(line_end: bytes):
    events = [COMMENT, FILTER, DELTA, QUOTED, FINISH, USAGE, DONE]
    given_bytes = b"".join(events).replace(b"\n", line_end)
    expected = b"".join(event for event in events if event is not USAGE).replace(b"\n", line_end)
    assert through(given_bytes) == expected


@given(st.data())
def test_any_split_gives_the_same(data: st.DataObject):
    stream = b"".join([COMMENT, FILTER, DELTA, QUOTED, FINISH, USAGE, DONE]).replace(
        b"\n", data.draw(st.sampled_from([b"\n", b"\r\n"]))
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert through(*pieces) == through(stream)


@given(st.lists(st.sampled_from([b"data: ", b'{"choices":[', b"]", b'"usage":{', b"}", b"\n", b"\r\n", b"\r", b"x"])))
def test_what_holds_no_usage_event_passes_whole(pieces: list[bytes]):
    stream = b"".join(pieces)
    if not any(is_usage_event(event + b"\n\n") for event in stream.replace(b"\r", b"\n").split(b"\n\n")):
        assert through(*pieces) == stream


def test_whole_events_are_never_held_back():
    remover = UsageRemover()
    for event in (COMMENT, FILTER, DELTA, QUOTED, FINISH):
        assert remover.feed(event) == event


def test_a_half_event_with_a_choice_is_not_held_back():
    remover = UsageRemover()
    half = b'data: {"choices":[{"delta":'
    assert remover.feed(half) == half


def test_a_usage_event_that_the_end_of_the_stream_cuts_is_still_removed():
    assert through(DELTA, USAGE.rstrip(b"\n")) == DELTA


def test_the_remover_keeps_no_more_than_its_bound():
    remover = UsageRemover()
    passed = remover.feed(b"data: " + b"x" * (1 << 20))
    assert len(passed) > 1 << 20


class TestRefusals:
    """Who rejected the option is asked without it, for a while."""

    def test_it_is_remembered_for_an_upstream_and_model_until_its_time_is_over(self):
        now = 100.0
        refusals = Refusals(lambda: now)
        refusals.add("vllm", "m-1")
        assert ("vllm", "m-1") in refusals
        assert ("vllm", "m-2") not in refusals
        assert ("openai", "m-1") not in refusals
        now += REFUSAL_SECONDS
        assert ("vllm", "m-1") not in refusals

    def test_the_ones_refused_longest_ago_are_forgotten_past_the_bound(self):
        refusals = Refusals()
        for n in range(REFUSALS_KEPT + 1):
            refusals.add("vllm", f"m-{n}")
        assert ("vllm", "m-0") not in refusals
        assert all(("vllm", f"m-{n}") in refusals for n in range(1, REFUSALS_KEPT + 1))

    @pytest.mark.parametrize("model", [None, 5, "a model that no line can hold", {"a": 1}])
    def test_a_model_that_is_no_name_is_none(self, model: object):
        refusals = Refusals()
        refusals.add("vllm", model)
        assert ("vllm", None) in refusals
        assert ("vllm", model) in refusals
