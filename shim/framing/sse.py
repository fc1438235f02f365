"""Server-sent events, read the way tolerant clients do.

Grammar: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream. Lines end in LF, CR or
CRLF, also when a read ends between the two; events end at a blank line. All line ends become LF here, which is safe:
JSON has no raw CR or LF inside a string. Unlike a browser, an observer keeps an event that the end of the body cut
off before its blank line; the caller uses it only if its data is complete.
"""

from __future__ import annotations

from typing import Final

from shim.framing import BOUND
from shim.framing.held import Held

GAP: Final = b"\n\n"


class SseSplitter:
    """Blocks of whole events, each event followed by a blank line, all line ends LF."""

    __slots__ = ("_after_cr", "_held")

    def __init__(self, bound: int = BOUND) -> None:
        self._held = Held(GAP, bound)
        self._after_cr = False

    @property
    def dropped(self) -> int:
        """Events past the bound."""
        return self._held.dropped

    def feed(self, data: bytes) -> bytes:
        """The events that are complete with ``data``; empty when there is none."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return self._held.feed(data)

    def finish(self) -> bytes:
        """The event that no blank line ended."""
        return self._held.finish()


def parse_event(raw: bytes) -> tuple[bytes, bytes]:
    """Name and data of one event. Comments, ``id`` and ``retry`` say nothing here; several data lines join by LF."""
    if raw.startswith(b"data:") and b"\n" not in raw:
        return b"", raw[5:].strip()
    name = b""
    data = []
    for line in raw.split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[5:])
        elif line.startswith(b"event:"):
            name = line[6:].strip()
    return name, b"\n".join(data).strip()
