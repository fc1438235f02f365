"""Connections to upstreams: one protocol per connection, kept alive in pools, one call at a time on each.

A connection knows nothing of HTTP: what arrives goes to the call that has it. Without a call it is idle, and
whatever happens to it then (bytes nobody asked for, the upstream closing) takes it out of its pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from typing import Final, Protocol, cast

from shim.dial import Dialer
from shim.upstreams import Upstream

# Below the minute after which common load balancers close idle connections.
IDLE_SECONDS: Final = 50.0
IDLE_PER_UPSTREAM: Final = 256


class Receiver(Protocol):
    """The call that has a connection."""

    def received(self, data: bytes) -> None:
        """Bytes from the upstream."""

    def upstream_lost(self) -> None:
        """The upstream closed, or the connection broke."""

    def upload_paused(self) -> None:
        """The upstream takes no more for now."""

    def upload_resumed(self) -> None:
        """The upstream takes bytes again."""


class UpstreamConnection:
    """One connection. ``fresh``: it has not carried a call yet. ``receiver``: the call that has it."""

    __slots__ = ("_pool", "fresh", "idle_since", "receiver", "transport", "upstream")

    def __init__(self, upstream: Upstream, pool: Pool) -> None:
        self.upstream = upstream
        self.receiver: Receiver | None = None
        self.transport: asyncio.Transport | None = None
        self.fresh = True
        self.idle_since = 0.0
        self._pool = pool

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.receiver is None:
            self.abort()
        else:
            self.receiver.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.receiver is None:
            self._pool.discard(self)
        else:
            receiver, self.receiver = self.receiver, None
            receiver.upstream_lost()

    def eof_received(self) -> None:
        """The upstream has sent all it will: the connection closes."""

    def pause_writing(self) -> None:
        if self.receiver is not None:
            self.receiver.upload_paused()

    def resume_writing(self) -> None:
        if self.receiver is not None:
            self.receiver.upload_resumed()

    def abort(self) -> None:
        """Close at once; the receiver hears nothing more."""
        self.receiver = None
        if self.transport is not None:
            self.transport.abort()

    def release(self, *, reusable: bool) -> None:
        """The call is over: back to the pool, or closed."""
        self.receiver = None
        if self.transport is None:
            return
        if self.fresh and self.upstream.scheme == "https":
            self._pool.remember_session(self.transport)
        if reusable and not self.transport.is_closing() and self.transport.get_write_buffer_size() == 0:
            self._pool.give(self)
        else:
            self.transport.abort()


class Pool:
    """Idle connections by upstream, most recently used first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dialer: Dialer) -> None:
        self._loop = loop
        self._dialer = dialer
        self._idle: dict[str, deque[UpstreamConnection]] = {}

    def take(self, upstream: Upstream) -> UpstreamConnection | None:
        """An idle connection, ``None`` where there is none."""
        idle = self._idle.get(upstream.name)
        while idle:
            connection = idle.pop()
            transport = connection.transport
            if transport is not None and not transport.is_closing():
                connection.fresh = False
                return connection
        return None

    async def open(self, upstream: Upstream) -> UpstreamConnection:
        """A new connection. Raises ``Unreachable``."""
        return await self._dialer.connect(upstream, lambda: UpstreamConnection(upstream, self))

    def plain_proxy(self, upstream: Upstream) -> str | None:
        """Whether requests go to a proxy in absolute form, and what it wants as Proxy-Authorization (may be empty)."""
        proxy = self._dialer.proxies.of(upstream) if upstream.scheme == "http" else None
        return None if proxy is None else proxy.authorization or ""

    def give(self, connection: UpstreamConnection) -> None:
        """Keep an idle connection."""
        idle = self._idle.setdefault(connection.upstream.name, deque())
        connection.idle_since = self._loop.time()
        idle.append(connection)
        if len(idle) > IDLE_PER_UPSTREAM:
            self._close(idle.popleft())

    def discard(self, connection: UpstreamConnection) -> None:
        """Forget a connection that was closed while idle."""
        with contextlib.suppress(KeyError, ValueError):
            self._idle[connection.upstream.name].remove(connection)

    def sweep(self) -> None:
        """Close connections that were idle for too long."""
        before = self._loop.time() - IDLE_SECONDS
        for idle in self._idle.values():
            while idle and idle[0].idle_since < before:
                self._close(idle.popleft())

    def close(self) -> None:
        """Close every idle connection."""
        for idle in self._idle.values():
            while idle:
                self._close(idle.popleft())

    def remember_session(self, transport: asyncio.Transport) -> None:
        """Keep the TLS session of a connection that has carried its first call: by then its tickets have come."""
        tls = transport.get_extra_info("ssl_object")
        if isinstance(tls, ssl.SSLObject):
            self._dialer.tls.keep(tls)

    def _close(self, connection: UpstreamConnection) -> None:
        if connection.transport is not None:
            connection.transport.close()
