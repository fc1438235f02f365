"""What holds for any input: no split, garbage or size makes a reader say something else, raise or grow."""

from __future__ import annotations

import base64
import itertools
import json
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.framing.eventstream import PRELUDE
from shim.wires import Exchange
from shim.wires.table import READERS, open_reader
from tests.wires.recorded import CASES, differences, exchange_of, read, reads_of

BODIES = {name: b"".join(reads_of(case)) for name, case in CASES.items()}
SSE = [name for name, case in CASES.items() if case["response_content_type"].startswith("text/event-stream")]
LINES = [name for name, case in CASES.items() if case["response_content_type"] == "application/x-ndjson"]
FRAMES = [name for name, case in CASES.items() if case["response_content_type"].endswith("eventstream")]
# Events that say nothing, as they end up in streams: keep-alives, foreign events, cut or hostile data.
NOISE = st.sampled_from(
    [
        b": comment\n\n",
        b"data: ping\n\n",
        b"data:\n\n",
        b"\n\n\n",
        b"id: 7\nretry: 10\n\n",
        b"event: heartbeat\ndata: {}\n\n",
        b'data: {"cut": "\n\n',
        b"data: [1, 2, 3]\n\n",
        b'data: "usage"\n\n',
        b"no field at all\n\n",
        b"\xff\xfe\x00garbage\n\n",
        b'data: {"nested": {"usage": {"prompt_tokens": 9, "input_tokens": 9}}}\n\n',
    ]
)
CONTENT_TYPES = ["application/json", "text/event-stream", "application/x-ndjson", "", "x/y"]
EMPTY = {"request_path": "/", "stream": None}
# Every member that some reader looks at.
MEMBERS = [
    "usage",
    "response",
    "message",
    "choices",
    "type",
    "model",
    "id",
    "error",
    "usageMetadata",
    "delta",
    "result",
    "stats",
    "input_tokens",
    "prompt_tokens",
    "iterations",
    "candidates",
    "output",
    "bytes",
    "cache_creation",
    "cacheDetails",
    "meta",
    "billed_units",
    "x_groq",
    "base_resp",
    "done",
    "stop",
]
KIB = 1024
MIB = 1024 * KIB


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(sorted(CASES)), st.lists(st.integers(0, 200_000), max_size=9))
def test_any_split_gives_the_same_reading(name: str, cuts: list[int]) -> None:
    body = BODIES[name]
    edges = sorted({0, *(cut % (len(body) + 1) for cut in cuts), len(body)})
    reads = [body[start:end] for start, end in itertools.pairwise(edges)]
    assert read(CASES[name], reads) == read(CASES[name], [body])


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SSE), st.data())
def test_noise_before_between_and_after_events_changes_nothing(name: str, data: st.DataObject) -> None:
    events = BODIES[name].replace(b"\r\n", b"\n").replace(b"\r", b"\n").removeprefix(b"\xef\xbb\xbf").split(b"\n\n")
    noisy = b"".join(data.draw(NOISE) + event + b"\n\n" for event in events) + data.draw(NOISE)
    if CASES[name]["expect"]["status"] != "no_usage":  # there, one more event may complete what was cut on purpose
        assert differences(CASES[name], read(CASES[name], [noisy])) == []


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LINES), st.lists(st.sampled_from([b"\n", b"garbage\n", b'{"cut": \n', b"\r\n"]), min_size=9))
def test_noise_between_lines_changes_nothing(name: str, noise: list[bytes]) -> None:
    lines = BODIES[name].splitlines()
    noisy = b"".join(noise[index % len(noise)] + line + b"\n" for index, line in enumerate(lines))
    assert differences(CASES[name], read(CASES[name], [noisy])) == []


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FRAMES), st.binary(max_size=200), st.integers(1, 50))
def test_garbage_between_frames_changes_nothing(name: str, garbage: bytes, size: int) -> None:
    frames = list(frames_of(BODIES[name]))
    broken = frames[0][:-1] + bytes([frames[0][-1] ^ 1])
    noisy = frames[0] + garbage + broken + b"".join(frames[1:])
    reads = [noisy[start : start + size] for start in range(0, len(noisy), size)]
    assert differences(CASES[name], read(CASES[name], reads)) == []


def frames_of(body: bytes) -> Iterator[bytes]:
    while body:
        total = PRELUDE.unpack_from(body)[0]
        yield body[:total]
        body = body[total:]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(READERS)), st.sampled_from(CONTENT_TYPES), st.binary(max_size=300))
def test_no_bytes_make_a_reader_raise(wire: str, content_type: str, body: bytes) -> None:
    reading = read({"wire": wire} | EMPTY | {"response_content_type": content_type}, [body, body[::-1]])
    assert reading.usage in ("missing", "partial", "reported")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(READERS)), st.lists(json_values, max_size=3), st.booleans())
def test_no_json_makes_a_reader_raise(wire: str, values: list[object], stream: bool) -> None:
    """Every member a reader looks at may be of any type."""
    texts = [json.dumps(value) for value in values]
    body = "".join(f"data: {text}\n\n" for text in texts) if stream else "".join(texts)
    content_type = "text/event-stream" if stream else "application/json"
    read({"wire": wire, "response_content_type": content_type} | EMPTY, [body.encode()])


@pytest.mark.parametrize("name", FRAMES)
def test_base64_that_is_none_makes_nothing_raise(name: str) -> None:
    body = BODIES[name].replace(base64.b64encode(b"{")[:2], b"\xff\xff")
    read(CASES[name], [body])


@pytest.mark.parametrize(
    ("content_type", "opening", "filler"),
    [
        ("text/event-stream", b"data: ", b"x" * 64 * KIB),
        ("text/event-stream", b"", b"data: x\n" * 8 * KIB),
        ("application/x-ndjson", b"", b"x" * 64 * KIB),
        ("application/json", b'{"choices": "', b"x" * 64 * KIB),
        ("application/json", b'{"data": [', b"0.123, " * 9000),
        ("application/json", b'{"error": "', b"\\n" * 32 * KIB),
        ("application/json", b"[", b'{"a": "' + b"x" * 64 * KIB),
        ("application/json", b"", b"[" * 64 * KIB),
        ("application/vnd.amazon.eventstream", b"", bytes(64 * KIB)),
        ("text/html", b"<html>", b"x" * 64 * KIB),
    ],
)
def test_a_body_without_end_is_held_within_the_bound(content_type: str, opening: bytes, filler: bytes) -> None:
    """40 MiB in which nothing ever ends: at most one message of 16 MiB is held, and room to grow it."""
    reader = open_reader("openai-chat", Exchange(200, content_type))
    tracemalloc.start()
    reader.feed(opening)
    for _ in range(40 * MIB // len(filler)):
        reader.feed(filler)
    reading = reader.finish(complete=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reading.usage == "missing"
    assert peak < 36 * MIB


def test_usage_behind_64_mib_of_json_is_read_in_little_memory() -> None:
    reader = open_reader("openai-chat", Exchange(200, "application/json"))
    tracemalloc.start()
    reader.feed(b'{"id": "chatcmpl-1", "model": "m-1", "choices": [{"message": {"content": "')
    for _ in range(1024):
        reader.feed(b'say \\"usage\\": {' * 4096)
    reader.feed(b'"}}], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}')
    reading = reader.finish(complete=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (reading.usage, reading.model, reading.tokens.input_tokens) == ("reported", "m-1", 7)
    assert peak < 4 * MIB


def test_an_event_of_many_mib_is_read_and_one_past_the_bound_is_not() -> None:
    usage = b'"usage": {"input_tokens": 7, "output_tokens": 5}}}\n\n'
    event = b'data: {"type": "response.completed", "response": {"id": "resp_1", "model": "m-1", "instructions": "'
    for size, expected in ((8 * MIB, "reported"), (17 * MIB, "missing")):
        reader = open_reader("openai-responses", Exchange(200, "text/event-stream"))
        reader.feed(event)
        for _ in range(size // (64 * KIB)):
            reader.feed(b"x" * 64 * KIB)
        reader.feed(b'", ' + usage)
        assert reader.finish(complete=True).usage == expected


def test_reading_goes_on_behind_an_event_past_the_bound() -> None:
    reader = open_reader("openai-chat", Exchange(200, "text/event-stream"))
    reader.feed(b"data: ")
    for _ in range(17):
        reader.feed(b"x" * MIB)
    reader.feed(b'\n\ndata: {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}\n\ndata: [DONE]\n\n')
    assert reader.finish(complete=True).usage == "reported"


@pytest.mark.parametrize("blank", [b"\n", b"\n\n\n", b"\n" * 6, b"\n" * 7])
def test_any_number_of_blank_lines_may_end_a_read(blank: bytes) -> None:
    reader = open_reader("openai-chat", Exchange(200, "text/event-stream"))
    for data in (b"data: ping" + blank, b"data: ping\n\n" + blank, b'data: {"choices": []}\n\n' + blank):
        reader.feed(data)
    reader.feed(b'data: {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}\n\n' + blank)
    assert reader.finish(complete=True).tokens.output_tokens == 2


def test_end_of_a_long_stream_is_read_from_its_last_bytes() -> None:
    """A finish reason quoted far from the end does not end a stream; the one at its end does."""
    chunk = b'data: {"id": "c", "model": "m", "choices": [{"delta": {"content": "x"}}], "usage": null}\n\n'
    finish = b'data: {"id": "c", "model": "m", "choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
    for tail, ended in ((b"", False), (finish, True)):
        reader = open_reader("openai-chat", Exchange(200, "text/event-stream"))
        for data in (chunk * 9, finish, chunk * 1000, tail):
            reader.feed(data)
        assert reader.finish(complete=True).ended is ended


@pytest.mark.parametrize("name", sorted(CASES))
def test_no_case_leaves_more_than_a_reading(name: str) -> None:
    """A reading holds numbers, one model name, one id and a tier: nothing of what was said."""
    reading = read(CASES[name], reads_of(CASES[name]))
    for part in (reading, *reading.extra):
        assert all(len(text) <= 128 for text in (part.model or "", part.response_id or "", part.service_tier or ""))
        assert exchange_of(CASES[name]).path not in (part.model, part.response_id)
