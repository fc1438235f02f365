"""One process of the shim: everything put together, from a listening socket to the last line at SIGTERM.

A request passes the guard, finds its route, is metered or not, and becomes a call; ``/-/`` is the shim's own. SIGTERM
closes the port, lets calls in flight end for a bounded time, and writes the lines of those that did not. SIGHUP reads
the allowlist and the tunnel's secret again.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Final, cast

import orjson

from shim import errors, guard, identity, metrics
from shim.allowlist import RUNTIMES, Allowlist
from shim.allowlist import load as load_allowlist
from shim.client import ClientConnection, Clients
from shim.dial import Dialer
from shim.eligibility import is_poll, refusal
from shim.guard import Door, Refusal
from shim.log import event_log
from shim.meter import Meter
from shim.metering import Metering, upkeep
from shim.names import ConfigError
from shim.notify import Notify
from shim.proxies import Proxies
from shim.relay import Call, Relay
from shim.reload import Watched
from shim.request import Request
from shim.routes import NoRoute, Place, Routes
from shim.session_store import open_store
from shim.settings import Settings, read_secret
from shim.tap import Tap
from shim.upstream import Pool

AGENTS_KEPT: Final = 256
OWN: Final = "/-/"
BACKLOG: Final = 1024
CONNECTIONS: Final = 10_000
# Descriptors that are not clients: log, slots, sockets, and one upstream connection per call.
SPARE_DESCRIPTORS: Final = 64
# Both kinds of signature (AWS4-HMAC-SHA256, AWS4-ECDSA-P256-SHA256), in the header and in a presigned URL.
SIGV4: Final = "AWS4-"
SIGV4_QUERY: Final = "X-Amz-Algorithm=AWS4-"
SIGV4_MESSAGE: Final = (
    "Requests signed with SigV4 cannot be forwarded, because the signature covers the Host: "
    "use a Bedrock API key (AWS_BEARER_TOKEN_BEDROCK)."
)


class Shim:
    """The shim of one process. ``shared``: other processes serve the same port."""

    def __init__(self, settings: Settings, environ: MutableMapping[str, str], *, shared: bool = False) -> None:
        self.settings = settings
        self.log = event_log(settings.log_level)
        self._environ = environ
        named = {"VM_USAGE_VM": settings.vm} if settings.vm else {}
        self._key = identity.load_key(settings.state) if settings.log is not None else b""
        vm = identity.vm_name(named, settings.state) if settings.log is not None else ""
        self.metering = Metering(settings.log, settings.state, vm, self.log, shared=shared)
        self.counters = self.metering.counters
        store = open_store(settings.state, self.log) if settings.log is not None else None
        self.meter = Meter(self.metering, self._key, fingerprint=settings.fingerprint, store=store)
        self.routes = Routes(settings.upstreams, RUNTIMES, settings.runtime)
        self.allowlist: Watched[Allowlist] = Watched(
            "allowlist",
            settings.allowlist,
            lambda path: load_allowlist(path, settings.allow),
            self.counters,
            self.log,
        )
        self.secret: Watched[bytes] | None = None
        if settings.tunnel_secret_file is not None:
            self.secret = Watched("tunnel_secret", settings.tunnel_secret_file, read_secret, self.counters, self.log)
        self.door = Door.of(settings.port, settings.allowed_hosts)
        loop = asyncio.get_running_loop()
        self.pool = Pool(loop, Dialer(loop, Proxies.from_env(environ), settings.ca_file))
        self.relay = Relay(loop, self.pool, self.counters, self.log)
        self.clients = Clients(loop, self.serve, self.counters.guarded.add, connection_limit())
        self._stopping = asyncio.Event()
        self._agents: dict[str, bool] = {}
        self._agents_of: Allowlist | None = None

    def serve(self, client: ClientConnection, request: Request) -> None:
        """Answer one request, or make it a call."""
        headers = request.headers
        refused = guard.refuse(request.method, request.target, request.version, headers, self.door)
        target: str | Refusal = request.target
        if refused is None and self.secret is not None:
            target = guard.admit(request.target, headers, self.door, self.secret.value)
        if refused is not None or isinstance(target, Refusal):
            self._refuse(client, refused or target)  # type: ignore[arg-type]
        elif target.startswith(OWN) and self.secret is not None and self.door.is_extra(headers.get("Host", "")):
            self._refuse(client, Refusal(403, "host", "Through a tunnel only calls are served."))
        elif target.startswith(OWN):
            self._own(client, request, target.partition("?")[0])
        else:
            self._forward(client, request, target)

    def _forward(self, client: ClientConnection, request: Request, target: str) -> None:
        try:
            place, onward = self.routes.find(target)
        except NoRoute as error:
            self.counters.guarded.add("no_route")
            client.answer(404, "unknown_upstream", str(error), head_only=request.method == "HEAD")
            return
        if request.headers.get("Authorization", "").startswith(SIGV4) or SIGV4_QUERY in target:
            self.counters.guarded.add("sigv4")
            client.answer(501, "sigv4", SIGV4_MESSAGE, place.wire)
            return
        self.counters.forwarded.add(place.upstream.name)
        call = Call(self.relay, client, request, place, onward, self._tap(request, place))
        client.call = call
        call.start()

    def _tap(self, request: Request, place: Place) -> Tap | None:
        """The meter of a call, ``None`` where it is not metered, which is counted."""
        why = refusal(
            place,
            request.method,
            self._self_reporting(request.headers.get("User-Agent", "")),
            self.allowlist.value,
            logging=self.metering.sink is not None,
            upgrade=request.upgrade,
        )
        if why is not None:
            self.counters.refused.add(why)
            return None
        return Tap(self.meter, place.runtime or "", place, poll=is_poll(request.method, place))

    def _self_reporting(self, agent: str) -> bool:
        """Whether a User-Agent is a self-reporting runtime's. There are few, and many prefixes: answers are kept."""
        allowlist = self.allowlist.value
        if self._agents_of is not allowlist or len(self._agents) > AGENTS_KEPT:
            self._agents_of, self._agents = allowlist, {}
        known = self._agents.get(agent)
        if known is None:
            known = self._agents[agent] = allowlist.self_reporting_agent(agent) is not None
        return known

    def _refuse(self, client: ClientConnection, refused: Refusal) -> None:
        self.counters.guarded.add(refused.reason)
        client.answer(refused.status, refused.reason, refused.message)

    def _own(self, client: ClientConnection, request: Request, path: str) -> None:
        content_type = "application/json"
        if request.method not in ("GET", "HEAD"):
            client.answer(405, "method", "Only GET is served here.")
            return
        if path == "/-/healthz":
            content = b'{"status":"ok"}'
        elif path == "/-/status":
            content = orjson.dumps(self.status())
        elif path == "/-/metrics":
            content, content_type = metrics.exposition(self.metering), metrics.CONTENT_TYPE
        else:
            client.answer(404, "not_found", "The shim has /-/healthz, /-/status and /-/metrics.")
            return
        head_only = request.method == "HEAD"
        keep = request.keep_alive and request.payload.is_eof() and request.version == (1, 1)
        client.write(errors.response(200, content, close=not keep, content_type=content_type, head_only=head_only))
        client.done(keep_alive=keep)

    def status(self) -> dict[str, Any]:
        """What ``/-/status`` says."""
        reloads: dict[str, str | None] = {self.allowlist.what: self.allowlist.refused}
        if self.secret is not None:
            reloads[self.secret.what] = self.secret.refused
        return {
            **metrics.status(self.metering, reloads),
            "connections": len(self.clients.open),
            "allowed": sorted(self.allowlist.value.metered),
            "runtime": self.settings.runtime,
        }

    async def run(self, listeners: Sequence[socket.socket], notify: Notify) -> None:
        """Serve until SIGTERM or SIGINT, then drain."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload, notify)
        self.metering.recover(self.meter.background)
        accepted = cast("Callable[[], asyncio.BaseProtocol]", self.clients.protocol)
        servers = [await loop.create_server(accepted, sock=sock, backlog=BACKLOG) for sock in listeners]
        self.door = Door.of(listeners[0].getsockname()[1], self.settings.allowed_hosts)
        watched: list[Watched[Any]] = [self.allowlist] if self.secret is None else [self.allowlist, self.secret]
        care = loop.create_task(upkeep(self.metering, watched, notify, also=self._sweep))
        _settle_memory()
        self.log.info("shim_started", port=self.settings.port, metering=self.settings.log is not None)
        notify.ready("metering" if self.settings.log is not None else "forwarding, not metering: VM_USAGE_LOG is unset")
        await self._stopping.wait()
        notify.stopping(f"draining {len(self.relay.calls)} calls")
        for server in servers:
            server.close()
        await self._drain()
        care.cancel()
        self.meter.close()
        self.pool.close()
        left = self.metering.close()
        self.log.info("shim_stopped", lines_left=left)

    async def _drain(self) -> None:
        """Let calls in flight end, then end them."""
        loop = asyncio.get_running_loop()
        self.relay.draining = True
        self.clients.drain()
        until = loop.time() + self.settings.drain_seconds
        while self.relay.calls and loop.time() < until:  # noqa: ASYNC110 (an event would cost every call)
            await asyncio.sleep(0.02)
        for call in list(self.relay.calls):
            call.abort()
        for client in list(self.clients.open):
            client.close()
        await asyncio.sleep(0)

    def _sweep(self) -> None:
        self.clients.sweep()
        self.pool.sweep()
        self.meter.background.expire(time.time())

    def _reload(self, notify: Notify) -> None:
        notify.reloading()
        self.allowlist.reload()
        if self.secret is not None:
            self.secret.reload()
        notify.ready()


def listen(settings: Settings, *, shared: bool = False) -> socket.socket:
    """A listening socket on the configured address. Raises ``ConfigError`` where the port cannot be had."""
    family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((settings.bind, settings.port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"Port {settings.port} on {settings.bind} cannot be used ({os.strerror(error.errno or 0)}): "
            "stop what has it or set VM_USAGE_SHIM_PORT."
        ) from error
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def check_log(settings: Settings) -> None:
    """See that the log can be appended to. Raises ``ConfigError``: at start this is a mistake, later it is damage."""
    path = settings.log
    if path is None:
        return
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o640)
        os.close(descriptor)
    except OSError as error:
        raise ConfigError(
            f"The usage log {path} cannot be written ({os.strerror(error.errno or 0)}): mend it or set VM_USAGE_LOG."
        ) from error


def connection_limit() -> int:
    """Most client connections: 10,000, or what the descriptor limit (raised to its maximum here) leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS + SPARE_DESCRIPTORS
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(64, min(CONNECTIONS, (soft - SPARE_DESCRIPTORS) // 2))


def _settle_memory() -> None:
    """What is loaded by now stays, so the collector need not look at it again.

    Calls leave no cycles behind: looking for some every few of them would cost 2 % of a call.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop where it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def serve(
    settings: Settings,
    environ: MutableMapping[str, str],
    listeners: Sequence[socket.socket],
    worker: Notify | None = None,
) -> None:
    """Run one process of the shim until it is told to stop. ``worker``: how one of several tells its supervisor.

    Raises ``ConfigError``.
    """

    async def main() -> None:
        shim = Shim(settings, environ, shared=worker is not None)
        await shim.run(listeners, worker or Notify(environ))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
