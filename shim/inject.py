"""Usage of OpenAI-style streams: asked for where the client did not, and taken out again of what the client gets.

The request gains ``stream_options.include_usage`` by an edit of bytes that leaves every other byte as it was; the
response loses exactly the one event that this adds, the chunk with no choices and with usage
(https://platform.openai.com/docs/api-reference/chat/create#chat_create-stream_options). Vendors that put usage on
the chunk that finishes a choice keep it there. An injected call asks for no content encoding: a compressed event
could not be taken out without unpacking and packing every other one, and loopback gains nothing by compression.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import orjson

from shim.line import model_or_none

WIRES: Final = frozenset({"openai-chat", "openai-completions"})
# Always ends a stream with usage, whatever the request says: https://openrouter.ai/docs/use-cases/usage-accounting
NEED_NONE: Final = frozenset({"openrouter"})
# How an upstream that does not know the option says so.
REJECTED: Final = (400, 422)
REJECTION: Final = re.compile(rb"stream_options|include_usage")
MAX_REJECTION: Final = 1 << 16
# For how long, and for how many upstreams and models, that is remembered.
REFUSAL_SECONDS: Final = 3600.0
REFUSALS_KEPT: Final = 256

OPTION: Final = b'"stream_options":{"include_usage":true}'
TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
OPENING: Final = re.compile(rb"\s*\{")

# A CR at the end of what came so far may be half of a CRLF: it ends a line once the next byte is there.
LINE_END: Final = rb"(?:\r\n|\n|\r(?=[^\n]))"
EVENT_END: Final = re.compile(LINE_END + LINE_END)
USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')
SOME_CHOICE: Final = re.compile(rb'"choices"\s*:\s*\[\s*[^\s\]]')
DATA_LINE: Final = re.compile(rb"(?:^|[\r\n])data:[ ]?([^\r\n]*)")
# An event that is longer is no usage chunk, and is not held back to find out.
MAX_HELD: Final = 1 << 16


def wants(upstream: str, wire: str | None, request: Any) -> bool:
    """Whether this request body makes a stream that would end without usage."""
    if wire not in WIRES or upstream in NEED_NONE or not isinstance(request, dict) or request.get("stream") is not True:
        return False
    options = request.get("stream_options")
    if options is None:
        return True
    return isinstance(options, dict) and options.get("include_usage") in (None, False)


def add_option(body: bytes, request: dict[str, Any]) -> bytes | None:
    """``body`` with the option in it, ``None`` where there is no safe place for it. ``request``: ``body`` as parsed."""
    if "stream_options" not in request:
        opening = OPENING.match(body)
        return None if opening is None else body[: opening.end()] + OPTION + b"," + body[opening.end() :]
    span = _value_of(body, b'"stream_options"')
    if span is None:
        return None
    start, end = span
    options = request["stream_options"]
    if options and "include_usage" not in options:
        return body[: start + 1] + b'"include_usage":true,' + body[start + 1 :]
    if not options:
        return body[:start] + b'{"include_usage":true}' + body[end:]
    inner = _value_of(body[start:end], b'"include_usage"')
    if inner is None:
        return None
    return body[: start + inner[0]] + b"true" + body[start + inner[1] :]


def _value_of(data: bytes, name: bytes) -> tuple[int, int] | None:
    """Where the value of a name of the outermost object is; ``None`` where the name is not there exactly once."""
    depth, expected, found = 0, False, []
    start, end, previous = -1, 0, b""
    for token in TOKEN.finditer(data):
        text = token[0]
        if text in b"}]" and len(text) == 1:
            depth -= 1
        if start >= 0 and depth <= 1 and (depth == 0 or text == b","):
            found.append((start, end))
            start = -1
        if expected:
            start, expected = token.start(), False
        if text in b"{[" and len(text) == 1:
            depth += 1
        expected = depth == 1 and text == b":" and _is_key(previous, name)
        previous, end = text, token.end()
    return found[0] if len(found) == 1 else None


def _is_key(token: bytes, name: bytes) -> bool:
    """Whether a token is this name, however its letters are written."""
    if b"\\" not in token:
        return token == name
    try:
        return bool(orjson.loads(token) == orjson.loads(name))
    except orjson.JSONDecodeError:
        return False


class Refusals:
    """Upstreams and models that rejected the option, for a while: asking them twice each time would double the wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[tuple[str, str | None], float] = OrderedDict()

    def add(self, upstream: str, model: object) -> None:
        """``upstream`` rejected the option for ``model``, as the request names it."""
        place = (upstream, model_or_none(model))
        self._until[place] = self._clock() + REFUSAL_SECONDS
        self._until.move_to_end(place)
        if len(self._until) > REFUSALS_KEPT:
            self._until.popitem(last=False)

    def __contains__(self, place: tuple[str, object]) -> bool:
        """Whether an upstream and model rejected the option lately."""
        if not self._until:
            return False
        known = (place[0], model_or_none(place[1]))
        until = self._until.get(known)
        if until is not None and until <= self._clock():
            del self._until[known]
            return False
        return until is not None


class UsageRemover:
    """Takes the one usage event out of an event stream: bytes in, bytes out, any split.

    Only an event that is not whole yet and may still be the one is held back.
    """

    __slots__ = ("_edge", "_held", "removed")

    def __init__(self) -> None:
        self._held = b""
        self._edge = b""  # the last bytes of an event that was passed on before it was whole
        self.removed = False

    def feed(self, data: bytes) -> bytes:
        """What may be passed on now."""
        if self.removed:
            return data
        if self._held:
            data, self._held = self._held + data, b""
        if data.endswith((b"\n\n", b"\r\n\r\n")) and not USAGE.search(data):
            self._edge = b""
            return data
        position = self._end_of_begun(data)
        passed = [data[:position]]
        for boundary in EVENT_END.finditer(data, position):
            event = data[position : boundary.end()]
            position = boundary.end()
            if not self.removed and is_usage_event(event):
                self.removed = True
            else:
                passed.append(event)
        rest = data[position:]
        if rest and not self.removed and _may_be_usage(rest):
            self._held = rest
        elif rest:
            passed.append(rest)
            self._edge = rest[-3:]
        return b"".join(passed)

    def _end_of_begun(self, data: bytes) -> int:
        """How much of ``data`` still belongs to an event whose beginning was passed on."""
        if not self._edge:
            return 0
        joined = self._edge + data
        boundary = EVENT_END.search(joined)
        if boundary is None:
            self._edge = joined[-3:]
            return len(data)
        begun, self._edge = len(self._edge), b""
        return max(0, boundary.end() - begun)

    def end(self) -> bytes:
        """What was held back when the stream ended: an event without its blank line is still not the client's."""
        rest, self._held = self._held, b""
        return b"" if is_usage_event(rest) else rest


def is_usage_event(event: bytes) -> bool:
    """Whether an event is the chunk that ``include_usage`` adds: no choices, and usage that is an object."""
    if not USAGE.search(event) or SOME_CHOICE.search(event):
        return False
    lines = DATA_LINE.findall(event)
    try:
        chunk = orjson.loads(b"\n".join(lines))
    except orjson.JSONDecodeError:
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)


def _may_be_usage(partial: bytes) -> bool:
    """Whether the beginning of an event may still become the usage event."""
    return len(partial) <= MAX_HELD and not SOME_CHOICE.search(partial)
