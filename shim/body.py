"""A request's body on its way: read whole within a bound, or passed on in pieces at the pace of the upstream."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError

from shim.request import Request

# How long a client may send nothing in the middle of a body.
STALLED_SECONDS: Final = 60.0
LAST_CHUNK: Final = b"0\r\n\r\n"


class BodyError(Exception):
    """The body did not come as it should: the client stalled, or broke the framing. ``status``: what to answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


async def read_up_to(request: Request, limit: int) -> tuple[list[bytes], bool]:
    """The body's pieces up to somewhat more than ``limit`` bytes, and whether that is all. Raises ``BodyError``."""
    pieces: list[bytes] = []
    size = 0
    while size <= limit:
        piece = await _next_piece(request)
        if not piece:
            return pieces, True
        pieces.append(piece)
        size += len(piece)
    return pieces, False


class Upload:
    """Passes a body on to an upstream as it comes. ``over``: all of it has been sent."""

    def __init__(self, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        self.over = False
        self._request = request
        self._loop = loop
        self._gate: asyncio.Future[None] | None = None  # closed while the upstream takes no more

    async def run(self, transport: asyncio.Transport, begun: list[bytes]) -> None:
        """Send ``begun``, then the rest as it comes. Raises ``BodyError``."""
        chunked = self._request.length is None
        for piece in begun:
            await self._send(transport, piece, chunked=chunked)
        begun.clear()
        while piece := await _next_piece(self._request):
            await self._send(transport, piece, chunked=chunked)
        if chunked and not transport.is_closing():
            transport.write(LAST_CHUNK)
        self.over = True

    def paused(self) -> None:
        """The upstream takes no more for now."""
        if self._gate is None:
            self._gate = self._loop.create_future()

    def resumed(self) -> None:
        """The upstream takes bytes again."""
        gate, self._gate = self._gate, None
        if gate is not None and not gate.done():
            gate.set_result(None)

    async def _send(self, transport: asyncio.Transport, piece: bytes, *, chunked: bool) -> None:
        if transport.is_closing():
            return  # what the upstream said before it closed, or that it said nothing, ends the call
        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if self._gate is not None:
            await self._gate


async def _next_piece(request: Request) -> bytes:
    """The next bytes of the body, empty at its end. Raises ``BodyError``."""
    try:
        async with asyncio.timeout(STALLED_SECONDS):
            return await request.payload.readany()
    except TimeoutError:
        raise BodyError(408, "timeout", "The request body did not come in time.") from None
    except HttpProcessingError as error:
        raise BodyError(400, "malformed", "The request body is not well-formed.") from error
