"""One call, from a request to its end: the way there, who goes first, and how it is closed.

A request whose body is here goes upstream at once over a pooled connection; otherwise a task reads or streams the body,
or makes a connection. A slow side makes the other pause. The client hanging up ends the upstream's work at once; the
upstream breaking off is passed on as a broken answer, never as a whole one. Faults of ours are answered in the wire's
own shape. The way back is ``shim.answer``'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from shim import inject
from shim.answer import Answer
from shim.body import BodyError, Upload, read_up_to
from shim.client import ClientConnection
from shim.counters import Counters
from shim.dial import Unreachable
from shim.log import EventLog
from shim.request import Request
from shim.routes import Place
from shim.tap import Tap
from shim.upstream import Pool, UpstreamConnection
from shim.wires.counts import loads

# A metered JSON body up to this size is read whole before it is sent; a larger one is streamed, and then its model,
# its session by content and its usage option stay unknown.
MAX_READ_BODY: Final = 32 << 20
# A body this small is sent in one piece with its head.
ONE_WRITE: Final = 1 << 16
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
ACCEPT_ENCODING: Final = frozenset({b"accept-encoding"})


class Relay:
    """What the calls of one process share. ``calls``: those in flight; ``draining``: no further ones are taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Pool, counters: Counters, log: EventLog) -> None:
        self.loop = loop
        self.pool = pool
        self.counters = counters
        self.log = log
        self.calls: set[Call] = set()
        self.draining = False
        self.refusals = inject.Refusals()


class Call:
    """One call. ``injected``: the usage option in its request is ours; ``over``: it has ended.

    ``status``: the upstream's, ``None`` before its head came; ``closing``: the client's connection closes after it.
    """

    injected = False
    over = False
    status: int | None = None
    closing = False
    _connection: UpstreamConnection | None = None
    _plain: bytes | None = None  # the body of an injected call as the client sent it
    _model: object = None  # of an injected call
    _to_send: tuple[bytes, bytes] | None = None  # head and body, kept until the answer begins
    _retried = False
    _tunnel = False
    _early = b""  # what the client sent before its upgrade was agreed to

    def __init__(
        self, relay: Relay, client: ClientConnection, request: Request, place: Place, target: str, tap: Tap | None
    ) -> None:
        self._task: asyncio.Task[None] | None = None
        self._upload: Upload | None = None
        self._relay = relay
        self._client = client
        self._request = request
        self._place = place
        self._target = target
        self._tap = tap
        relay.calls.add(self)

    # The request

    def start(self) -> None:
        """Send the request on: at once where its body is here, else while it comes."""
        request = self._request
        if request.payload.is_eof():
            self._begin(request.payload.read_nowait())
            return
        if request.headers.get("Expect", "").lower() == "100-continue" and request.version == (1, 1):
            self._client.write(CONTINUE)
        length = request.length
        readable = self._tap is not None and (length is None or length <= MAX_READ_BODY)
        self._spawn(self._read_body() if readable else self._stream_body([]))

    async def _read_body(self) -> None:
        """Collect a body that the meter wants to read; one that turns out too large is streamed after all."""
        try:
            pieces, whole = await read_up_to(self._request, MAX_READ_BODY)
        except BodyError as error:
            self._fail(error.status, error.code, str(error), "client_closed")
            return
        if whole:
            body = b"".join(pieces)
            pieces.clear()
            self._begin(body)
        else:
            await self._stream_body(pieces)

    async def _stream_body(self, begun: list[bytes]) -> None:
        """Pass a body on as it comes, over a connection of its own: it could not be sent a second time."""
        upload = self._upload = Upload(self._request, self._relay.loop)
        if self._tap is not None:
            self._tap.request(self._request.headers, None)
        connection = await self._open()
        if connection is None:
            return
        transport = connection.transport
        self._send(connection, self._request_head(self._request.length), b"")
        if transport is None:
            return
        try:
            await upload.run(transport, begun)
        except BodyError as error:
            self._fail(error.status, error.code, str(error), "client_closed")

    def _begin(self, body: bytes) -> None:
        """The body is here: read what it says, add the usage option where it is wanted, send."""
        tap = self._tap
        if tap is not None:
            parsed = _json_object(body) if body else None
            tap.request(self._request.headers, parsed)
            if parsed is not None and inject.wants(self._place.upstream.name, self._place.wire, parsed):
                body = self._with_option(body, parsed)
        self._dispatch(body)

    def _with_option(self, body: bytes, parsed: dict[str, Any]) -> bytes:
        """The body with the usage option, unless there is no place for it or the upstream rejected it lately."""
        self._model = self._place.model or parsed.get("model")
        if (self._place.upstream.name, self._model) in self._relay.refusals:
            self._relay.counters.usage_option.add(self._place.upstream.name, "left_out")
            return body
        edited = inject.add_option(body, parsed)
        if edited is None:
            return body
        self._plain, self.injected = body, True
        return edited

    def _dispatch(self, body: bytes) -> None:
        self._to_send = (self._request_head(len(body)), body)
        connection = self._relay.pool.take(self._place.upstream)
        if connection is None:
            self._spawn(self._dial())
        else:
            self._send(connection, *self._to_send)

    async def _dial(self) -> None:
        connection = await self._open()
        if connection is not None and self._to_send is not None:
            self._send(connection, *self._to_send)

    async def _open(self) -> UpstreamConnection | None:
        """A new connection, ``None`` where there is none to be had; the client has been told then."""
        upstream = self._place.upstream
        try:
            connection = await self._relay.pool.open(upstream)
        except Unreachable as error:
            self._relay.counters.upstream_errors.add(upstream.name, error.reason)
            self._relay.log.warning("upstream_unreachable", upstream=upstream.name, reason=error.reason)
            self._fail(error.status, f"upstream_{error.reason}", str(error), "unreachable")
            return None
        if self.over:
            connection.release(reusable=True)
            return None
        return connection

    def _request_head(self, length: int | None) -> bytes:
        """``length``: of the body as it is sent, ``None`` for a body in chunks."""
        upstream, target = self._place.upstream, self._target
        add: tuple[str, ...] = ()
        authorization = self._relay.pool.plain_proxy(upstream)
        if authorization is not None:
            target = f"http://{upstream.authority}{target}"
            add = (f"Proxy-Authorization: {authorization}",) if authorization else ()
        drop = ACCEPT_ENCODING if self.injected else frozenset()
        return self._request.head(target, upstream.authority, length=length, drop=drop, add=add)

    def _send(self, connection: UpstreamConnection, head: bytes, body: bytes) -> None:
        self._connection = connection
        connection.receiver = Answer(self, self._client, self._request, self._tap)
        transport = connection.transport
        if transport is None:  # it was closed between two turns of the loop
            self.lost_before_answer()
        elif len(body) < ONE_WRITE:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._relay.loop.create_task(work)
        self._task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        """A fault of ours in a task would leave the client waiting for ever: end the call."""
        if task.cancelled() or task.exception() is None or self.over:
            return
        self._relay.counters.relay_errors.add()
        self._relay.log.error("call_failed", error=type(task.exception()).__name__)
        if self.status is None:
            self._fail(500, "internal", "The shim could not make this call.", "unreachable")
        else:
            self.finish("upstream_closed", reusable=False, keep_alive=False)

    # What the upstream's side tells

    def upload_paused(self) -> None:
        """The upstream takes no more of the request for now."""
        if self._tunnel:
            self._client.hold_reading()
        elif self._upload is not None:
            self._upload.paused()

    def upload_resumed(self) -> None:
        """The upstream takes bytes again."""
        if self._tunnel:
            self._client.resume_reading()
        elif self._upload is not None:
            self._upload.resumed()

    def answered(self, status: int) -> None:
        """The answer has begun: from here on nothing is sent twice."""
        self.status = status
        self._to_send = None

    def closes(self, *, to_close: bool) -> bool:
        """Whether the client's connection closes after this answer. ``to_close``: only closing ends its body."""
        request = self._request
        keeps = request.keep_alive and self._uploaded and not self._relay.draining and request.version == (1, 1)
        self.closing = to_close or not keeps
        return self.closing

    def lost_before_answer(self) -> None:
        """The connection broke before a byte of the answer.

        A pooled one may have been closed before it saw the request: that is sent once more, over a new connection
        (RFC 9112 section 9.3.1).
        """
        connection, self._connection = self._connection, None
        stale = connection is not None and not connection.fresh
        if stale and not self._retried and self._to_send is not None:
            self._retried = True
            self._spawn(self._dial())
            return
        self._count_upstream("closed")
        message = f"The upstream {self._place.upstream.name} closed the connection without an answer."
        self._fail(502, "upstream_closed", message, "upstream_closed")

    def broken(self, reason: str) -> None:
        """The answer cannot go on. ``reason``: ``closed`` or ``malformed``."""
        self._count_upstream(reason)
        if self.status is None:
            name = self._place.upstream.name
            self._fail(502, f"upstream_{reason}", f"The upstream {name} did not answer in HTTP/1.1.", "upstream_closed")
        else:
            self.finish("upstream_closed", reusable=False, keep_alive=False)

    def send_plain(self, *, reusable: bool) -> None:
        """The upstream does not know the usage option: send the request as the client made it."""
        assert self._plain is not None
        self._relay.refusals.add(self._place.upstream.name, self._model)
        self._relay.counters.usage_option.add(self._place.upstream.name, "rejected")
        body, self._plain, self.injected = self._plain, None, False
        if self._connection is not None:
            self._connection.release(reusable=reusable)
            self._connection = None
        if self._tap is not None:
            self._tap.pieces.clear()
        self.status = None
        self._dispatch(body)

    def switched(self) -> None:
        """The upstream agreed to an upgrade: the connection belongs to both sides until one closes."""
        self._tunnel = True
        early, self._early = self._early, b""
        if early:
            self.client_data(early)

    # What the client's side tells

    def client_lost(self) -> None:
        """The client closed: nothing more is to be made, or billed, for it."""
        if not self.over:
            self.finish("client_closed", reusable=False, keep_alive=False)

    def client_broke(self) -> None:
        """The client broke the framing of its request's body."""
        if self.status is None:
            self._fail(400, "malformed", "The request body is not well-formed HTTP/1.1.", "client_closed")
        else:
            self.client_lost()

    def client_paused(self) -> None:
        """The client takes no more for now: neither do we of the upstream."""
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.pause_reading()

    def client_resumed(self) -> None:
        """The client takes bytes again."""
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.resume_reading()

    def client_data(self, data: bytes) -> None:
        """Bytes of a connection that is, or asked to be, upgraded."""
        if not self._tunnel:
            self._early += data
            return
        transport = self._connection.transport if self._connection is not None else None
        if transport is not None and not transport.is_closing():
            transport.write(data)

    # The end

    def abort(self) -> None:
        """Give the call up: the time to drain is over, and the shim ends with the call in flight."""
        if not self.over:
            self.finish("interrupted", reusable=False, keep_alive=False)

    def finish(self, outcome: str, *, reusable: bool, keep_alive: bool = True) -> None:
        """End the call. ``reusable``: the upstream's connection may carry another one."""
        self.over = True
        self._relay.calls.discard(self)
        connection, self._connection = self._connection, None
        if connection is not None:
            if outcome == "completed" and self._uploaded:
                connection.release(reusable=reusable)
            else:
                connection.abort()
        self._stop_task()
        if self._tap is not None:
            self._tap.end(outcome, self.status)
        self._client.done(keep_alive=keep_alive and not self.closing)

    @property
    def _uploaded(self) -> bool:
        return self._upload is None or self._upload.over

    def _stop_task(self) -> None:
        task = self._task
        if task is not None and not task.done() and task is not asyncio.current_task(self._relay.loop):
            task.cancel()

    def _count_upstream(self, reason: str) -> None:
        self._relay.counters.upstream_errors.add(self._place.upstream.name, reason)

    def _fail(self, status: int, code: str, message: str, outcome: str) -> None:
        """Answer with an error of ours and end the call; no byte of an answer has been sent."""
        if self.over:
            return
        self.over = True
        self._relay.calls.discard(self)
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        self._stop_task()
        if self._tap is not None:
            self._tap.end(outcome, None)
        self._client.answer(status, code, message, self._place.wire, head_only=self._request.method == "HEAD")


def _json_object(body: bytes) -> dict[str, Any] | None:
    """The body where it is a JSON object; a body that is not JSON is forwarded all the same."""
    value = loads(body)
    return value if isinstance(value, dict) else None
