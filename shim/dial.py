"""How a connection to an upstream is made: names resolved and kept, addresses raced, proxies, TLS verified and resumed.

Every address is looked at after the name was resolved, so no name leads to a cloud metadata service. Each step has a
time limit; once connected there is none, because a model may think for minutes.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import aiohappyeyeballs

from shim.proxies import Proxies, Proxy
from shim.upstreams import Upstream, is_metadata

CONNECT_SECONDS: Final = 10.0
HANDSHAKE_SECONDS: Final = 10.0
NAME_SECONDS: Final = 60.0
NAMES_KEPT: Final = 256
SESSIONS_KEPT: Final = 256
# RFC 8305 section 8 recommends 250 ms.
RACE_DELAY: Final = 0.25

MAX_PROXY_HEAD: Final = 16384

AddressInfo = tuple[Any, Any, int, str, Any]
# An asyncio.Protocol in all but its base class (see ``shim.client.ClientConnection``).
P = TypeVar("P")


class Unreachable(Exception):
    """An upstream that could not be connected to. ``reason``: the counter's label; ``status``: 502 or 504."""

    def __init__(self, reason: str, message: str, status: int = 502) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status


class ResumingContext(ssl.SSLContext):
    """A verifying client context that resumes the last TLS session of a host.

    Event loops wrap memory BIOs without a session, so it is put in where they do; ``keep`` is called with a
    connection's TLS object once it has been used, because TLS 1.3 hands out sessions after the handshake.
    """

    _kept: OrderedDict[str, ssl.SSLSession]

    def __new__(cls) -> ResumingContext:
        context = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        context._kept = OrderedDict()
        return context

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: Any = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """As the base class, with the kept session of ``server_hostname``."""
        kept = self._kept.get(server_hostname or "")
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session or kept)

    def keep(self, tls: ssl.SSLObject) -> None:
        """Remember the session of a connection for the next one to its host."""
        host, session = tls.server_hostname, tls.session
        if host and session is not None and session.has_ticket:
            self._kept[host] = session
            self._kept.move_to_end(host)
            while len(self._kept) > SESSIONS_KEPT:
                self._kept.popitem(last=False)


def tls_context(ca_file: Path | None) -> ResumingContext:
    """The one context for all upstreams: system store and ``ca_file``, HTTP/1.1 by ALPN. Raises ``OSError``."""
    context = ResumingContext()
    context.load_default_certs()
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


class Names:
    """Resolved names, kept for a minute and within a bound."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._kept: OrderedDict[tuple[str, int], tuple[float, list[AddressInfo]]] = OrderedDict()

    async def resolve(self, host: str, port: int) -> list[AddressInfo]:
        """Addresses of a host in the resolver's order. Raises ``OSError``."""
        now = self._loop.time()
        kept = self._kept.get((host, port))
        if kept is not None and kept[0] > now:
            return kept[1]
        infos = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self._kept[host, port] = (now + NAME_SECONDS, list(infos))
        self._kept.move_to_end((host, port))
        while len(self._kept) > NAMES_KEPT:
            self._kept.popitem(last=False)
        return list(infos)

    def forget(self, host: str, port: int) -> None:
        """A host did not answer where we knew it: ask anew next time."""
        self._kept.pop((host, port), None)


class Dialer:
    """Makes connections. ``ca_file``: extra authorities."""

    def __init__(self, loop: asyncio.AbstractEventLoop, proxies: Proxies, ca_file: Path | None) -> None:
        self._loop = loop
        self._names = Names(loop)
        self._ca_file = ca_file
        self._tls: ResumingContext | None = None
        self.proxies = proxies

    @property
    def tls(self) -> ResumingContext:
        """The TLS context, made when the first https upstream is called: it costs some megabytes."""
        if self._tls is None:
            self._tls = tls_context(self._ca_file)
        return self._tls

    async def connect(self, upstream: Upstream, protocol: Callable[[], P]) -> P:
        """A connection to ``upstream`` that ``protocol`` speaks. Raises ``Unreachable``."""
        name = upstream.name
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                sock = await self._socket(upstream)
        except TimeoutError:
            self._names.forget(upstream.host, upstream.port)
            raise Unreachable("timeout", f"The upstream {name} did not accept a connection in time.", 504) from None
        except OSError as error:
            self._names.forget(upstream.host, upstream.port)
            raise Unreachable(*_reason(error, name)) from error
        try:
            return await self._speak(upstream, sock, protocol)
        except TimeoutError:
            message = f"The upstream {name} did not finish its TLS handshake in time."
            raise Unreachable("timeout", message, 504) from None
        except ssl.SSLError as error:
            raise Unreachable("tls", f"TLS with the upstream {name} failed: {_tls_reason(error)}.") from error
        except OSError as error:
            raise Unreachable(*_reason(error, name)) from error

    async def _speak(self, upstream: Upstream, sock: socket.socket, protocol: Callable[[], P]) -> P:
        extra: dict[str, Any] = {}
        if upstream.scheme == "https":
            extra = {
                "ssl": self.tls,
                "server_hostname": upstream.host,
                "ssl_handshake_timeout": HANDSHAKE_SECONDS,
            }
        factory = cast("Callable[[], asyncio.BaseProtocol]", protocol)
        try:
            _, spoken = await self._loop.create_connection(factory, sock=sock, **extra)
        except BaseException:
            sock.close()
            raise
        return cast("P", spoken)

    async def _socket(self, upstream: Upstream) -> socket.socket:
        proxy = self.proxies.of(upstream)
        if proxy is None:
            return await self._race(upstream.host, upstream.port, upstream.name)
        sock = await self._race(proxy.host, proxy.port, upstream.name, through_proxy=True)
        if upstream.scheme == "https":
            try:
                await self._tunnel(sock, proxy, upstream)
            except BaseException:
                sock.close()
                raise
        return sock

    async def _race(self, host: str, port: int, name: str, *, through_proxy: bool = False) -> socket.socket:
        infos = await self._names.resolve(host, port)
        if not through_proxy:
            infos = [info for info in infos if not is_metadata(info[4][0])]
            if not infos:
                raise Unreachable("metadata", f"The upstream {name} resolves to a cloud metadata address: refused.")
        return await aiohappyeyeballs.start_connection(infos, happy_eyeballs_delay=RACE_DELAY, loop=self._loop)

    async def _tunnel(self, sock: socket.socket, proxy: Proxy, upstream: Upstream) -> None:
        """Ask the proxy for a tunnel (RFC 9110 section 9.3.6)."""
        host = f"[{upstream.host}]" if ":" in upstream.host else upstream.host
        lines = [f"CONNECT {host}:{upstream.port} HTTP/1.1", f"Host: {host}:{upstream.port}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        await self._loop.sock_sendall(sock, ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        answer = b""
        while b"\r\n\r\n" not in answer:
            # One byte would do; the proxy sends nothing of its own after the head of a 2xx.
            data = await self._loop.sock_recv(sock, 4096)
            if not data or len(answer) > MAX_PROXY_HEAD:
                raise Unreachable("proxy", f"The proxy closed before it reached the upstream {upstream.name}.")
            answer += data
        status = answer[9:12]
        if not answer.startswith(b"HTTP/1.") or not status.startswith(b"2"):
            shown = status.decode("ascii", "replace")
            raise Unreachable("proxy", f"The proxy answered {shown} for the upstream {upstream.name}.")


def _reason(error: OSError, name: str) -> tuple[str, str]:
    if isinstance(error, socket.gaierror):
        return "dns", f"The name of the upstream {name} does not resolve."
    if isinstance(error, ConnectionRefusedError):
        return "refused", f"The upstream {name} refuses connections."
    return "connect", f"The upstream {name} cannot be reached."


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted ({error.verify_message})"
    return (error.reason or "handshake failed").lower().replace("_", " ")
