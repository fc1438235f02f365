"""Splitters give whole messages, whatever the split, and hold a bounded rest."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.framing import sniff
from shim.framing.eventstream import Frame, FrameSplitter
from shim.framing.json_array import ArraySplitter
from shim.framing.json_members import MemberScanner
from shim.framing.ndjson import LineSplitter
from shim.framing.sse import SseSplitter, parse_event


def frame(payload: bytes, **headers: str) -> bytes:
    packed = b"".join(
        bytes([len(name) + 1, *f":{name.replace('_', '-')}".encode(), 7]) + struct.pack(">H", len(text)) + text.encode()
        for name, text in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + packed + payload
    return body + struct.pack(">I", zlib.crc32(body))


def sse_events(splitter: SseSplitter, reads: list[bytes]) -> list[bytes]:
    blocks = b"".join(splitter.feed(data) for data in reads)
    return [event for event in blocks.split(b"\n\n") if event]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@given(st.lists(st.integers(1, 5), max_size=12))
def test_sse_line_ends_may_be_split_by_reads(end: str, sizes: list[int]) -> None:
    body = f"data: a{end}{end}event: x{end}data: b{end}data: c{end}{end}".encode()
    reads = []
    for size in [*sizes, len(body)]:
        reads.append(body[:size])
        body = body[size:]
    assert sse_events(SseSplitter(), reads) == [b"data: a", b"event: x\ndata: b\ndata: c"]


def test_sse_event_has_its_name_and_its_data_lines_joined() -> None:
    assert parse_event(b": note\nid: 7\nevent: delta\ndata: {\ndata:}") == (b"delta", b"{\n}")


def test_sse_holds_the_last_event_until_the_end() -> None:
    splitter = SseSplitter()
    assert (splitter.feed(b"data: a\n\ndata: b"), splitter.finish()) == (b"data: a\n\n", b"data: b")


@given(st.integers(0, 12), st.integers(1, 3))
def test_an_event_past_the_bound_is_dropped_and_the_next_one_is_not(over: int, size: int) -> None:
    """A little past it an event that one read completes still comes: whoever cuts the block sees its length."""
    splitter = SseSplitter(bound=8)
    body = b"x" * (13 + over) + b"\n\ndata: b\n\n"
    events = sse_events(splitter, [body[at : at + size] for at in range(0, len(body), size)])
    assert (events, splitter.dropped) == ([b"data: b"], 1)


def test_lines_come_whole() -> None:
    splitter = LineSplitter()
    assert [splitter.feed(data) for data in (b"a", b"b\nc", b"\nd")] == [b"", b"ab\n", b"c\n"]
    assert splitter.finish() == b"d"


@given(st.integers(1, 9))
def test_array_elements_come_as_they_complete(size: int) -> None:
    body = rb'[{"a": "]}\"["}, 7, [1, {"b": 2}], {}]'
    splitter = ArraySplitter()
    found = [item for at in range(0, len(body), size) for item in splitter.feed(body[at : at + size])]
    assert found == [rb'{"a": "]}\"["}', b'[1, {"b": 2}]', b"{}"]
    assert splitter.ended


def test_a_cut_array_gives_its_complete_elements() -> None:
    splitter = ArraySplitter()
    assert splitter.feed(b'[{"a": 1}, {"b": ') == [b'{"a": 1}']
    assert not splitter.ended


@given(st.integers(1, 40))
def test_an_array_element_past_the_bound_is_dropped(size: int) -> None:
    body = b'[{"a": "' + b"x" * 60 + b'"}, {"b": 2}]'
    splitter = ArraySplitter(bound=20)
    found = [item for at in range(0, len(body), size) for item in splitter.feed(body[at : at + size])]
    assert (found, splitter.dropped) == ([b'{"b": 2}'], 1)


@given(st.integers(1, 50), st.binary(max_size=40))
def test_frames_come_whole_and_garbage_is_searched_through(size: int, garbage: bytes) -> None:
    one, two = frame(b"{}", event_type="a"), frame(b"[]", event_type="b", message_type="event")
    body = one + garbage + two
    splitter = FrameSplitter()
    found = [item for at in range(0, len(body), size) for item in splitter.feed(body[at : at + size])]
    assert found == [Frame({":event-type": "a"}, b"{}"), Frame({":event-type": "b", ":message-type": "event"}, b"[]")]


def test_a_frame_with_a_wrong_checksum_is_dropped() -> None:
    damaged = bytearray(frame(b"{}", event_type="a"))
    damaged[-5] ^= 1
    splitter = FrameSplitter()
    assert [item.payload for item in splitter.feed(bytes(damaged) + frame(b"[]"))] == [b"[]"]
    assert splitter.dropped == 1


def test_a_frame_past_the_bound_is_passed_over() -> None:
    splitter = FrameSplitter(bound=64)
    assert [item.payload for item in splitter.feed(frame(b"x" * 100) + frame(b"ok"))] == [b"ok"]


def test_frames_are_no_longer_searched_for_past_the_budget() -> None:
    splitter = FrameSplitter()
    splitter.feed(bytes(100_000))
    assert splitter.feed(frame(b"{}")) == []


WANTED = frozenset({("usage",), ("model",), ("response", "usage")})
DOCUMENT = rb"""{"choices": [{"usage": 1, "t": "a\\\"}"}], "model": "m", "response": {"x": [{}], "usage": {"n": [1]}},
    "usage": {"p": 1.5e3, "q": "}"}, "deep": {"usage": 2}, "esc\u0061pe": null, "n": -12}"""


@given(st.integers(1, 60))
def test_wanted_members_are_kept_and_nothing_else(size: int) -> None:
    scanner = MemberScanner(WANTED)
    found = [item for at in range(0, len(DOCUMENT), size) for item in scanner.feed(DOCUMENT[at : at + size])]
    assert found == [{"model": "m", "response": {"usage": {"n": [1]}}, "usage": {"p": 1500.0, "q": "}"}}]
    assert scanner.whole


def test_members_of_a_cut_object_are_those_that_were_complete() -> None:
    scanner = MemberScanner(WANTED)
    assert scanner.feed(b'{"model": "m", "usage": {"p": 1}, "choices": [') == []
    assert (scanner.unfinished(), scanner.whole) == ({"model": "m", "usage": {"p": 1}}, False)


def test_a_member_too_long_to_keep_is_there_but_not_read() -> None:
    scanner = MemberScanner(frozenset({("error",)}))
    assert scanner.feed(b'{"error": "' + b"x" * 100_000 + b'"}') == [{"error": True}]


@settings(max_examples=300)
@given(st.binary(max_size=80), st.integers(1, 20))
def test_no_bytes_make_the_scanner_raise(body: bytes, size: int) -> None:
    scanner = MemberScanner(WANTED)
    data = b"{" + body
    for at in range(0, len(data), size):
        scanner.feed(data[at : at + size])
    scanner.unfinished()


@pytest.mark.parametrize(
    ("content_type", "head", "kind"),
    [
        ("text/event-stream; charset=utf-8", b"data: {}\n\n", sniff.SSE),
        ("TEXT/EVENT-STREAM", b"garbage first", sniff.SSE),
        ("text/event-stream", b'{"error": {}}', sniff.JSON),
        ("application/json", b"data: {}\n\nda", sniff.SSE),
        ("application/json", b": comment\n\nd", sniff.SSE),
        ("application/json", b'{"a": 1}', sniff.JSON),
        ("application/json", b'[{"a": 1}]', sniff.ARRAY),
        ("application/problem+json", b"{}", sniff.JSON),
        ("application/x-ndjson", b"{}", sniff.NDJSON),
        ("", b'{"a": 1}', sniff.JSON),
        ("", frame(b"{}"), sniff.FRAMES),
        ("application/json", frame(b"{}"), sniff.FRAMES),
        ("application/vnd.amazon.eventstream", b'{"message": 1}', sniff.JSON),
        ("text/html", b"<html><body></body></html>", sniff.OPAQUE),
        ("", b"plain words that mean nothing", sniff.OPAQUE),
        ("text/event-stream", b"", sniff.SSE),
        ("", b"", sniff.OPAQUE),
    ],
)
def test_first_bytes_have_the_last_word_on_framing(content_type: str, head: bytes, kind: str) -> None:
    assert sniff.framing(content_type, head, last=True) == kind
