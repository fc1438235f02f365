"""A response's id is noted before the bytes that tell it are passed on, however they are cut."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.meter import Meter
from shim.response import parse_head
from shim.routes import Place
from shim.tap import Tap
from shim.upstreams import Upstream

PLACE = Place("picoclaw", Upstream("openai", "http", "127.0.0.1", 80), "/v1/responses", "openai-responses", False, None)
SESSION = "s" * 24
NAME = "resp_7"


class Notes:
    """Stands where a meter does; what it is told of a response, by which kind of call."""

    def __init__(self) -> None:
        self.told: list[str] = []
        inflight = SimpleNamespace(begin=lambda *call: 3)
        self.key = b"k" * 32
        self.metering = SimpleNamespace(vm="vm-7", inflight=inflight)
        self.sessions = SimpleNamespace(identify=lambda *call: (SESSION, "gap"))
        self.background = SimpleNamespace(note=lambda response, record, slot: self.told.append("noted"))

    def fault(self, where: str, error: Exception) -> None:
        raise AssertionError(where) from error


members = st.permutations(
    [
        ("id", NAME),
        ("status", "queued"),
        ("output", [{"id": "msg_1", "type": "message"}]),
        ("instructions", 'say "id": "resp_8"'),
        ("metadata", {"id": "resp_9"}),
    ]
)


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes, int]:
    """Head and body of an answer, and where in the body the id has been told (its member's or its event's end)."""
    value = dict(draw(members))
    body = json.dumps(value).encode()
    if draw(st.booleans()):
        event = json.dumps({"type": "response.created", "response": value}).encode()
        body = b"event: response.created\ndata: " + event + b"\n\n"
        return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream", body, len(body)
    told = body.index(b'"' + NAME.encode() + b'"') + len(NAME) + 2
    if draw(st.booleans()):
        packed = gzip.compress(body)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip"
        return head, packed, len(packed)
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json", body, told


@pytest.mark.interpreted
@settings(deadline=None)
@given(answers(), st.booleans(), st.lists(st.integers(1, 40), max_size=12))
def test_it_is_noted_before_the_client_knows_it(answer: tuple[bytes, bytes, int], unread: bool, sizes: list[int]):
    head, body, told = answer
    notes = Notes()
    tap = Tap(cast(Meter, notes), "picoclaw", PLACE)
    asked: dict[str, Any] = {"model": "m", "input": "x", "background": True}
    tap.request({}, None if unread else asked)
    tap.head(parse_head(head, "POST"))
    at = 0
    for size in [*sizes, len(body)]:
        tap.pieces.append(body[at : at + size])
        at += size
        if tap.ahead:
            tap.look_ahead()
        if at >= told:
            assert notes.told == ["noted"]
            assert not tap.ahead


@pytest.mark.interpreted
@pytest.mark.parametrize(("body", "poll"), [({"model": "m", "input": "x"}, False), (None, True)])
def test_other_calls_are_passed_on_unread(body: dict[str, Any] | None, poll: bool):
    tap = Tap(cast(Meter, Notes()), "picoclaw", PLACE, poll=poll)
    tap.request({}, body)
    assert not tap.ahead
