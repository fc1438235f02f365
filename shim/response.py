"""An upstream's HTTP/1.1 response, sans I/O: its head, and where its body ends.

The body's bytes are not touched here: a walk over them finds the end and the payload between the framing, so that the
relay can pass on what it got and the meter sees what it means. Rules are those of RFC 9112 sections 6 and 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

MAX_HEAD: Final = 1 << 18  # as generous as no real upstream needs
MAX_LINE: Final = 1 << 14
MAX_TRAILER: Final = 1 << 16
# RFC 9110 section 7.6.1; a trailer section passes, so the field that announces it does too.
HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"upgrade"}
)
NONE: Final[frozenset[bytes]] = frozenset()
FRAMING: Final = frozenset({b"transfer-encoding", b"content-length"})
STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-9]\d\d)(?: [^\r\n]*)?(?:\r\n|\Z)")
# What decides how a response is framed, passed on and read; found in one search instead of taking every line apart.
SPECIAL: Final = re.compile(
    rb"\r\n(content-length|transfer-encoding|content-type|content-encoding|connection|keep-alive|proxy-connection"
    rb"|proxy-authenticate|te|upgrade):[ \t]*([^\r\n]*?)[ \t]*(?=\r\n|\Z)",
    re.IGNORECASE,
)
# Sizes that were read before: looking one up is half the work of reading it, and streams have many alike.
SIZES: Final[dict[bytes, int]] = {}
SIZES_KEPT: Final = 4096
SIZE_LINE: Final = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


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
        if self._trailer:
            return self._walk_trailer(data, 0) - carried
        position, size, left = 0, len(data), self._left
        find, known = data.find, SIZES.get
        while position < size:
            if not left:
                line_end = find(b"\r\n", position)
                length = known(data[position:line_end]) if line_end >= 0 else None
                if length is None:
                    length, line_end = self._size(data, position)
                    if length is None:
                        return size - carried
                position = line_end + 2
                if not length:
                    return self._walk_trailer(data, position) - carried
                left = length + 2
            end = position + left
            if end > size:
                stop = end - 2 if end - 2 < size else size
                if stop > position:
                    payload.append(data[position:stop])
                self._left = end - size
                return size - carried
            if left > 2:  # else only the end of the CRLF was to come
                payload.append(data[position : end - 2])
            position, left = end, 0
        self._left = left
        return size - carried

    def _size(self, data: bytes, position: int) -> tuple[int | None, int]:
        """A chunk's size and where its line's CRLF begins; ``None`` where the line goes on in the next bytes."""
        self._left = 0
        line = SIZE_LINE.match(data, position)
        if line is None:
            if data.find(b"\n", position) >= 0 or len(data) - position > MAX_LINE:
                raise BadResponse("a chunk size is not a number")
            self._carry = data[position:]
            return None, 0
        length = int(line[1], 16)
        if len(SIZES) < SIZES_KEPT and line[1] == data[position : line.end() - 2]:
            SIZES[line[1]] = length
        return length, line.end() - 2

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


class Head:
    """The head of a response, kept as the bytes it came in.

    ``body``: finds the body's end. ``reusable``: whether the connection outlives the response. ``chunked``: whether the
    body is in chunks; ``to_close``: whether only closing ends it.
    """

    __slots__ = ("_data", "_special", "body", "chunked", "reusable", "status", "to_close")

    def __init__(self, data: bytes, status: int, special: dict[bytes, bytes]) -> None:
        self._data = data
        self._special = special
        self.status = status
        self.body: Body = UntilClose()
        self.reusable = data[7:8] == b"1"
        self.chunked = False
        self.to_close = False

    def special(self, name: bytes) -> str:
        """The value of one of the ``SPECIAL`` fields, empty where it is absent."""
        return self._special.get(name, b"").decode("latin-1")

    @property
    def fields(self) -> Mapping[str, str]:
        """Every field, lower-case name to value; read when looked at, as most calls never are."""
        return Fields(self._data)

    def encode(self, *, close: bool, drop: Iterable[bytes] = (), add: Iterable[bytes] = ()) -> bytes:
        """The head for the client: ours in version and connection, the upstream's in everything else.

        ``drop``: lower-case names of fields to leave out; ``add``: lines to put at the end.
        """
        data = self._data
        dropped = self._dropped()
        if dropped or drop:
            dropped = dropped.union(drop)
            first, *lines = data.split(b"\r\n")
            data = b"\r\n".join([first, *(line for line in lines if _name(line) not in dropped)])
        if close:
            add = (*add, b"Connection: close")
        return b"\r\n".join((b"HTTP/1.1" + data[8:], *add, b"", b""))

    def _dropped(self) -> frozenset[bytes]:
        """Lower-case names of fields that belong to the upstream's connection."""
        special = self._special
        if special.keys().isdisjoint(HOP_BY_HOP) and not self.chunked:
            return NONE
        dropped = HOP_BY_HOP.intersection(special)
        if b"connection" in special:
            named = (name.strip().lower() for name in special[b"connection"].split(b","))
            dropped = dropped.union(named) - FRAMING
        if self.chunked and b"content-length" in special:
            dropped = dropped.union((b"content-length",))
        return dropped


class Fields(Mapping[str, str]):
    """The fields of a head by lower-case name; several of one name are joined by a comma."""

    __slots__ = ("_data", "_read")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._read: dict[str, str] | None = None

    def __getitem__(self, name: str) -> str:
        return self._fields()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields())

    def __len__(self) -> int:
        return len(self._fields())

    def _fields(self) -> dict[str, str]:
        if self._read is None:
            self._read = {}
            for line in self._data.decode("latin-1").split("\r\n")[1:]:
                name, _, value = line.partition(":")
                name, value = name.lower(), value.strip(" \t")
                self._read[name] = f"{self._read[name]}, {value}" if name in self._read else value
        return self._read


def parse_head(data: bytes, method: str) -> Head:
    """The head whose bytes, without the empty line that ends it, are ``data``. Raises ``BadResponse``."""
    matched = STATUS_LINE.match(data)
    if matched is None:
        raise BadResponse("the status line is not HTTP/1.1")
    if data.count(b"\n") != data.count(b"\r\n"):
        raise BadResponse("a line feed in a header line, which a client might take for its end")
    special: dict[bytes, bytes] = {}
    for name, value in SPECIAL.findall(data):
        name = name.lower()
        special[name] = value if name not in special else special[name] + b", " + value
    head = Head(data, int(matched[1]), special)
    _frame(head, method)
    return head


def _frame(head: Head, method: str) -> None:
    """Decide how the body ends (RFC 9112 section 6.3) and whether the connection may be used again."""
    special = head._special
    if b"connection" in special:
        connection = special[b"connection"].lower()
        if b"close" in connection:
            head.reusable = False
        elif b"keep-alive" in connection:
            head.reusable = True
    coding = special.get(b"transfer-encoding")
    length = special.get(b"content-length")
    if method == "HEAD" or head.status < 200 or head.status in (204, 304):
        head.body = Counted(0)
    elif coding is None and length is not None:
        head.body = Counted(_length(length))
    elif coding is not None and coding.lower().rpartition(b",")[2].strip() == b"chunked":
        head.chunked = True
        head.body = Chunked()
        head.reusable = head.reusable and length is None
    else:
        head.to_close = True
        head.reusable = False


def _length(value: bytes) -> int:
    """A Content-Length; one that is repeated must be the same each time."""
    if b"," in value:
        lengths = {part.strip() for part in value.split(b",")}
        value = lengths.pop() if len(lengths) == 1 else b""
    if not value.isdigit() or len(value) > 18:
        raise BadResponse("the Content-Length is not one number")
    return int(value)


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].lower()
