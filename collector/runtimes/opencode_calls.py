"""opencode's messages as values: what identifies a call over all its copies, and its numbers as a record.

A fork copies messages under new ids without naming its source. What survives is when the call began and its provider,
model and agent, so that is the key; it does not depend on numbers, which a running call still changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from collector.record import Record, Session
from collector.runtimes import values
from collector.runtimes.counts import Counts
from collector.runtimes.local import is_local
from shim.line import Tokens

RUNTIME: Final = "opencode"
# https://github.com/anomalyco/opencode/pull/21047
OUTPUT_EXCLUDES_REASONING: Final = (1, 3, 16)
ONE_MESSAGE_A_STEP: Final = (1, 0, 0)
# The AI SDK's Google provider counted thoughts beside the output from the start.
ALWAYS_APART: Final = frozenset({"google", "google-vertex"})
# What is read of a message, in this order; the last five are its counts.
MESSAGE_PATHS: Final = (
    "providerID",
    "modelID",
    "agent",
    "mode",
    "time.created",
    "time.completed",
    "cost",
    "tokens.total",
    "tokens.input",
    "tokens.output",
    "tokens.reasoning",
    "tokens.cache.read",
    "tokens.cache.write",
)
STEP_PATHS: Final = ("cost", *MESSAGE_PATHS[8:])


@dataclass(frozen=True, slots=True)
class Head:
    """A session as its row or file tells it; ``rollup`` is ``None`` where the version keeps none.

    ``forked``: it names the session that it was copied from.
    """

    id: str
    created: float | None
    updated: float | None
    version: tuple[int, ...]
    parent: str | None = None
    model: str | None = None
    provider: str | None = None
    rollup: Counts | None = None
    forked: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One assistant message: its identity over all copies, its times (ms) and numbers; ``second``: of version 2."""

    id: str
    session: str
    provider: str | None
    model: str | None
    agent: str
    created: int
    completed: int | None
    total: int | None
    usage: Counts
    second: bool = False

    @property
    def key(self) -> str:
        """The same in every copy: a fork has new ids, but keeps when, where and for which agent a call began."""
        if not self.created:
            return f"id:{self.id}"
        return f"{self.created}:{self.provider}/{self.model}:{self.agent}"


def version_of(value: Any) -> tuple[int, ...]:
    """``1.18.33`` as numbers; what is no version counts as the newest (a build of a branch, ``local``)."""
    found = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", value) if isinstance(value, str) else None
    return tuple(map(int, found.groups())) if found else (9999,)


def usage_of(cost: Any, counts: Iterable[Any]) -> Counts:
    """From USD and the five counts of ``STEP_PATHS``."""
    fresh, output, reasoning, read, write = counts
    return Counts.of(fresh, output, reasoning, read, write, cost)


def message_of(identity: Any, session: Any, fields: list[Any]) -> Message | None:
    """A message from the values at ``MESSAGE_PATHS``."""
    provider, model, agent, mode, created, completed, cost, total, *counts = fields
    identity, session = values.reference(identity), values.reference(session)
    if identity is None or session is None:
        return None
    return Message(
        identity,
        session,
        values.name(provider),
        values.model(model),
        values.name(agent) or values.name(mode) or "",
        values.count(created) or 0,
        values.count(completed),
        values.count(total),
        usage_of(cost, counts),
    )


def record_of(message: Message, head: Head, urls: Mapping[str, str], key: str, *, database: bool) -> Record:
    """``database`` ranks a row above the same message's JSON file, whatever the order of reading."""
    usage, apart = message.usage, _reasoning_apart(message, head)
    url = urls.get(message.provider or "")
    local = not usage.pico and is_local(message.provider, message.model, url)
    known = message.completed if message.completed is not None else usage.size
    return Record(
        runtime=RUNTIME,
        key=key,
        session_id=head.id,
        ts=values.millis(message.created) or head.created or 0.0,
        tokens=Tokens(
            input_tokens=usage.input,
            cache_read_tokens=usage.read,
            cache_write_tokens=usage.write,
            output_tokens=None if usage.output is None else usage.output + (usage.reasoning or 0 if apart else 0),
            reasoning_tokens=usage.reasoning,
        ),
        model=message.model,
        model_source="log" if message.model else "none",
        provider=message.provider,
        owner=owner_of(head, message),
        revision=2 * known + database,
        parent_session_id=head.parent,
        vendor_pico=usage.pico or (0 if local else None),
        vendor_basis="runtime_price" if usage.pico or local else None,
        # Versions that counted reasoning inside the output charged it once more on top.
        caveat="vendor_estimate" if usage.pico and usage.reasoning and not apart else None,
        local=local,
        ended_ts=values.millis(message.completed),
    )


def owner_of(head: Head, message: Message) -> float:
    return head.created if head.created is not None else message.created / 1000


def _reasoning_apart(message: Message, head: Head) -> bool:
    usage = message.usage
    reasoning, output = usage.reasoning or 0, usage.output or 0
    beside = (usage.input or 0) + output + (usage.read or 0) + (usage.write or 0)
    if reasoning > output:
        return True
    if message.total is not None and message.total in (beside, beside + reasoning):
        return message.total != beside
    return message.provider in ALWAYS_APART or head.version >= OUTPUT_EXCLUDES_REASONING


def session_of(head: Head, last: Message | None) -> Session:
    """The session with the model of its last call, else of its own record."""
    model = last.model if last else head.model
    return Session(RUNTIME, head.id, head.created, head.updated, model, "log" if model else "none", head.parent)
