"""Cohere v2 chat and embed.

``billed_units`` is what the customer pays, ``tokens`` adds Cohere's own preamble; a spend tracker reads the first and
falls back to the second (open-telemetry/semantic-conventions-genai#211). Counts are floats, no model in the body; a
stream states usage in ``message-end``. https://docs.cohere.com/reference/chat
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from shim.line import Tokens
from shim.wires import Exchange
from shim.wires.counts import at, count
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import Interest
from shim.wires.marks import marks
from shim.wires.openai_responses import kind_of

PAIRS: Final = ("billed_units", "tokens")
END: Final = "message-end"


class CohereV2(DocumentReader):
    """One Cohere v2 response."""

    interest: ClassVar[Interest] = Interest(
        marks=marks("usage"),
        endings=marks("error", "ERROR", END),
        members=frozenset({("usage",), ("meta",), ("id",), ("error",), ("finish_reason",)}),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.generating = not exchange.path.endswith("/embed")
        self.pair: dict[str, Any] | None = None
        self.ended = False

    @property
    def known(self) -> bool:
        return self.response_id is not None

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        self.close(name, value)
        self.name(None, value.get("id"))
        if kind_of(name, value) in (END, ""):
            source = said(name, value)
            self.pair = billed(at(source, "usage")) or billed(at(source, "meta")) or self.pair

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        source = said(name, value)
        self.ended = self.ended or kind_of(name, value) == END
        self.failed = self.failed or bool(value.get("error") or at(source, "error"))
        self.failed = self.failed or at(source, "finish_reason") == "ERROR"

    def tokens(self) -> Tokens:
        return Tokens(
            input_tokens=count(at(self.pair, "input_tokens")), output_tokens=count(at(self.pair, "output_tokens"))
        )

    def terminal(self, *, complete: bool) -> bool:
        return self.ended


def said(name: bytes, value: dict[str, Any]) -> Any:
    """Where a document states its end and usage: in ``delta`` of the last event, at the top of a JSON answer."""
    return value.get("delta") if kind_of(name, value) == END else value


def billed(usage: Any) -> dict[str, Any] | None:
    """The first of the two pairs that counts anything."""
    for name in PAIRS:
        pair = at(usage, name)
        if count(at(pair, "input_tokens")) is not None or count(at(pair, "output_tokens")) is not None:
            return dict(pair)
    return None
