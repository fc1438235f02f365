"""A client on a bare socket, so that a test decides when it sends, reads and hangs up."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

from tests.e2e.programs import Shim
from tests.faults.shapes import CHAT
from tests.faults.upstream import TAIL


class Call:
    """One call through the shim. ``what``: what the upstream is to do; ``marker``: the model that names the call."""

    def __init__(self, shim: Shim, what: str, marker: str, stream: bool = True, runtime: str = "picoclaw") -> None:
        self.marker = marker
        self.host = urlsplit(shim.url).netloc
        self.socket = socket.create_connection(("127.0.0.1", urlsplit(shim.url).port or 0), timeout=20)
        data = json.dumps(CHAT.request(marker, stream)).encode()
        self.socket.sendall(self.head(f"/{runtime}/openai/{what}/{TAIL}", len(data)) + data)

    def head(self, target: str, length: int) -> bytes:
        lines = (
            f"POST {target} HTTP/1.1",
            f"host: {self.host}",
            "authorization: Bearer sk-test",
            "content-type: application/json",
            f"content-length: {length}",
        )
        return "\r\n".join([*lines, "", ""]).encode()

    def read_until(self, wanted: bytes) -> bytes:
        """What came up to ``wanted``; fails where the other side closes before."""
        data = b""
        while wanted not in data:
            more = self.socket.recv(65536)
            assert more, f"closed after {data!r}"
            data += more
        return data

    def rest(self) -> bytes:
        """Everything until the other side closes."""
        data = b""
        try:
            while more := self.socket.recv(65536):
                data += more
        except ConnectionResetError:
            pass
        return data

    def status(self) -> int:
        return int(self.read_until(b"\r\n").split(b" ")[1])

    def hang_up(self) -> None:
        self.socket.close()

    def __del__(self) -> None:
        """Calls that a test leaves open end with it."""
        self.socket.close()
