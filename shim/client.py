"""The client's side of a connection: aiohttp's parser reads requests, one call at a time answers them.

aiohttp's request parser is used without its server: a request that is whole in one read goes upstream within that
read, without a task, and the answer's bytes are written by whoever has the call. Reading stops while a body is not
taken or requests pile up; writing tells the call when the client is slow. A client that closes ends its call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong
from aiohttp.streams import StreamReader

from shim import errors
from shim.request import Request

if TYPE_CHECKING:
    from aiohttp.base_protocol import BaseProtocol

MAX_LINE: Final = 1 << 16
MAX_FIELD: Final = 1 << 16
MAX_FIELDS: Final = 256
# Of one head in all: aiohttp bounds each line and their number, this bounds what they make together.
MAX_HEAD: Final = 1 << 18
BODY_BUFFER: Final = 1 << 16
PIPELINE: Final = 8
HEAD_SECONDS: Final = 30.0
IDLE_SECONDS: Final = 75.0
LINGER_SECONDS: Final = 2.0


class Answering(Protocol):
    """The call that answers a request."""

    def client_lost(self) -> None:
        """The client closed."""

    def client_broke(self) -> None:
        """The client's bytes are no longer HTTP."""

    def client_paused(self) -> None:
        """The client takes no more for now."""

    def client_resumed(self) -> None:
        """The client takes bytes again."""

    def client_data(self, data: bytes) -> None:
        """Bytes after an upgrade."""


class Clients:
    """Every open connection. ``serve`` starts a call for a request; ``limit``: most connections at a time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        serve: Callable[[ClientConnection, Request], None],
        refused: Callable[[str], None],
        limit: int = 10_000,
    ) -> None:
        self.loop = loop
        self.serve = serve
        self.refused = refused
        self.limit = limit
        self.closing = False
        self.open: set[ClientConnection] = set()
        # Connections without a call by when they were left alone, oldest first: between calls, and in a request head.
        self.idle: dict[ClientConnection, float] = {}
        self.reading: dict[ClientConnection, float] = {}

    def protocol(self) -> ClientConnection:
        """A protocol for a connection that was accepted."""
        return ClientConnection(self)

    def opened(self, connection: ClientConnection) -> bool:
        """Whether there is room for one more; the connection that was idle longest makes room."""
        if len(self.open) >= self.limit:
            oldest = next(iter(self.idle), None) or next(iter(self.reading), None)
            if oldest is None:
                return False
            self.refused("connections")
            oldest.close()
            self.open.discard(oldest)
        self.open.add(connection)
        self.reading[connection] = self.loop.time()
        return True

    def forget(self, connection: ClientConnection) -> None:
        """A connection is gone."""
        self.open.discard(connection)
        self.idle.pop(connection, None)
        self.reading.pop(connection, None)

    def sweep(self) -> None:
        """Close connections that were silent between calls, or slow to send a head, for too long."""
        now = self.loop.time()
        for waiting, seconds in ((self.idle, IDLE_SECONDS), (self.reading, HEAD_SECONDS)):
            while waiting and next(iter(waiting.values())) < now - seconds:
                connection = next(iter(waiting))
                del waiting[connection]
                if waiting is self.reading:
                    self.refused("slow_head")
                connection.close()

    def drain(self) -> None:
        """Take no further request: idle connections close, busy ones after their answer."""
        self.closing = True
        for connection in [*self.idle, *self.reading]:
            connection.close()


class ClientConnection:
    """One connection of a client, an ``asyncio.Protocol``. ``transport``: ``None`` once it is closed.

    It does not derive from that class, which would keep it from being compiled as a whole.
    """

    __slots__ = (
        "_discarding",
        "_head_bytes",
        "_last_body",
        "_parser",
        "_queue",
        "_reading_paused",
        "_registry",
        "_serving",
        "_upgraded",
        "call",
        "transport",
    )

    def __init__(self, registry: Clients) -> None:
        self._registry = registry
        self._parser: Any = None  # its messages are not of the type that is declared for them
        self._queue: deque[tuple[Any, Any]] = deque()
        self._reading_paused = False
        self._upgraded = False
        self._discarding = False
        self._head_bytes = 0
        self._last_body: StreamReader | None = None
        self._serving = False
        self.call: Answering | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if not self._registry.opened(self):
            self._registry.refused("connections")
            self.answer(503, "busy", "Too many connections are open.")

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._registry.forget(self)
        self._queue.clear()
        self._parser = None
        if self.call is not None:
            call, self.call = self.call, None
            call.client_lost()

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        if self._upgraded:
            if self.call is not None:
                self.call.client_data(data)
            return
        if self._parser is None:
            self._parser = self._new_parser()
        try:
            messages, self._upgraded, tail = self._parser.feed_data(data)
        except HttpProcessingError as error:
            self._refuse(error)
            return
        if messages:
            self._head_bytes = 0
            self._last_body = messages[-1][1]
            self._queue.extend(messages)
            if self._upgraded and (self.call is not None or len(self._queue) > 1):
                self._refuse(HttpProcessingError(message="an upgrade behind other requests"))
            elif self.call is None:
                self._next()
            elif len(self._queue) >= PIPELINE:
                self.hold_reading()
        elif self._last_body is None or self._last_body.is_eof():
            self._within_head(len(data))
        if tail and self.call is not None:
            self.call.client_data(tail)

    def eof_received(self) -> None:
        """The client has sent all it will: the connection closes."""

    def pause_writing(self) -> None:
        if self.call is not None:
            self.call.client_paused()

    def resume_writing(self) -> None:
        if self.call is not None:
            self.call.client_resumed()

    def pause_reading(self) -> None:
        """Part of what aiohttp's body reader asks of its protocol: its buffer is full."""
        if self._parser is not None:
            self._parser.pause_reading()
        self.hold_reading()

    @property
    def connected(self) -> bool:
        """Part of what aiohttp's body reader asks of its protocol: whether more can come."""
        return self.transport is not None

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Part of what aiohttp's body reader asks of its protocol: its buffer has room."""
        if not self._reading_paused or len(self._queue) >= PIPELINE:
            return
        self._reading_paused = False
        if resume_parser and self._parser is not None and not self._upgraded:
            self.data_received(b"")
        if not self._reading_paused and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def done(self, *, keep_alive: bool) -> None:
        """The call is over: on to the next request, or close once what was written is sent."""
        self.call = None
        if not keep_alive or self._registry.closing or self._upgraded:
            self.close()
        elif self._queue:
            if not self._serving:
                self._next()
        elif self.transport is not None:
            self._registry.idle[self] = self._registry.loop.time()

    def answer(self, status: int, code: str, message: str, wire: str | None = None, *, head_only: bool = False) -> None:
        """An error of ours, after which the connection closes: what follows a refused request is not trusted.

        What the client still sends is read and dropped for a moment, or it might lose the answer to a reset.
        """
        content = errors.body(wire, status, code, message)
        self.write(errors.response(status, content, close=True, head_only=head_only))
        self._discarding = True
        self._queue.clear()
        self.call = None
        if self.transport is not None and not self.transport.is_closing() and self.transport.can_write_eof():
            self.transport.write_eof()
            self.transport.resume_reading()
            self._registry.loop.call_later(LINGER_SECONDS, self.close)
        else:
            self.close()

    def write(self, data: bytes) -> None:
        """Send, unless the client is gone."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """Close once what was written is sent."""
        if self.transport is not None:
            self.transport.close()

    def _next(self) -> None:
        """Serve queued requests until one takes more than this moment."""
        registry = self._registry
        registry.idle.pop(self, None)
        registry.reading.pop(self, None)
        self._serving = True  # requests that are answered within this loop do not start it again
        while self._queue and self.call is None and self.transport is not None and not self.transport.is_closing():
            message, payload = self._queue.popleft()
            request = Request(
                message.method,
                message.path,
                message.version,
                message.raw_headers,
                message.headers,
                payload,
                message.chunked,
                not message.should_close and (self._upgraded or not message.upgrade),
                self._upgraded,
            )
            registry.serve(self, request)
        self._serving = False
        if self._reading_paused and len(self._queue) < PIPELINE:
            self.resume_reading()

    def _within_head(self, size: int) -> None:
        """Bytes came and no request is whole: bound what one may be and how long it may take."""
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD:
            self._refuse(LineTooLong(b"", MAX_HEAD))
            return
        if self._registry.idle.pop(self, None) is not None:
            self._registry.reading[self] = self._registry.loop.time()

    def _refuse(self, error: HttpProcessingError) -> None:
        """A request that is not HTTP/1.1 as we take it: one answer, then close. A call under way is given up."""
        self._registry.refused("malformed")
        if self.call is not None:
            self.call.client_broke()
            self.close()
        elif isinstance(error, LineTooLong):
            self.answer(431, "head_too_large", "The request head is too large.")
        elif isinstance(error, BadHttpMethod):
            self.answer(400, "method", "The request method is not known.")
        else:
            self.answer(400, "malformed", "The request is not well-formed HTTP/1.1.")

    def hold_reading(self) -> None:
        """Read no more until ``resume_reading``."""
        self._reading_paused = True
        if self.transport is not None:
            self.transport.pause_reading()

    def _new_parser(self) -> HttpRequestParser:
        return HttpRequestParser(
            cast("BaseProtocol", self),  # only its two flow-control methods are used
            self._registry.loop,
            BODY_BUFFER,
            max_line_size=MAX_LINE,
            max_headers=MAX_FIELDS,
            max_field_size=MAX_FIELD,
            auto_decompress=False,
        )
