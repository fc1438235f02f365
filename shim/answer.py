"""The way back: an upstream's answer to one call, written to the client as it comes.

Past the head nothing is rebuilt: bytes go on untouched while ``Body.walk`` looks for the end and shows the meter the
payload. Three kinds of answer leave that path, and only where they must: a stream whose usage was asked for by us,
which loses the one event this added; chunks for an HTTP/1.0 client; and a WebSocket, which becomes a tunnel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shim import inject
from shim.body import LAST_CHUNK
from shim.response import MAX_HEAD, BadResponse, Body, Head, UntilClose, parse_head
from shim.tap import BATCH

if TYPE_CHECKING:
    from shim.client import ClientConnection
    from shim.relay import Call
    from shim.request import Request
    from shim.tap import Tap

CHUNKED: Final = b"Transfer-Encoding: chunked"
FRAMING: Final = (b"content-length", b"transfer-encoding")


class Rewriter:
    """Payload in, framed bytes for the client out. ``chunked``: frame in chunks, else the close ends the body."""

    __slots__ = ("_chunked", "_remover")

    def __init__(self, *, chunked: bool, remove_usage: bool) -> None:
        self._chunked = chunked
        self._remover = inject.UsageRemover() if remove_usage else None

    def feed(self, payload: bytes) -> bytes:
        """Bytes for the client, which may be none yet."""
        return self._frame(self._remover.feed(payload) if self._remover is not None else payload)

    def end(self) -> bytes:
        """What is left to send when the body is over."""
        rest = self._frame(self._remover.end()) if self._remover is not None else b""
        return rest + LAST_CHUNK if self._chunked else rest

    def _frame(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data


class Answer:
    """The answer to ``call``. It is the receiver of the upstream connection that the call has."""

    _head: Head | None = None
    _head_bytes = b""
    _rewriter: Rewriter | None = None
    _held: list[bytes] | None = None  # of an answer that may reject our option: not shown to the client yet
    _unread = 0  # payload in pieces that the meter has not read
    _begun = False
    _tunnel = False

    def __init__(self, call: Call, client: ClientConnection, request: Request, tap: Tap | None) -> None:
        self._body: Body | None = None
        self._call = call
        self._client = client
        self._request = request
        self._tap = tap
        self._pieces: list[bytes] = tap.pieces if tap is not None else []

    def received(self, data: bytes) -> None:
        if self._body is not None:
            if self._held is None:
                self._pass_on(b"", data)
            else:
                self._hold(data)
        elif self._tunnel:
            self._client.write(data)
        else:
            self._read_heads(data)

    def upstream_lost(self) -> None:
        if self._head is None and not self._tunnel:
            self._call.lost_before_answer()
            return
        if self._held is not None:
            self._stop_holding()
        if self._tunnel or isinstance(self._body, UntilClose):
            self._ended(0)
        else:
            self._call.broken("closed")

    def upload_paused(self) -> None:
        self._call.upload_paused()

    def upload_resumed(self) -> None:
        self._call.upload_resumed()

    def _read_heads(self, data: bytes) -> None:
        """The head of the answer, after any interim ones (1xx)."""
        data = self._head_bytes + data if self._head_bytes else data
        try:
            while (end := data.find(b"\r\n\r\n")) >= 0:
                head = parse_head(data[:end], self._request.method)
                interim, data = data[: end + 4], data[end + 4 :]
                if head.status >= 200:
                    self._head_bytes = b""
                    self._start(head, data)
                    return
                if head.status == 101:
                    self._switch(head, interim, data)
                    return
                if head.status != 100 and self._request.version == (1, 1):
                    self._client.write(interim)  # 100 was answered by us
            if len(data) > MAX_HEAD:
                raise BadResponse("the head is too long")
        except BadResponse:
            self._call.broken("malformed")
            return
        self._head_bytes = data

    def _start(self, head: Head, data: bytes) -> None:
        self._head = head
        self._body = head.body
        self._call.answered(head.status)
        if self._tap is not None:
            self._tap.head(head)
        if self._call.injected and head.status in inject.REJECTED:
            self._held = []
            self._hold(data)
        else:
            self._pass_on(self._first_bytes(head), data)

    def _first_bytes(self, head: Head) -> bytes:
        """The head for the client, and how the body is to be framed for it."""
        modern = self._request.version == (1, 1)
        remove = self._call.injected and _is_readable_stream(head)
        if remove or (head.chunked and not modern):
            self._rewriter = Rewriter(chunked=modern, remove_usage=remove)
            close = self._call.closes(to_close=not modern)
            return head.encode(close=close, drop=FRAMING, add=(CHUNKED,) if modern else ())
        return head.encode(close=self._call.closes(to_close=head.to_close))

    def _pass_on(self, before: bytes, data: bytes) -> None:
        """Send what came, ``before`` first; end the call where the body ends."""
        body = self._body
        assert body is not None
        try:
            if self._rewriter is None:
                used = body.walk(data, self._pieces)
                if self._tap is not None and self._tap.ahead:
                    self._tap.look_ahead()
                transport = self._client.transport
                if transport is not None and not transport.is_closing():
                    transport.write(before + (data if used == len(data) else data[:used]))
            else:
                used = self._rewrite(self._rewriter, body, before, data)
        except BadResponse:
            self._call.broken("malformed")
            return
        if used and not self._begun:
            self._begun = True
            if self._tap is not None:
                self._tap.first_byte()
        self._unread += used
        if self._unread >= BATCH:
            self._read()
        if body.ended:
            self._ended(len(data) - used)

    def _rewrite(self, rewriter: Rewriter, body: Body, before: bytes, data: bytes) -> int:
        pieces: list[bytes] = []
        used = body.walk(data, pieces)
        self._pieces += pieces
        if self._tap is not None and self._tap.ahead:
            self._tap.look_ahead()
        out = before + rewriter.feed(b"".join(pieces))
        if out:
            self._client.write(out)
        return used

    def _read(self) -> None:
        self._unread = 0
        if self._tap is not None:
            self._tap.read()
        else:
            self._pieces.clear()

    def _hold(self, data: bytes) -> None:
        """Keep back an answer that may say that our option is not known, until it is whole or too long for that."""
        assert self._held is not None
        assert self._body is not None
        try:
            used = self._body.walk(data, self._pieces)
        except BadResponse:
            self._call.broken("malformed")
            return
        self._held.append(data[:used])
        if self._body.ended:
            if inject.REJECTION.search(b"".join(self._pieces)):
                self._call.send_plain(reusable=self._head is not None and self._head.reusable and used == len(data))
                return
            self._stop_holding()
            self._ended(len(data) - used)
        elif sum(map(len, self._held)) > inject.MAX_REJECTION:
            self._stop_holding()

    def _stop_holding(self) -> None:
        held, self._held = self._held or [], None
        if self._head is not None:
            self._client.write(self._first_bytes(self._head) + b"".join(held))
        if held and self._tap is not None:
            self._tap.first_byte()

    def _switch(self, head: Head, raw: bytes, data: bytes) -> None:
        """101: from here on both sides' bytes are passed through."""
        if not self._request.upgrade:
            raise BadResponse("an upgrade that nobody asked for")
        self._head = head
        self._tunnel = True
        self._call.answered(head.status)
        self._client.write(raw + data)
        self._call.switched()

    def _ended(self, extra: int) -> None:
        if self._rewriter is not None:
            self._client.write(self._rewriter.end())
        reusable = self._head is not None and self._head.reusable and not extra and not self._tunnel
        self._call.finish("completed", reusable=reusable)


def _is_readable_stream(head: Head) -> bool:
    """Whether the answer is an event stream that can be read as it is."""
    encoding = head.special(b"content-encoding").lower()
    return head.special(b"content-type").lower().startswith("text/event-stream") and encoding in ("", "identity")
