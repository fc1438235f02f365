"""Amazon Bedrock Converse and ConverseStream.

``inputTokens`` excludes the cache and the total includes it; cache counts may stand under two names. In a stream usage
comes in the ``metadata`` event after ``messageStop``, failures are frames of type exception. The model is only in the
URL. https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from shim.line import Tokens
from shim.wires import Exchange
from shim.wires.counts import at, bounded, count, first_count, text, total, within
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import Interest
from shim.wires.marks import marks

READ: Final = (("cacheReadInputTokens",), ("cacheReadInputTokenCount",))
WRITTEN: Final = (("cacheWriteInputTokens",), ("cacheWriteInputTokenCount",))
# Every other event of a stream holds content or structure.
METADATA: Final = b"metadata"


class BedrockConverse(DocumentReader):
    """One Converse response."""

    interest: ClassVar[Interest] = Interest(
        marks=marks("usage"),
        endings=marks("error"),
        members=frozenset({("usage",), ("serviceTier",), ("error",)}),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.response_id = text(exchange.headers.get("x-amzn-requestid"))
        self.usage: dict[str, Any] | None = None
        self.metadata = False

    @property
    def known(self) -> bool:
        return True

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        self.close(name, value)
        if name not in (METADATA, b""):
            return
        tier = value.get("serviceTier")
        self.service_tier = text(at(tier, "type")) or text(tier) or self.service_tier
        usage = value.get("usage")
        if converse_weight(usage) and converse_weight(usage) >= converse_weight(self.usage):
            self.usage = usage

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        self.metadata = self.metadata or name == METADATA
        self.failed = self.failed or bool(value.get("error"))

    def tokens(self) -> Tokens:
        return converse_tokens(self.usage)

    def terminal(self, *, complete: bool) -> bool:
        return self.metadata


def converse_tokens(usage: Any) -> Tokens:
    """Token classes of a Converse usage object; Amazon's own models use the same one under InvokeModel."""
    written = first_count(usage, WRITTEN)
    details = at(usage, "cacheDetails")
    hours = (
        [count(at(part, "inputTokens")) for part in details if at(part, "ttl") == "1h"]
        if isinstance(details, list)
        else []
    )
    return Tokens(
        input_tokens=count(at(usage, "inputTokens")),
        cache_read_tokens=first_count(usage, READ),
        cache_write_tokens=written,
        cache_write_1h_tokens=bounded(within(total(*hours), written)),
        output_tokens=count(at(usage, "outputTokens")),
    )


def converse_weight(usage: Any) -> int:
    """0: no report, 1: zeros only, 2: a report."""
    sides = count(at(usage, "inputTokens")), count(at(usage, "outputTokens"))
    if sides == (None, None):
        return 0
    return 2 if any(sides) else 1
