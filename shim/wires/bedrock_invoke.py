"""Amazon Bedrock InvokeModel: the vendor's own body, plain or base64 in ``chunk`` frames.

Claude's body is Anthropic's, Nova's usage is Converse's, OpenAI-shaped models use theirs; for others only the response
headers count tokens (https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html). A stream's last
chunk adds ``amazon-bedrock-invocationMetrics``, the same tokens once more: they fill gaps and are never added
(BerriAI/litellm#34373).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from typing import Any, ClassVar, Final

from shim.framing.eventstream import Frame
from shim.line import TOKEN_CLASSES, Tokens
from shim.wires import Exchange, Reading
from shim.wires.anthropic_messages import AnthropicMessages
from shim.wires.bedrock_converse import converse_tokens, converse_weight
from shim.wires.counts import at, count, loads, text
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import Interest
from shim.wires.openai_chat import OpenAIChat, weight

METRICS: Final = "amazon-bedrock-invocationMetrics"
METRIC_NAMES: Final = ("inputTokenCount", "cacheReadInputTokenCount", "cacheWriteInputTokenCount", "outputTokenCount")
HEADER_NAMES: Final = (
    "x-amzn-bedrock-input-token-count",
    "x-amzn-bedrock-cache-read-input-token-count",
    "x-amzn-bedrock-cache-write-input-token-count",
    "x-amzn-bedrock-output-token-count",
)
FILLED: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")


class BedrockInvoke(DocumentReader):
    """One InvokeModel response, read as whichever vendor's body it is."""

    interest: ClassVar[Interest] = replace(
        AnthropicMessages.interest, members=AnthropicMessages.interest.members | {("metadata",), (METRICS,)}
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.generating = "embed" not in exchange.path
        self.response_id = text(exchange.headers.get("x-amzn-requestid"))
        self._claude = AnthropicMessages(exchange)
        self._openai = OpenAIChat(exchange)
        self._nova: dict[str, Any] | None = None
        self._metrics: list[int | None] = [None] * len(FILLED)

    def take_frame(self, frame: Frame) -> None:
        """A ``chunk`` frame holds the vendor's document in base64 (and padding that hides its length)."""
        if frame.headers.get(":message-type") in ("exception", "error"):
            self.failed = True
            return
        try:
            inner = base64.b64decode(text(at(loads(frame.payload), "bytes")) or "")
        except (binascii.Error, ValueError):
            return
        value = loads(inner)
        if isinstance(value, dict):
            self.take(b"", value)

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        self.close(name, value)
        self._claude.take(name, value)
        if weight(value.get("usage")):
            self._openai.take(name, value)
        usage = value.get("usage") or at(value, "metadata", "usage")
        if converse_weight(usage) and converse_weight(usage) >= converse_weight(self._nova):
            self._nova = usage
        metrics = value.get(METRICS)
        if isinstance(metrics, dict):
            self._metrics = [count(metrics.get(name)) for name in METRIC_NAMES]
        self.name(self._claude.model, self._claude.response_id, self._claude.service_tier)

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        self._claude.close(name, value)
        self.failed = self.failed or self._claude.failed

    def tokens(self) -> Tokens:
        """The body's usage; then the stream's metrics and the headers for what it leaves out."""
        body = self._claude.tokens()
        if not body.known:
            body = self._openai.tokens() if self._openai.usage else converse_tokens(self._nova)
        headers = [count(self.exchange.headers.get(name)) for name in HEADER_NAMES]
        known = {name: getattr(body, name) for name in TOKEN_CLASSES}
        for source in (self._metrics, headers):
            for name, number in zip(FILLED, source, strict=True):
                known[name] = number if known[name] is None else known[name]
        return Tokens(**known)

    def others(self, *, ended: bool) -> tuple[Reading, ...]:
        return self._claude.others(ended=ended)

    def terminal(self, *, complete: bool) -> bool:
        return self._claude.stopped or any(number is not None for number in self._metrics)
