"""The client: keeps a number of calls going and says how long each took. No library between it and the socket."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

BODY = json.dumps(
    {
        "model": "bench-1",
        "messages": [
            {"role": "system", "content": "You are a careful assistant. " + "y" * 600},
            {"role": "user", "content": "hello"},
        ],
        "temperature": 0,
    },
    separators=(",", ":"),
).encode()
STREAMED = BODY[:-1] + b',"stream":true,"stream_options":{"include_usage":true}}'


@dataclass(slots=True)
class Times:
    """Seconds of every call: to its end, to its first byte, and between its events."""

    whole: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    failed: int = 0


class Client(asyncio.Protocol):
    """One connection that makes one call after the other."""

    def __init__(self, request: bytes, turns: list[int], times: Times, done: asyncio.Future[None]) -> None:
        self._request = request
        self._turns = turns
        self._times = times
        self._done = done
        self._length: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._call()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._times.failed += 1
            self._done.set_result(None)

    def _call(self) -> None:
        if not self._turns:
            self._done.set_result(None)
            self._transport.close()
            return
        self._turns.pop()
        self._got, self._last, self._length, self._tail = 0, 0.0, None, b""
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._last:
            self._times.between.append(now - self._last)
        else:
            self._times.first.append(now - self._began)
            head, _, rest = data.partition(b"\r\n\r\n")
            self._times.failed += b" 200 " not in head[:20]
            length = head.lower().find(b"content-length:")
            self._length = int(head[length + 15 :].split(b"\r\n", 1)[0]) if length >= 0 else None
            data = rest
        self._last = now
        self._got += len(data)
        self._tail = (self._tail + data)[-8:]
        if self._got >= self._length if self._length is not None else self._tail.endswith(b"\r\n0\r\n\r\n"):
            self._times.whole.append(now - self._began)
            self._call()


async def run(port: int, path: str, body: bytes, concurrency: int, calls: int) -> Times:
    """Make ``calls`` calls, ``concurrency`` at a time."""
    loop = asyncio.get_running_loop()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    request = f"{head}Authorization: Bearer sk-bench\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    times, turns = Times(), list(range(calls))
    ends = []
    for _ in range(concurrency):
        end = loop.create_future()
        await loop.create_connection(lambda end=end: Client(request, turns, times, end), "127.0.0.1", port)
        ends.append(end)
    await asyncio.gather(*ends)
    return times
