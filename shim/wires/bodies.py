"""From body bytes to the JSON documents of one response, in order, for whichever framing the body turns out to have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from shim.framing import ndjson, sniff, sse
from shim.framing.eventstream import FrameSplitter
from shim.framing.json_array import ArraySplitter
from shim.framing.json_members import MemberScanner
from shim.framing.ndjson import LineSplitter
from shim.framing.sse import SseSplitter
from shim.wires.counts import loads
from shim.wires.documents import Taker
from shim.wires.messages import MessageBody, line_document, sse_document

# A JSON body up to this size is held and parsed at once; a larger one is scanned for its wanted members.
HOLD: Final = 1024 * 1024


class Body(Protocol):
    """The bytes of one framing."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""

    def finish(self) -> bool | None:
        """No more will come. Whether the framing itself says that the body is whole; ``None`` where it cannot say."""

    @property
    def dropped(self) -> int:
        """Messages past the bound or damaged."""


class JsonBody:
    """One JSON object, or several in a row under the wrong name."""

    dropped = 0

    def __init__(self, taker: Taker) -> None:
        self._taker = taker
        self._held = bytearray()
        self._scanner: MemberScanner | None = None

    def feed(self, data: bytes) -> None:
        if self._scanner is None:
            self._held += data
            if len(self._held) <= HOLD:
                return
            self._scanner = MemberScanner(self._taker.interest.members)
            data = bytes(self._held)
            self._held.clear()
        for value in self._scanner.feed(data):
            self._taker.take(b"", value)

    def finish(self) -> bool | None:
        if self._scanner is None:
            value = loads(bytes(self._held))
            if isinstance(value, dict):
                self._taker.take(b"", value)
                return True
            return self._salvage()
        return self._close(self._scanner)

    def _salvage(self) -> bool | None:
        """Read what is not one object as what it may be: cut off, several objects, or events behind a false start."""
        held = bytes(self._held)
        if b"data:" in held:
            events = MessageBody(self._taker, SseSplitter(), sse.GAP, sse_document)
            events.feed(held)
            return events.finish()
        scanner = MemberScanner(self._taker.interest.members)
        for value in scanner.feed(held):
            self._taker.take(b"", value)
        return self._close(scanner)

    def _close(self, scanner: MemberScanner) -> bool:
        rest = scanner.unfinished()
        if rest:
            self._taker.take(b"", rest)
        return scanner.whole


class ArrayBody:
    """The elements of one JSON array."""

    def __init__(self, taker: Taker) -> None:
        self._taker = taker
        self._splitter = ArraySplitter()

    @property
    def dropped(self) -> int:
        return self._splitter.dropped

    def feed(self, data: bytes) -> None:
        for element in self._splitter.feed(data):
            value = loads(element)
            if isinstance(value, dict):
                self._taker.take(b"", value)

    def finish(self) -> bool:
        return self._splitter.ended


class FrameBody:
    """AWS event stream frames."""

    def __init__(self, taker: Taker) -> None:
        self._taker = taker
        self._splitter = FrameSplitter()

    @property
    def dropped(self) -> int:
        return self._splitter.dropped

    def feed(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            self._taker.take_frame(frame)

    def finish(self) -> bool:
        return False


class OpaqueBody:
    """Bytes in no framing that could hold usage: nothing is read, and only HTTP knows where they end."""

    dropped = 0

    def feed(self, data: bytes) -> None:
        pass

    def finish(self) -> bool | None:
        return None


def open_body(kind: str, taker: Taker) -> Body:
    """The body of a framing as ``sniff`` names it."""
    if kind == sniff.SSE:
        return MessageBody(taker, SseSplitter(), sse.GAP, sse_document)
    if kind == sniff.NDJSON:
        return MessageBody(taker, LineSplitter(), ndjson.GAP, line_document)
    simple: dict[str, Callable[[Taker], Body]] = {sniff.JSON: JsonBody, sniff.ARRAY: ArrayBody, sniff.FRAMES: FrameBody}
    return simple[kind](taker) if kind in simple else OpaqueBody()
