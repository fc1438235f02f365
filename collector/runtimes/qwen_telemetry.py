"""Calls of Qwen Code of which only the telemetry lines of a chat tell.

Read from https://github.com/QwenLM/qwen-code (``logApiResponse`` in packages/core/src/telemetry/loggers.ts). True here:

- a ``ui_telemetry`` line is written for every response, next to the assistant's line that has its counts, too. What no
  assistant's line repeats wrote a summary (``chatCompressionService.ts``) or was a side call; that is known once a
  later response is repeated, or its summary is there. Where an assistant's line repeats none, nothing is known of
  those before it, and they are passed over.
- one that names a sub-agent stands in the usage log, too, since there is one; before that, and where the user has
  switched usage statistics off, only here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, lines, parse
from collector.runtimes import SourceError, places
from collector.runtimes.values import count, iso, mapping, model, reference

RESPONSE: Final = "qwen-code.api_response"
SUMMARY: Final = "chat_compression"
FIELDS: Final = (
    "input_token_count",
    "output_token_count",
    "cached_content_token_count",
    "thoughts_token_count",
    "total_token_count",
)
# Responses that wait for the line that repeats them: a call has one at most, so the oldest of many has none.
MAX_OPEN: Final = 32
HEAD_BYTES: Final = 64 << 10
# The usage log has the time of a response, the chat that of its line; seconds.
SLACK: Final = 1.0

Counts = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Response:
    """A response as its telemetry line tells it: the line's id and time, the counts, the model, the provider's id."""

    key: str
    when: float
    counts: Counts
    model: str | None
    id: str | None
    copied_from: str | None


@dataclass(slots=True)
class Telemetry:
    """The responses of a chat. ``usage``: the folder of the usage log; ``open``: those that nothing has repeated yet;
    ``answer``: the counts of the last assistant's line."""

    usage: Path
    open: list[Response] = field(default_factory=list)
    answer: Counts | None = None
    _logged_since: float | None = None

    @classmethod
    def of(cls, usage: Path, state: Mapping[str, Any]) -> Telemetry:
        """As the last pass left it."""
        waiting = [Response(key, when, tuple(counts), *rest) for key, when, counts, *rest in state.get("open", ())]
        answer = state.get("answer")
        return cls(usage, waiting, None if answer is None else tuple(answer))

    @property
    def state(self) -> dict[str, Any]:
        """What the next pass needs to know, JSON-able."""
        waiting = [[one.key, one.when, list(one.counts), one.model, one.id, one.copied_from] for one in self.open]
        return {"open": waiting, "answer": None if self.answer is None else list(self.answer)}

    def system(self, entry: dict[str, Any], when: float | None, copied_from: str | None) -> list[Response]:
        """Take a system line; returns the calls of which nothing else tells."""
        if entry.get("subtype") == SUMMARY:
            return [self.open.pop()] if self.open else []
        event = mapping(mapping(entry.get("systemPayload")).get("uiEvent"))
        key, counts = reference(entry.get("uuid")), tuple(count(event.get(name)) for name in FIELDS)
        if event.get("event.name") != RESPONSE or key is None or when is None or not any(counts):
            return []
        told = Response(key, when, counts, model(event.get("model")), reference(event.get("response_id")), copied_from)
        if event.get("subagent_name"):
            return [] if when >= self.logged_since() - SLACK else [told]
        if self._is_known(told):
            return []
        self.open.append(told)
        return [self.open.pop(0)] if len(self.open) > MAX_OPEN else []

    def repeated(self, counts: Counts) -> list[Response]:
        """Take the counts of an assistant's line; returns the calls before it of which nothing else tells."""
        at = next((n for n in reversed(range(len(self.open))) if _same(self.open[n].counts, counts)), None)
        untold = self.open[:at] if at is not None else []
        self.open = self.open[at + 1 :] if at is not None else []
        self.answer = counts
        return untold

    def _is_known(self, told: Response) -> bool:
        """Whether the assistant's line came first, or the response was told before."""
        if self.answer is not None and _same(self.answer, told.counts):
            return True
        return told.id is not None and any(response.id == told.id for response in self.open)

    def logged_since(self) -> float:
        """When the usage log begins, in epoch seconds; infinite where there is none."""
        if self._logged_since is None:
            self._logged_since = _began(self.usage)
        return self._logged_since


def _same(one: Counts, other: Counts) -> bool:
    return all((a or 0) == (b or 0) for a, b in zip(one, other, strict=True))


def is_usage_log(file: str) -> bool:
    return file.startswith("token-usage-") and file.endswith(".jsonl")


def _began(folder: Path) -> float:
    for entry in places.files(folder, is_usage_log):
        try:
            block = next(LineFile(Path(entry.path)).blocks(HEAD_BYTES), b"")
        except SourceError:
            # It may hold anything: nothing is counted that it could have, too.
            return -inf
        when = iso((parse(next(lines(block), b"")) or {}).get("timestamp"))
        return -inf if when is None else when
    return inf
