"""A client's request as it was parsed, and the request head that an upstream gets for it.

What is forwarded is what came: field names in their case and order, values, duplicates and the encoding of the target.
Left out are the fields that belong to one connection (RFC 9110 section 7.6.1); only the Host becomes the upstream's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp.streams import StreamReader
from multidict import CIMultiDictProxy

from shim.guard import SECRET_HEADER

# Expect is answered by us, as the body is read here before it is sent on.
LEFT_OUT: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authorization",
        b"te",
        b"upgrade",
        b"expect",
        b"transfer-encoding",
        SECRET_HEADER.encode(),
    }
)
SPECIAL: Final = LEFT_OUT | {b"host", b"content-length"}
# What the client's Connection field may not make us drop: framing and routing are ours.
KEPT: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
UPGRADE: Final = (b"Connection: Upgrade",)


class Request:
    """One request. ``raw_headers``: names and values as they came; ``headers``: the same by name, case ignored.

    ``payload``: the body's reader; ``chunked``: whether the body has no length; ``upgrade``: a WebSocket handshake.
    """

    __slots__ = ("chunked", "headers", "keep_alive", "method", "payload", "raw_headers", "target", "upgrade", "version")

    def __init__(
        self,
        method: str,
        target: str,
        version: tuple[int, int],
        raw_headers: Sequence[tuple[bytes, bytes]],
        headers: CIMultiDictProxy[str],
        payload: StreamReader,
        chunked: bool,
        keep_alive: bool,
        upgrade: bool = False,
    ) -> None:
        self.method = method
        self.target = target
        self.version = version
        self.raw_headers = raw_headers
        self.headers = headers
        self.payload = payload
        self.chunked = chunked
        self.keep_alive = keep_alive
        self.upgrade = upgrade

    @property
    def length(self) -> int | None:
        """The body's Content-Length in bytes, ``None`` where it has none."""
        value = self.headers.get("Content-Length")
        return None if value is None else int(value)

    def head(
        self,
        target: str,
        authority: str,
        *,
        length: int | None,
        drop: frozenset[bytes] = frozenset(),
        add: Sequence[str] = (),
    ) -> bytes:
        """The head for the upstream.

        ``length``: of the body as it is sent, ``None`` for a body in chunks; ``drop``: further names to leave out;
        ``add``: lines to put at the end.
        """
        lines = [f"{self.method} {target} HTTP/1.1".encode("utf-8", "surrogateescape")]
        special = SPECIAL | drop if drop else SPECIAL
        if "Connection" in self.headers:
            named = ",".join(self.headers.getall("Connection"))
            special = special | ({name.strip().lower().encode() for name in named.split(",")} - KEPT)
        for name, value in self.raw_headers:
            lower = name.lower()
            if lower not in special:
                lines.append(name + b": " + value)
            elif lower == b"host":
                lines.append(name + b": " + authority.encode())
            elif lower == b"content-length":
                lines.append(b"%b: %d" % (name, length or 0))
            elif lower == b"transfer-encoding":
                lines.append(name + b": chunked" if length is None else b"Content-Length: %d" % length)
            elif lower == b"upgrade" and self.upgrade:
                lines += (name + b": " + value, *UPGRADE)
        if "Host" not in self.headers:
            lines.insert(1, b"Host: " + authority.encode())
        lines += [line.encode("latin-1") for line in add]
        return b"\r\n".join(lines) + b"\r\n\r\n"
