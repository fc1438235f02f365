"""An upstream's HTTP/1.1 response, sans I/O: its head, and where its body ends.

The body's bytes are not touched here: a walk over them finds the end and the payload between the framing, so that the
relay can pass on what it got and the meter sees what it means. Rules are those of RFC 9112 sections 6 and 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

MAX_HEAD: Final = 1 << 18  # as generous as no real upstream needs
MAX_LINE: Final = 1 << 14
MAX_TRAILER: Final = 1 << 16
# RFC 9110 section 7.6.1; a trailer section passes, so the field that announces it does too.
HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"upgrade"}
)
FRAMING: Final = frozenset({b"transfer-encoding", b"content-length"})
STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?")
SIZE_LINE: Final = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")


class BadResponse(Exception):
    """The upstream's answer is not HTTP that can be passed on."""


class Body(Protocol):
    """Finds the end of one body. ``ended``: whether it came."""

    ended: bool

    def walk(self, data: bytes, payload: list[bytes]) -> int:
        """Take the next bytes; payload pieces are appended. How many bytes of ``data`` belong to this response."""


class Counted:
    """A body with a Content-Length; length 0 where there is none (HEAD, 204, 304)."""

    __slots__ = ("_left", "ended")

    def __init__(self, length: int) -> None:
        self._left = length
        self.ended = length == 0

    def walk(self, data: bytes, payload: list[bytes]) -> int:
        used = len(data)
        if used < self._left:
            self._left -= used
        else:
            used = self._left
            data = data if used == len(data) else data[:used]
            self._left = 0
            self.ended = True
        if used:
            payload.append(data)
        return used


class UntilClose:
    """A body that the upstream ends by closing."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False

    def walk(self, data: bytes, payload: list[bytes]) -> int:
        payload.append(data)
        return len(data)


class Chunked:
    """A chunked body; size lines, CRLFs and trailers may be split anywhere."""

    __slots__ = ("_carry", "_left", "_trailer", "ended")

    def __init__(self) -> None:
        self._left = 0  # bytes to come of the chunk we are in, its CRLF included
        self._carry = b""  # the beginning of a size line or of the trailer
        self._trailer = False
        self.ended = False

    def walk(self, data: bytes, payload: list[bytes]) -> int:
        carried = len(self._carry)
        if carried:
            data, self._carry = self._carry + data, b""
        position, size = 0, len(data)
        if self._trailer:
            return self._walk_trailer(data, 0) - carried
        left = self._left
        while position < size:
            if left:
                end = position + left
                stop = end - 2 if end - 2 < size else size
                if stop > position:
                    payload.append(data[position:stop])
                if end > size:
                    self._left = end - size
                    return size - carried
                position, left = end, 0
                continue
            line = SIZE_LINE.match(data, position)
            if line is None:
                self._left = 0
                return self._keep_line(data, position) - carried
            position = line.end()
            left = int(line[1], 16) + 2
            if left == 2:
                return self._walk_trailer(data, position) - carried
        self._left = left
        return size - carried

    def _keep_line(self, data: bytes, position: int) -> int:
        if data.find(b"\n", position) >= 0 or len(data) - position > MAX_LINE:
            raise BadResponse("a chunk size is not a number")
        self._carry = data[position:]
        return len(data)

    def _walk_trailer(self, data: bytes, position: int) -> int:
        """The end of the last chunk's trailer section, which an empty line closes."""
        self._left = 0
        self._trailer = True
        if data.startswith(b"\r\n", position):
            self.ended = True
            return position + 2
        end = data.find(b"\r\n\r\n", position)
        if end >= 0:
            self.ended = True
            return end + 4
        if len(data) - position > MAX_TRAILER:
            raise BadResponse("the trailer section is too long")
        self._carry = data[position:]
        return len(data)


@dataclass(slots=True)
class Head:
    """The head of a response. ``fields``: lower-case names to values, several joined by a comma.

    ``body``: finds the body's end. ``reusable``: whether the connection outlives the response.
    ``chunked``: whether the body is in chunks; ``to_close``: whether only closing ends it.
    """

    status: int
    status_line: bytes
    lines: list[tuple[bytes, bytes]]  # lower-case name, line as it came
    fields: dict[bytes, bytes]
    body: Body
    reusable: bool
    chunked: bool
    to_close: bool

    def text_fields(self) -> dict[str, str]:
        """``fields`` as text, for whoever reads their meaning."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self.fields.items()}

    def field(self, name: bytes) -> str:
        """The value of one field, empty where it is absent."""
        return self.fields.get(name, b"").decode("latin-1")

    def encode(self, *, close: bool, drop: Iterable[bytes] = (), add: Iterable[bytes] = ()) -> bytes:
        """The head for the client: ours in version and connection, the upstream's in everything else.

        ``drop``: lower-case names of fields to leave out; ``add``: lines to put at the end.
        """
        fields = self.fields
        dropped: frozenset[bytes] | set[bytes] = HOP_BY_HOP
        if b"connection" in fields:
            named = {name.strip().lower() for name in fields[b"connection"].split(b",")}
            dropped = dropped | (named - FRAMING)
        if self.chunked and b"content-length" in fields:
            dropped = dropped | {b"content-length"}
        if drop:
            dropped = dropped | set(drop)
        kept = [line for name, line in self.lines if name not in dropped]
        if close:
            kept.append(b"Connection: close")
        return b"\r\n".join((b"HTTP/1.1" + self.status_line[8:], *kept, *add, b"", b""))


def parse_head(data: bytes, method: str) -> Head:
    """The head whose bytes, without the empty line that ends it, are ``data``. Raises ``BadResponse``."""
    first, *rest = data.split(b"\r\n")
    matched = STATUS_LINE.fullmatch(first)
    if matched is None:
        raise BadResponse("the status line is not HTTP/1.1")
    status = int(matched[2])
    lines: list[tuple[bytes, bytes]] = []
    fields: dict[bytes, bytes] = {}
    for line in rest:
        name, colon, value = line.partition(b":")
        if not colon or b"\n" in line or b"\r" in line:
            raise BadResponse("a header line has no name")
        name = name.lower()
        value = value.strip(b" \t")
        lines.append((name, line))
        fields[name] = value if name not in fields else fields[name] + b", " + value
    return _framed(Head(status, first, lines, fields, UntilClose(), matched[1] == b"1", False, False), method)


def _framed(head: Head, method: str) -> Head:
    """Decide how the body ends (RFC 9112 section 6.3) and whether the connection may be used again."""
    fields = head.fields
    connection = fields.get(b"connection", b"").lower()
    if b"close" in connection:
        head.reusable = False
    elif b"keep-alive" in connection:
        head.reusable = True
    coding = fields.get(b"transfer-encoding")
    length = fields.get(b"content-length")
    if method == "HEAD" or head.status < 200 or head.status in (204, 304):
        head.body = Counted(0)
    elif coding is not None and coding.lower().rpartition(b",")[2].strip() == b"chunked":
        head.chunked = True
        head.body = Chunked()
        head.reusable = head.reusable and length is None
    elif length is not None and coding is None:
        head.body = Counted(_length(length))
    else:
        head.to_close = True
        head.reusable = False
    return head


def _length(value: bytes) -> int:
    """A Content-Length; one that is repeated must be the same each time."""
    lengths = {part.strip() for part in value.split(b",")}
    length = lengths.pop()
    if lengths or not length.isdigit() or len(length) > 18:
        raise BadResponse("the Content-Length is not one number")
    return int(length)
