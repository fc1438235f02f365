"""SSE and NDJSON: the messages of a stream that can matter are parsed, the rest is never cut out of its block.

What is taken does not depend on how the bytes were split.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from shim.framing import BOUND, sse
from shim.framing.ndjson import LineSplitter
from shim.framing.sse import SseSplitter
from shim.wires.counts import loads
from shim.wires.documents import DONE, NOTHING, Document, Taker
from shim.wires.marks import Marks, message_at, messages_at

# The first messages are always parsed, until one has named model and id (Azure names neither in its first).
HEAD_MESSAGES: Final = 8
# How much of a stream's end is kept to see how it ended.
LATE: Final = 8 * 1024
# So many marked messages in one block are taken for running totals.
FEW: Final = 2


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
