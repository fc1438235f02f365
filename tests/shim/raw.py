"""Raw sockets for tests: what is sent and what comes back, byte for byte."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
PATH = "/picoclaw/openai/v1/chat/completions"


def connect(url: str, seconds: float = 10) -> socket.socket:
    """A connection to the host and port of ``url``."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def request(url: str, body: bytes = b"{}", *headers: str, path: str = PATH, method: str = "POST") -> bytes:
    """A request with a Content-Length, as bytes."""
    host = urlsplit(url).netloc
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def exchange(url: str, sent: bytes) -> bytes:
    """Send, and give everything that comes until the other side closes."""
    with connect(url) as connection:
        connection.sendall(sent)
        return rest_of(connection)


def rest_of(connection: socket.socket) -> bytes:
    """Everything until the other side closes; a reset ends it too."""
    parts = []
    try:
        while data := connection.recv(1 << 16):
            parts.append(data)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """What comes up to and with ``mark``."""
    data = b""
    while mark not in data:
        more = connection.recv(1 << 16)
        assert more, data
        data += more
    return data


def read_response(connection: socket.socket) -> bytes:
    """One response with a Content-Length."""
    data = read_until(connection, b"\r\n\r\n")
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    assert length is not None, head
    while len(body) < int(length[1]):
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def status_of(response: bytes) -> int:
    """The status of a response as bytes."""
    return int(response.split(b" ", 2)[1])


def eventually(check: Callable[[], T], seconds: float = 8) -> T:
    """The first true value that ``check`` gives."""
    until = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < until, value
        time.sleep(0.01)
    return value
