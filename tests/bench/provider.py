"""A provider that costs little: whole answers and streams, the pace told by the path.

``/plain/…`` answers with about 2 KB; ``/stream-<events>-<milliseconds>/…`` sends that many events of about 300 bytes,
so far apart; ``/big-<bytes>/…`` sends that many bytes. Run as ``python -m tests.bench.provider PORT``.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

TEXT = "x" * 180
PLAIN = json.dumps(
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "model": "bench-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "x" * 1600}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 200, "completion_tokens": 400, "total_tokens": 600},
    }
).encode()
PLAIN_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(PLAIN),
    PLAIN,
)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(value: object) -> bytes:
    data = b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


BASE = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "model": "bench-1"}
EVENT = chunk({**BASE, "choices": [{"index": 0, "delta": {"content": TEXT}, "finish_reason": None}], "usage": None})
LAST = (
    chunk({**BASE, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None})
    + chunk({**BASE, "choices": [], "usage": {"prompt_tokens": 200, "completion_tokens": 400, "total_tokens": 600}})
    + chunk(b"[DONE]")
    + b"0\r\n\r\n"
)
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Provider(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._skip = 0
        self._room = asyncio.Event()
        self._room.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        if self._skip:
            self._skip -= len(data)
            if self._skip <= 0:
                self._answer()
            return
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._data[:end])
        length = LENGTH.search(head)
        self._path = head.split(b" ", 2)[1].decode()
        self._skip = (int(length[1]) if length else 0) - (len(self._data) - end - 4)
        self._data.clear()
        if self._skip <= 0:
            self._answer()

    def _answer(self) -> None:
        self._skip = 0
        what, *numbers = self._path.split("/")[1].split("-")
        if what == "plain":
            self.transport.write(PLAIN_ANSWER)
            return
        work = self._stream(*map(int, numbers)) if what == "stream" else self._big(int(numbers[0]))
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stream(self, events: int, milliseconds: int) -> None:
        self.transport.write(STREAM_HEAD)
        for _ in range(events):
            self.transport.write(EVENT)
            await asyncio.sleep(milliseconds / 1000)
            await self._room.wait()
        self.transport.write(LAST)

    async def _big(self, size: int) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size >> 16):
            self.transport.write(b" " * (1 << 16))
            await self._room.wait()


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Provider, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(int(sys.argv[1])))
