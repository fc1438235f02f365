"""Clients that make calls of every wire, and leave some of them at a random moment."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.faults.shapes import SHAPES, Shape
from tests.soak.lane import Lane

# What the upstream does -> weight, and whether the client leaves before the end.
PLANS: Final = (
    ("plain", False, 45),
    ("stream", False, 28),
    ("stream", True, 6),
    ("drip", True, 6),
    ("hang", True, 3),
    ("cut", False, 5),
    ("error", False, 4),
    ("refuse", False, 3),
)
THINK_SECONDS: Final = 0.02
CALL_SECONDS: Final = 30.0


@dataclass(slots=True)
class Made:
    """What the clients of one lane saw. ``whole``: markers of calls whose 200 came to its end."""

    whole: set[str] = field(default_factory=set)
    plans: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    next_number: int = 0

    def marker(self) -> str:
        self.next_number += 1
        return f"m-{self.next_number}"


class Client:
    """One client: calls one after the other, over a connection that is kept while it lasts."""

    def __init__(self, lane: Lane, made: Made, dice: random.Random) -> None:
        self._lane = lane
        self._made = made
        self._dice = dice
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, until: asyncio.Event) -> None:
        while not until.is_set():
            what, leaves, _ = self._dice.choices(PLANS, [weight for *_, weight in PLANS])[0]
            marker = self._made.marker()
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await self._call(what, leaves, marker)
                self._made.plans[f"{what}{', left' if leaves else ''}"] += 1
            except (OSError, EOFError, TimeoutError) as error:
                self._made.broken[type(error).__name__] += 1
                self._drop()
            await asyncio.sleep(self._dice.random() * 2 * THINK_SECONDS)
        self._drop()

    async def _call(self, what: str, leaves: bool, marker: str) -> None:
        shape = self._dice.choice(SHAPES)
        stream = what not in ("plain", "error")
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._lane.port)
        reader, writer = self._streams
        writer.write(self._request(shape, what, marker, stream))
        await writer.drain()
        if leaves:
            await self._leave(reader)
            return
        status, keeps = await _read_whole(reader)
        if status == 200:
            self._made.whole.add(marker)
        if not keeps:
            self._drop()

    async def _leave(self, reader: asyncio.StreamReader) -> None:
        """Go away before, at or after the first bytes."""
        try:
            async with asyncio.timeout(self._dice.random() * 0.2):
                for _ in range(self._dice.randrange(4)):
                    await reader.read(200)
                await asyncio.sleep(1)
        except TimeoutError:
            pass
        self._drop()

    def _request(self, shape: Shape, what: str, marker: str, stream: bool) -> bytes:
        body = json.dumps(shape.request(marker, stream)).encode()
        target = f"/picoclaw/{shape.upstream}/{what}/{shape.path(marker, stream)}"
        head = (
            f"POST {target} HTTP/1.1\r\nhost: 127.0.0.1:{self._lane.port}\r\nauthorization: Bearer sk-soak\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _drop(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _read_whole(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """Read one response to its end: status, and whether the connection stays. Raises ``EOFError`` where it is cut."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding: chunked" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    else:
        await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
    return int(head.split(b" ")[1]), b"connection: close" not in head
