"""What every wire reader does the same way: find the framing, hand the documents on, say what came of it.

A wire is a subclass with its ``interest`` and four answers: what a document says (``take``) and what of that is about
the end of the call (``close``), which tokens that makes (``tokens``), and whether the wire's end marker was seen
(``terminal``).
"""

from __future__ import annotations

from typing import Any, ClassVar

from shim.framing import sniff
from shim.framing.eventstream import Frame
from shim.line import Tokens
from shim.wires import Exchange, Reading
from shim.wires.bodies import Body, open_body
from shim.wires.counts import loads, text, usage_state
from shim.wires.documents import Interest


class DocumentReader:
    """One response whose body is made of JSON documents."""

    interest: ClassVar[Interest]

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.model: str | None = None
        self.response_id: str | None = None
        self.service_tier: str | None = None
        self.failed = False
        self.generating = True
        self.pending = False
        self._body: Body | None = None
        self._first = b""

    @property
    def known(self) -> bool:
        """Whether model and response id are known."""
        return self.model is not None and self.response_id is not None

    @property
    def dropped(self) -> int:
        """Messages that were damaged or longer than the bound."""
        return self._body.dropped if self._body else 0

    def settles(self, value: dict[str, Any]) -> bool:
        """Whether this document replaces all that earlier running totals could have said."""
        return False

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        """Read one document."""
        raise NotImplementedError

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        """Read only what one document says of how the call ended."""
        raise NotImplementedError

    def take_frame(self, frame: Frame) -> None:
        """Read one binary frame: its payload is a document named by its event type."""
        if frame.headers.get(":message-type") in ("exception", "error"):
            self.failed = True
            return
        value = loads(frame.payload)
        if isinstance(value, dict):
            self.take(frame.headers.get(":event-type", "").encode(), value)

    def tokens(self) -> Tokens:
        """The token classes of what was read."""
        raise NotImplementedError

    def terminal(self, *, complete: bool) -> bool:
        """Whether the wire's own end marker was seen."""
        raise NotImplementedError

    def cost(self) -> float | None:
        """The charge in USD that the response states."""
        return None

    def others(self, *, ended: bool) -> tuple[Reading, ...]:
        """Usage of other models than the response's own."""
        return ()

    def feed(self, data: bytes) -> None:
        """Take the next body bytes; see ``Reader.feed``."""
        if self._body is None:
            self._open(data, last=False)
        else:
            self._body.feed(data)

    def finish(self, *, complete: bool) -> Reading:
        """What was said; see ``Reader.finish``."""
        if self._body is None:
            self._open(b"", last=True)
        assert self._body is not None
        whole = self._body.finish()
        ended = (complete if whole is None else whole) or self.terminal(complete=complete)
        tokens = self.tokens()
        return Reading(
            tokens=tokens,
            usage=usage_state(tokens, ended=ended, generating=self.generating),
            model=self.model,
            response_id=self.response_id,
            service_tier=self.service_tier,
            cost_usd=self.cost(),
            failed=self.failed,
            ended=ended,
            extra=self.others(ended=ended),
            pending=self.pending,
        )

    def name(self, model: object, response_id: object = None, service_tier: object = None) -> None:
        """Keep what a document calls itself: the last that is not empty (Azure's filter chunks have empty names)."""
        self.model = text(model) or self.model
        self.response_id = text(response_id) or self.response_id
        self.service_tier = text(service_tier) or self.service_tier

    def _open(self, data: bytes, *, last: bool) -> None:
        """Look at the first bytes until they tell the framing. Leading blank lines are keep-alives (DeepSeek)."""
        first = (self._first + data).lstrip()
        if sniff.BOM.startswith(first) and not last:
            self._first = first
            return
        first = first.removeprefix(sniff.BOM).lstrip()
        kind = sniff.framing(self.exchange.content_type, first, last=last)
        if kind is None:
            self._first = first
            return
        self._first = b""
        self._body = open_body(kind, self)
        self._body.feed(first)
