"""OpenAI Responses, also its compaction endpoint and background results.

A JSON answer is the response object; a stream carries it inside lifecycle events. Only the terminal ones state usage,
and all of them are billed: completed, incomplete and failed (QuantumNous/new-api#7241). Echoed instructions, tool
schemas and metadata make events megabytes long and may hold keys of any name, so only ``response.usage`` counts.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from shim.line import Tokens
from shim.wires.counts import at, charge, count, first_count, inclusive, text
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import DONE, Interest
from shim.wires.marks import marks
from shim.wires.openai_chat import base_resp_failed

TERMINAL: Final = frozenset(
    ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")
)
# A background response that is still to be made: a later read of it brings its usage.
PENDING: Final = ("queued", "in_progress")
CACHED: Final = (("input_tokens_details", "cached_tokens"),)
WRITTEN: Final = (("input_tokens_details", "cache_write_tokens"),)
REASONING: Final = (("output_tokens_details", "reasoning_tokens"),)
MEMBERS: Final = ("usage", "model", "id", "error", "status", "service_tier", "type", "object", "base_resp")


class OpenAIResponses(DocumentReader):
    """One Responses answer."""

    interest: ClassVar[Interest] = Interest(
        marks=marks("response"),
        endings=marks("error", literals=(DONE,)),
        members=frozenset([*((name,) for name in MEMBERS), *(("response", name) for name in MEMBERS)]),
    )

    usage: dict[str, Any] | None = None
    ended = False

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        self.close(name, value)
        kind, response = kind_of(name, value), value.get("response")
        if isinstance(response, dict):
            self._response(response, terminal=kind in TERMINAL)
        elif "response" not in value and not kind:
            self._response(value, terminal=True)

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        kind = kind_of(name, value)
        self.ended = self.ended or name == DONE or kind in TERMINAL
        self.failed = self.failed or kind in ("error", "response.failed") or failed(value)

    def _response(self, response: dict[str, Any], *, terminal: bool) -> None:
        self.name(response.get("model"), response.get("id"), response.get("service_tier"))
        self.failed = self.failed or failed(response)
        self.pending = text(response.get("status")) in PENDING
        usage = response.get("usage")
        if terminal and weight(usage) and weight(usage) >= weight(self.usage):
            self.usage = usage

    def tokens(self) -> Tokens:
        usage = self.usage
        if usage is None:
            return Tokens()
        return inclusive(
            count(usage.get("input_tokens")),
            count(usage.get("output_tokens")),
            count(usage.get("total_tokens")),
            cached=first_count(usage, CACHED),
            written=first_count(usage, WRITTEN),
            reasoning=first_count(usage, REASONING),
        )

    def cost(self) -> float | None:
        return charge(self.usage)

    def terminal(self, *, complete: bool) -> bool:
        return self.ended


def kind_of(name: bytes, value: dict[str, Any]) -> str:
    """The type of an event: relays drop the ``event:`` line more often than the type in the data."""
    return text(value.get("type")) or name.decode("ascii", "replace")


def failed(response: dict[str, Any]) -> bool:
    """Whether a response object says that it failed."""
    return bool(response.get("error")) or at(response, "status") == "failed" or base_resp_failed(response)


def weight(usage: Any) -> int:
    """0: no report, 1: both counts are zero, 2: a report."""
    if not isinstance(usage, dict):
        return 0
    sent, made = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
    if sent is None and made is None:
        return 0
    return 2 if sent or made else 1
