"""Anthropic Messages, also on Vertex (``rawPredict``), Bedrock and the many compatible servers.

``input_tokens`` excludes both cache classes. In a stream ``message_start`` states the input side and a first output,
every ``message_delta`` restates cumulative counts: a later value replaces an earlier one and is never added
(https://docs.anthropic.com/en/docs/build-with-claude/streaming). Compatible servers fill either of the two with zeros,
so an input side of zeros replaces nothing. ``iterations`` holds what the top level leaves out: compaction, and an
advisor under its own model (https://platform.claude.com/docs/en/build-with-claude/compaction).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from shim.line import Tokens
from shim.wires import Exchange, Reading
from shim.wires.counts import at, bounded, charge, count, text, total, usage_state, within
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import DONE, Interest
from shim.wires.marks import marks
from shim.wires.openai_chat import SUCCESS, base_resp_failed
from shim.wires.openai_responses import kind_of

# The three that are one input side: a restatement replaces them together.
INPUT_SIDE: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
# What may state usage: two events, and a JSON answer (which some compatible servers send without a type).
STATING: Final = ("message_start", "message_delta", "message", "")
MEMBERS: Final = ("usage", "model", "id", "type", "error", "base_resp")

Counts = dict[str, int]


class AnthropicMessages(DocumentReader):
    """One Messages response."""

    interest: ClassVar[Interest] = Interest(
        marks=marks("usage"),
        endings=marks("error", "message_stop", unless=SUCCESS, literals=(DONE,)),
        members=frozenset((name,) for name in MEMBERS),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.counts: Counts = {}
        self.iterations: list[Any] = []
        self.usage: dict[str, Any] | None = None
        self.stopped = False

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        self.close(name, value)
        kind = kind_of(name, value)
        message = value.get("message")
        source = message if kind == "message_start" and isinstance(message, dict) else value
        if kind in STATING:
            self.name(source.get("model"), source.get("id"))
            usage = source.get("usage")
            if isinstance(usage, dict):
                self._merge(usage)

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        kind = kind_of(name, value)
        self.stopped = self.stopped or name == DONE or kind == "message_stop"
        self.failed = self.failed or kind == "error" or bool(value.get("error")) or base_resp_failed(value)

    def _merge(self, usage: dict[str, Any]) -> None:
        new = read_counts(usage)
        if not any(new.values()) and any(self.counts.values()):
            return
        side = [new[name] for name in INPUT_SIDE if name in new]
        if side and not any(side) and any(self.counts.get(name) for name in INPUT_SIDE):
            new = {name: number for name, number in new.items() if name not in INPUT_SIDE}
        if new:
            self.counts |= new
            self.usage = usage
        iterations = usage.get("iterations")
        self.iterations = iterations if isinstance(iterations, list) else self.iterations
        tier = "fast" if usage.get("speed") == "fast" else text(usage.get("service_tier"))
        self.service_tier = tier or self.service_tier

    def tokens(self) -> Tokens:
        compaction = [read_counts(entry) for entry in self.iterations if at(entry, "type") == "compaction"]
        return tokens_of(add_up(self.counts, compaction)) if self.counts else Tokens()

    def others(self, *, ended: bool) -> tuple[Reading, ...]:
        """One reading per advisor model; its calls are calls of their own, so they do add up."""
        advisors: dict[str | None, Counts] = {}
        for entry in self.iterations:
            if at(entry, "type") == "advisor_message":
                model = text(at(entry, "model"))
                advisors[model] = add_up(advisors.get(model, {}), [read_counts(entry)])
        return tuple(self._advice(model, tokens_of(counts), ended) for model, counts in advisors.items() if counts)

    def _advice(self, model: str | None, tokens: Tokens, ended: bool) -> Reading:
        return Reading(
            tokens=tokens,
            usage=usage_state(tokens, ended=ended),
            model=model,
            response_id=self.response_id,
            failed=self.failed,
            ended=ended,
        )

    def cost(self) -> float | None:
        return charge(self.usage)

    def terminal(self, *, complete: bool) -> bool:
        return self.stopped


def read_counts(usage: Any) -> Counts:
    """The valid counts of a usage object under Anthropic's own names, the TTL split and thinking included."""
    found = {
        **{name: count(at(usage, name)) for name in (*INPUT_SIDE, "output_tokens")},
        "cache_1h": count(at(usage, "cache_creation", "ephemeral_1h_input_tokens")),
        "thinking": count(at(usage, "output_tokens_details", "thinking_tokens")),
    }
    split = found["cache_1h"], count(at(usage, "cache_creation", "ephemeral_5m_input_tokens"))
    if found["cache_creation_input_tokens"] is None and None not in split:
        found["cache_creation_input_tokens"] = total(*split)
    return {name: number for name, number in found.items() if number is not None}


def add_up(counts: Counts, more: list[Counts]) -> Counts:
    """Counts of separate model calls, name by name."""
    names = {*counts, *(name for entry in more for name in entry)}
    return {name: counts.get(name, 0) + sum(entry.get(name, 0) for entry in more) for name in names}


def tokens_of(counts: Counts) -> Tokens:
    """Token classes of Anthropic's counts."""
    output, thinking = counts.get("output_tokens"), counts.get("thinking")
    written = counts.get("cache_creation_input_tokens")
    return Tokens(
        input_tokens=bounded(counts.get("input_tokens")),
        cache_read_tokens=bounded(counts.get("cache_read_input_tokens")),
        cache_write_tokens=bounded(written),
        cache_write_1h_tokens=bounded(within(counts.get("cache_1h"), written)),
        output_tokens=bounded(output if output is None or thinking is None else max(output, thinking)),
        reasoning_tokens=bounded(thinking),
    )
