"""The slow way to read a stream: every message is cut out, parsed and taken. The fast way must say the same."""

from __future__ import annotations

import re

from shim.framing import sse
from shim.wires import Exchange, Reading
from shim.wires.counts import loads
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import DONE
from shim.wires.table import READERS


class PlainMessages:
    """All messages of a stream, parsed when it ends."""

    dropped = 0

    def __init__(self, reader: DocumentReader, gap: re.Pattern[bytes]) -> None:
        self._reader = reader
        self._gap = gap
        self._bytes = b""

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def finish(self) -> bool:
        for raw in self._gap.split(re.sub(rb"\r\n?", b"\n", self._bytes)):
            name, data = sse.parse_event(raw) if self._gap.pattern == rb"\n\n" else (b"", raw)
            value = loads(data)
            if data == DONE:
                self._reader.take(DONE, {})
            elif isinstance(value, dict):
                self._reader.take(name, value)
        return False


def read_plainly(wire: str, body: bytes, *, complete: bool = True) -> Reading:
    """What a stream says when every message is parsed; NDJSON for Ollama, SSE for the others."""
    gap, content_type = (rb"\n", "application/x-ndjson") if wire == "ollama" else (rb"\n\n", "text/event-stream")
    reader = READERS[wire](Exchange(200, content_type))
    assert isinstance(reader, DocumentReader)
    reader._body = PlainMessages(reader, re.compile(gap))
    reader.feed(body)
    return reader.finish(complete=complete)
