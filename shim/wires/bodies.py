"""From body bytes to the JSON documents of one response, in order, for whichever framing the body turns out to have.

A body parses what can matter and passes over the rest: messages without a mark of the wire's ``Interest`` are never
cut out of their block. What is taken does not depend on how the bytes were split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from shim.framing import BOUND, ndjson, sniff, sse
from shim.framing.eventstream import Frame, FrameSplitter
from shim.framing.json_array import ArraySplitter
from shim.framing.json_members import MemberScanner
from shim.framing.ndjson import LineSplitter
from shim.framing.sse import SseSplitter
from shim.wires.counts import loads
from shim.wires.skim import Marks, Skim

# The first messages are always parsed, until one has named model and id (Azure names neither in its first).
HEAD_MESSAGES: Final = 8
# A JSON body up to this size is held and parsed at once; a larger one is scanned for its wanted members.
HOLD: Final = 1024 * 1024
DONE: Final = b"[DONE]"

Document = tuple[bytes, dict[str, Any]]
NOTHING: Final[Document] = (b"", {})


@dataclass(frozen=True, slots=True)
class Interest:
    """What a wire needs to see.

    ``marks``: a message of a stream that has one is parsed. ``lasting``: of messages whose usage a later message
    of the same block restates, those with one are parsed all the same. ``members``: paths that are kept of a body too
    large to hold.
    """

    marks: Marks
    lasting: Marks
    members: frozenset[tuple[str, ...]]


class Taker(Protocol):
    """Who gets the documents."""

    @property
    def interest(self) -> Interest:
        """What the wire needs to see."""

    @property
    def known(self) -> bool:
        """Whether model and id are known, so that messages without a mark have nothing more to say."""

    def settles(self, value: dict[str, Any]) -> bool:
        """Whether taking this document makes it irrelevant which running totals came before it."""

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        """Take one document; ``name`` is its event name, or ``DONE``."""

    def take_frame(self, frame: Frame) -> None:
        """Take one binary frame."""


class Body(Protocol):
    """The bytes of one framing."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""

    def finish(self) -> bool | None:
        """No more will come. Whether the framing itself says that the body is whole; ``None`` where it cannot say."""

    @property
    def dropped(self) -> int:
        """Messages past the bound or damaged."""


class MessageBody:
    """SSE or NDJSON: messages with a gap behind each."""

    def __init__(
        self,
        taker: Taker,
        splitter: SseSplitter | LineSplitter,
        gap: bytes,
        read: Callable[[bytes], Document],
        bound: int = BOUND,
    ) -> None:
        self._taker = taker
        self._splitter = splitter
        self._gap = gap
        self._read = read
        self._bound = bound
        self._skim = Skim(gap, taker.interest.marks, bound)
        self._unread = HEAD_MESSAGES

    @property
    def dropped(self) -> int:
        return self._splitter.dropped + self._skim.dropped

    def feed(self, data: bytes) -> None:
        block = self._splitter.feed(data)
        if block and self._unread:
            block = self._head(block)
        if block:
            self._take(self._skim.pick(block))

    def finish(self) -> bool:
        rest = self._splitter.finish()
        name, value = self._read(rest) if len(rest) <= self._bound else NOTHING
        if value or name:
            self._taker.take(name, value)
        return False

    def _head(self, block: bytes) -> bytes:
        """Take the first messages one by one; the rest of the block."""
        at = 0
        while self._unread and at < len(block):
            end = block.find(self._gap, at)
            end = len(block) if end < 0 else end
            name, value = self._read(block[at:end]) if end - at <= self._bound else NOTHING
            at = end + len(self._gap)
            if value or name:
                self._taker.take(name, value)
                self._unread = 0 if self._taker.known else self._unread - 1
        return block[at:]

    def _take(self, messages: list[bytes]) -> None:
        """Take the marked messages, but no running totals that a later one of them makes irrelevant."""
        documents: list[Document] = []
        settled = False
        for raw in reversed(messages):
            if settled and not self._taker.interest.lasting.within(raw):
                continue
            document = self._read(raw)
            if document[1] or document[0]:
                documents.append(document)
                settled = settled or self._taker.settles(document[1])
        for name, value in reversed(documents):
            self._taker.take(name, value)


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

    def finish(self) -> bool:
        if self._scanner is None:
            value = loads(bytes(self._held))
            if isinstance(value, dict):
                self._taker.take(b"", value)
                return True
            return self._salvage()
        return self._close(self._scanner)

    def _salvage(self) -> bool:
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


def sse_document(raw: bytes) -> Document:
    """Name and document of one event; ``NOTHING`` for keep-alives and whatever else is not a JSON object."""
    name, data = sse.parse_event(raw)
    if data == DONE:
        return DONE, {}
    value = loads(data) if data else None
    return (name, value) if isinstance(value, dict) else NOTHING


def line_document(raw: bytes) -> Document:
    """The document of one line."""
    value = loads(raw) if raw else None
    return (b"", value) if isinstance(value, dict) else NOTHING
