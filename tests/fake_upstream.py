"""A provider of raw bytes: what it sends is written in the test, byte for byte, and what it got can be looked at.

``FakeUpstream.script`` decides for each request what to do: a list of steps, each bytes to send, a pause in seconds, or
one of ``CLOSE`` (hang up) and ``WAIT`` (until the other side hangs up). The default answers ``{}``.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

CLOSE: Final = "close"
WAIT: Final = "wait"
Step = bytes | float | str
EMPTY: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@dataclass(slots=True)
class Got:
    """One request as it came. ``connection``: which connection it came on, from 1; ``hung_up``: the client left."""

    head: bytes
    body: bytes
    connection: int
    hung_up: bool = False
    resumed: bool = False  # its TLS session

    @property
    def target(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @property
    def header_lines(self) -> list[bytes]:
        return self.head.split(b"\r\n")[1:-2]


def chunked(*payloads: bytes) -> bytes:
    """Chunks without the last one."""
    return b"".join(b"%x\r\n%b\r\n" % (len(payload), payload) for payload in payloads)


def whole(body: bytes, status: str = "200 OK", *headers: str, content_type: str = "application/json") -> bytes:
    """A response with a Content-Length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def stream_head(*headers: str) -> bytes:
    """The head of a chunked event stream."""
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", *headers, "", ""]
    return "\r\n".join(lines).encode()


@dataclass(slots=True)
class FakeUpstream:
    """A context manager; serves on a thread of its own until it ends."""

    script: Callable[[Got], Sequence[Step]] = lambda got: [EMPTY]
    got: list[Got] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    # Whether bodies are read at all, and how they are read: a script may want to answer before one is over.
    read_bodies: bool = True
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None
    _started: threading.Event = field(default_factory=threading.Event)
    ssl: object = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self, *steps: Step) -> None:
        """Do the same for every request from now on."""
        self.script = lambda got: steps

    def answers_in_turn(self, *scripts: Sequence[Step]) -> None:
        """Do one after the other, then the last one again."""
        turns = iter(scripts)
        last = scripts[-1]
        self.script = lambda got: next(turns, last)

    def __enter__(self) -> FakeUpstream:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._started.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join(10)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26, backlog=512, ssl=self.ssl)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while await self._one(reader, writer, number):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        got = Got(head, b"", number)
        tls = writer.get_extra_info("ssl_object")
        got.resumed = tls is not None and tls.session_reused
        if self.read_bodies:
            got.body = await _body(reader, head)
        self.got.append(got)
        for step in self.script(got):
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif step == WAIT:
                got.hung_up = await reader.read(1) == b""
            else:
                return False
        return True


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if re.search(rb"\r\ntransfer-encoding: *chunked", head, re.IGNORECASE):
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return b"".join(parts)
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return await reader.readexactly(int(length[1])) if length else b""
