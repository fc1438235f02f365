"""From body bytes to the JSON documents of one response, in order, for whichever framing the body turns out to have.

A body parses what can matter and passes over the rest: messages without a mark of the wire's ``Interest`` are never
cut out of their block. What is taken does not depend on how the bytes were split.
"""

from __future__ import annotations

from bisect import bisect_left
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
from shim.wires.marks import Marks, message_at, messages_at

# The first messages are always parsed, until one has named model and id (Azure names neither in its first).
HEAD_MESSAGES: Final = 8
# How much of a stream's end is kept to see how it ended.
LATE: Final = 8 * 1024
# So many marked messages in one block are taken for running totals.
FEW: Final = 2
# A JSON body up to this size is held and parsed at once; a larger one is scanned for its wanted members.
HOLD: Final = 1024 * 1024
DONE: Final = b"[DONE]"

Document = tuple[bytes, dict[str, Any]]
NOTHING: Final[Document] = (b"", {})


@dataclass(frozen=True, slots=True)
class Interest:
    """What a wire needs to see.

    ``marks``: a message of a stream that has one is parsed. ``endings``: the same for the last ``LATE`` bytes of a
    stream, which tell how it ended. ``lasting``: where one marked message restates the running totals of those before
    it in the block, the ones with such a mark are parsed all the same. ``members``: paths kept of a body too large to
    hold.
    """

    marks: Marks
    endings: Marks
    members: frozenset[tuple[str, ...]]
    lasting: Marks | None = None


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
        """Take all that one document says; ``name`` is its event name, or ``DONE``."""

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        """Take only what a document says of how the call ended."""

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
    """SSE or NDJSON: messages with a gap behind each.

    Parsed are: the first messages until model and id are known, every message with a mark, and for how the stream
    ended those of the last ``LATE`` bytes with an ending's mark.
    """

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
        self._read_document = read
        self._bound = bound
        self._oversize = 0
        self._unread = HEAD_MESSAGES
        self._late = b""
        self._length = 0

    @property
    def dropped(self) -> int:
        return self._splitter.dropped + self._oversize

    def feed(self, data: bytes) -> None:
        block = self._splitter.feed(data)
        if block:
            self._length += len(block)
            self._late = (block if len(block) >= LATE else self._late + block)[-LATE:]
            self._take(self._head(block) if self._unread else block)

    def finish(self) -> bool | None:
        self._close()
        self._give(self._read(self._splitter.finish()))
        return False

    def _read(self, raw: bytes) -> Document:
        if len(raw) > self._bound:
            self._oversize += 1
            return NOTHING
        return self._read_document(raw)

    def _head(self, block: bytes) -> bytes:
        """Take the first messages one by one; the rest of the block."""
        at = 0
        while self._unread and at < len(block):
            end = block.find(self._gap, at)
            end = len(block) if end < 0 else end  # of three blank lines one is left over
            document = self._read(block[at:end])
            at = end + len(self._gap)
            if document is not NOTHING:
                self._taker.take(*document)
                self._unread = 0 if self._taker.known else self._unread - 1
        return block[at:]

    def _take(self, block: bytes) -> None:
        """Take the marked messages of a block."""
        places = self._taker.interest.marks.places(block)
        if len(places) > FEW and self._taker.interest.lasting is not None:
            self._take_running(block, places, self._taker.interest.lasting)
            return
        for start, end in messages_at(block, self._gap, places):
            self._give(self._read(block[start:end]))

    def _take_running(self, block: bytes, places: list[int], lasting: Marks) -> None:
        """Take marked messages, but no running totals that a later message of the block restates."""
        documents: dict[int, Document] = {}
        for start, end in messages_at(block, self._gap, lasting.places(block)):
            if bisect_left(places, start) < bisect_left(places, end):
                documents[start] = self._read(block[start:end])
        after = len(block)
        for place in reversed(places):
            if place < after:
                after, end = message_at(block, self._gap, place)
                if after not in documents:
                    documents[after] = self._read(block[after:end])
                if self._taker.settles(documents[after][1]):
                    break
        for start in sorted(documents):
            self._give(documents[start])

    def _close(self) -> None:
        """Read how the stream ended. Of a stream longer than what is kept, the first message kept may be cut."""
        late = self._late
        if self._length > LATE:
            late = late[late.find(self._gap) + len(self._gap) :]
        for start, end in messages_at(late, self._gap, self._taker.interest.endings.places(late)):
            document = self._read(late[start:end])
            if document is not NOTHING:
                self._taker.close(*document)

    def _give(self, document: Document) -> None:
        if document is not NOTHING:
            self._taker.take(*document)


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
