"""A provider that does what the first segment of the path says, and remembers every call it got.

``/plain/v1/chat/completions`` answers whole; ``stream`` streams; ``drip`` streams until ``release``; ``hang`` never
answers; ``pending`` says that a background response is still to be made and ``short`` the same without its last byte;
``cut`` closes in the middle of a stream and ``refuse`` before any byte; ``error`` is a 500; ``big-<bytes>`` sends that
many bytes. The rest of the path says the wire (``tests.faults.shapes``).
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from typing import Any

from tests.faults.shapes import Shape, shape_of

TAIL = "v1/chat/completions"
CHUNK = 1 << 16


class Upstream:
    """A context manager; serves on a thread of its own until it ends."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.finished: set[str] = set()
        self.hung_up: set[str] = set()
        self.body_bytes: dict[str, int] = {}
        self.release = threading.Event()
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = threading.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Upstream:
        self._thread.start()
        self._started.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self.release.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connection, "127.0.0.1", 0, limit=1 << 20, backlog=1024)
        )
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._call(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        target = head.split(" ", 2)[1]
        body, size = await _body(reader, head)
        found = re.search(rb"\bm-\d+", target.encode() + b" " + body)
        marker = found.group().decode() if found else "m-0"
        self.calls[marker] += 1
        self.body_bytes[marker] = size
        try:
            return await self._answer(target.split("/")[1], shape_of(target), marker, reader, writer)
        except OSError:
            self.hung_up.add(marker)
            raise

    async def _answer(
        self, what: str, shape: Shape, marker: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if what == "refuse":
            return False
        if what == "hang":
            await reader.read(1)
            self.hung_up.add(marker)
            return False
        if what == "plain":
            writer.write(_whole(200, shape.whole(marker)))
        elif what == "pending":
            writer.write(_whole(200, shape.whole(marker) | {"status": "queued", "usage": None}))
        elif what == "short":
            writer.write(_whole(200, shape.whole(marker) | {"status": "queued", "usage": None})[:-1])
            await reader.read(1)
            return False
        elif what == "error":
            writer.write(_whole(500, {"error": {"message": "on purpose", "type": "server_error"}}))
        elif what.startswith("big"):
            await self._big(int(what.partition("-")[2]), writer)
        else:
            return await self._stream(what, shape, marker, reader, writer)
        await writer.drain()
        self.finished.add(marker)
        return True

    async def _stream(
        self, what: str, shape: Shape, marker: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {shape.content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode() + _chunked(shape.begin(marker)))
        for n in range(5 if what != "drip" else 1_000_000):
            writer.write(_chunked(shape.middle(marker, n)))
            await asyncio.sleep(0.02 if what == "drip" else 0.002)
            if reader.at_eof() or reader.exception():
                self.hung_up.add(marker)
                return False
            if what == "drip" and self.release.is_set():
                break
        if what == "cut":
            return False
        writer.write(_chunked(shape.end(marker)) + b"0\r\n\r\n")
        await writer.drain()
        self.finished.add(marker)
        return True

    async def _big(self, size: int, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n".encode())
        block = b" " * CHUNK
        for _ in range(size // CHUNK):
            writer.write(block)
            await writer.drain()
        writer.write(b" " * (size % CHUNK))


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole(status: int, value: dict[str, Any]) -> bytes:
    data = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


async def _body(reader: asyncio.StreamReader, head: str) -> tuple[bytes, int]:
    """The first bytes of a request body and its size; the rest is read and let go."""
    if "transfer-encoding: chunked" in head.lower():
        first, size = b"", 0
        while length := int(await reader.readuntil(b"\r\n"), 16):
            data = await reader.readexactly(length + 2)
            first, size = (first + data[:-2])[:CHUNK], size + length
        await reader.readuntil(b"\r\n")
        return first, size
    found = re.search(r"content-length: *(\d+)", head, re.IGNORECASE)
    left = size = int(found.group(1)) if found else 0
    first = b""
    while left:
        data = await reader.read(min(left, CHUNK * 4))
        if not data:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(data)
        first = first or data
    return first, size
