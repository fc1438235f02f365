"""Google Gemini's generateContent on the Gemini API, Vertex AI and Code Assist.

``promptTokenCount`` includes the cache, ``candidatesTokenCount`` excludes thoughts, tool-use prompts are input on top
(https://ai.google.dev/api/generate-content#UsageMetadata). A stream states running totals on many chunks and the last
valid ones stand; chunks without them erase nothing. Code Assist wraps every chunk in ``response``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from shim.line import Tokens
from shim.wires import Exchange
from shim.wires.counts import at, bounded, count, first_count, text, total
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import Interest
from shim.wires.marks import marks

CANDIDATES: Final = (("candidatesTokenCount",), ("responseTokenCount",))  # the Live API has its own name
MEMBERS: Final = ("usageMetadata", "modelVersion", "responseId", "error", "promptFeedback")
# Vertex names how the call was served, the Gemini API the tier itself.
TRAFFIC: Final = {
    "PROVISIONED_THROUGHPUT": "provisioned",
    "ON_DEMAND": "on_demand",
    "ON_DEMAND_FLEX": "flex",
    "ON_DEMAND_PRIORITY": "priority",
}


class Gemini(DocumentReader):
    """One generateContent, streamGenerateContent or embedContent response."""

    interest: ClassVar[Interest] = Interest(
        marks=marks("usageMetadata"),
        endings=marks("finishReason", "error", "blockReason"),
        lasting=marks("finishReason", "error", "blockReason"),
        members=frozenset([*((name,) for name in MEMBERS), *(("response", name) for name in MEMBERS)]),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.generating = "mbedContent" not in exchange.path
        self.usage: dict[str, Any] | None = None
        self.finished = False

    def settles(self, value: dict[str, Any]) -> bool:
        chunk = unwrap(value)
        usage = chunk.get("usageMetadata")
        return weight(usage) == 2 and bool(chunk.get("modelVersion") and chunk.get("responseId"))

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        self.close(name, value)
        chunk = unwrap(value)
        self.name(chunk.get("modelVersion"), chunk.get("responseId"))
        usage = chunk.get("usageMetadata")
        if weight(usage) and weight(usage) >= weight(self.usage):
            self.usage = usage
            self.service_tier = tier(usage)

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        chunk = unwrap(value)
        self.failed = self.failed or bool(value.get("error") or chunk.get("error"))
        self.finished = self.finished or text(at(chunk, "promptFeedback", "blockReason")) is not None
        candidates = chunk.get("candidates")
        for candidate in candidates if isinstance(candidates, list) else ():
            self.finished = self.finished or text(at(candidate, "finishReason")) is not None

    def tokens(self) -> Tokens:
        usage = self.usage
        if usage is None:
            return Tokens()
        prompt, cached = count(usage.get("promptTokenCount")), count(usage.get("cachedContentTokenCount"))
        tools, thoughts = count(usage.get("toolUsePromptTokenCount")), count(usage.get("thoughtsTokenCount"))
        candidates, whole = first_count(usage, CANDIDATES), count(usage.get("totalTokenCount"))
        output = total(candidates, thoughts)
        if candidates is not None and thoughts and whole == (prompt or 0) + (tools or 0) + candidates:
            output = max(candidates, thoughts)  # early models folded thoughts into candidates (litellm#10141)
        return Tokens(
            input_tokens=None if prompt is None else bounded(max(0, prompt - (cached or 0)) + (tools or 0)),
            cache_read_tokens=cached,
            output_tokens=bounded(output),
            reasoning_tokens=thoughts,
        )

    def terminal(self, *, complete: bool) -> bool:
        return self.finished


def unwrap(value: dict[str, Any]) -> dict[str, Any]:
    """The chunk inside Code Assist's envelope, else the chunk itself."""
    inner = value.get("response")
    return inner if isinstance(inner, dict) else value


def tier(usage: Any) -> str | None:
    """The served tier as the usage object names it."""
    return text(at(usage, "serviceTier")) or TRAFFIC.get(text(at(usage, "trafficType")) or "")


def weight(usage: Any) -> int:
    """0: no report, 1: zeros only, 2: a report."""
    if not isinstance(usage, dict):
        return 0
    sides = (
        count(usage.get("promptTokenCount")),
        first_count(usage, CANDIDATES),
        count(usage.get("thoughtsTokenCount")),
    )
    if sides == (None, None, None):
        return 0
    return 2 if any(sides) else 1
