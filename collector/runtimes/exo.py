"""Exo: one JSON file per event in ``<workspace>/.exo/exoharness/agents/<agent>/conversations/<conversation>/events``.

True here (source: https://github.com/exoharness/exo at 9beecd6): there is no folder per home, so workspaces are looked
for. ``prompt_tokens`` is fresh input for Anthropic's models (whoever serves them) and includes the cache for all
others. ``cost_usd`` is written once: OpenRouter's own figure (its answers have ids ``gen-…``) or a price table. A fork
copies events under new ids and times, keeps session, turn, response and usage, and then writes ``thread_forked``. The
response ids of some local servers are a number below 1000 and repeat; such a call is known by its place in its turn.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from collector import jsonl
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, values
from collector.runtimes.local import is_local
from collector.runtimes.places import files, leads_out, subfolders
from shim.line import Tokens

RUNTIME: Final = "exo"
# How deep below the home a workspace may lie, and how many folders are looked into for them.
WORKSPACE_DEPTH: Final = 3
MAX_FOLDERS: Final = 4_000
FORKED: Final = ("thread_forked", "conversation_forked")
USAGE_KEYS: Final = (
    "prompt_tokens",
    "completion_tokens",
    "prompt_cached_tokens",
    "prompt_cache_creation_tokens",
    "completion_reasoning_tokens",
)
_ANTHROPIC: Final = re.compile(r"(?:^|[/.])(?:claude|anthropic)\b", re.I)
_OPENROUTER_ID: Final = "gen-"

FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="<workspace>/.exo/exoharness/agents/*/conversations/*",
    variables="none",
    aggregation="sum of events",
    input_includes_cache="no for Claude, yes for others",
    reasoning_in_output="yes",
    dedupe_key="response id",
    cost_field="usage.cost_usd",
    cost_unit="USD",
    cost_basis="billed through OpenRouter, else runtime_price",
)


@dataclass(slots=True)
class _Conversation:
    """What is kept of a conversation while its events are read in order. ``first``: its first event that is no copy."""

    id: str
    first: float | None = None
    last: float | None = None
    model: str | None = None
    calls: list[tuple[float, str, str | None, dict[str, Any]]] = field(default_factory=list)
    in_turn: Counter[str] = field(default_factory=Counter)


class Exo:
    """A conversation is one source: its folder of events, whose time changes with each new event."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source a conversation, in every workspace found."""
        for workspace in _workspaces(home):
            for agent in subfolders(workspace / ".exo" / "exoharness" / "agents"):
                for conversation in subfolders(Path(agent.path, "conversations")):
                    events = Path(conversation.path, "events")
                    if os.path.isdir(events) and not leads_out(home, events):
                        yield Source(RUNTIME, events)

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """All events of a conversation, in their order."""
        batch = Batch()
        conversation = _Conversation(source.path.parent.name)
        for entry in files(source.path, lambda name: name.endswith(".json")):
            event = jsonl.json_document(Path(entry.path))
            if event is None:
                batch.skipped["bad_json"] += 1
                batch.unfinished = True
            else:
                _take(conversation, event, batch)
        batch.records = [_record(conversation, *call) for call in conversation.calls]
        model = conversation.model
        batch.sessions.append(
            Session(RUNTIME, conversation.id, conversation.first, conversation.last, model, "log" if model else "none")
        )
        yield batch


READER: Final = Exo()


def _workspaces(home: Path) -> Iterator[Path]:
    """Folders with an ``.exo`` of their own, breadth first; hidden folders are not looked into."""
    level, looked_into = [home], 0
    for _ in range(WORKSPACE_DEPTH + 1):
        below: list[Path] = []
        for place in level:
            if os.path.isdir(place / ".exo" / "exoharness") and not leads_out(home, place / ".exo" / "exoharness"):
                yield place
            looked_into += 1
            if looked_into <= MAX_FOLDERS:
                below += [
                    Path(entry.path)
                    for entry in subfolders(place)
                    if not entry.name.startswith(".") and entry.name != "node_modules"
                ]
        level = below


def _take(conversation: _Conversation, event: dict[str, Any], batch: Batch) -> None:
    created = values.iso(event.get("created_at"))
    if created is None:
        batch.skipped["bad_json"] += 1
        return
    conversation.last = values.latest(conversation.last, created)
    data = values.mapping(event.get("data"))
    if data.get("type") in FORKED:
        # Everything so far was copied.
        conversation.first, conversation.model = created, None
    elif conversation.first is None:
        conversation.first = created
    if data.get("type") != "messages":
        return
    usage = values.mapping(data.get("usage"))
    if not usage:
        batch.skipped["no_usage"] += 1
        return
    conversation.model = conversation.model or values.model(usage.get("model"))
    response = values.reference(data.get("response_id"))
    picked = {name: usage.get(name) for name in (*USAGE_KEYS, "model", "cost_usd", "duration_ms")}
    key = response if response is not None and values.is_unique(response) else _place(conversation, event, picked)
    conversation.calls.append((created, key or f"{conversation.id}:{created:.3f}", response, picked))


def _place(conversation: _Conversation, event: dict[str, Any], usage: dict[str, Any]) -> str | None:
    """What is the same in every copy of a call without an id of its own: its number in its turn, else its figures."""
    if event.get("turn_id") is None:
        return values.reference(":".join(str(value) for value in usage.values()))
    turn = f"{event.get('session_id')}:{event.get('turn_id')}"
    conversation.in_turn[turn] += 1
    return values.reference(f"{turn}:{conversation.in_turn[turn]}")


def _record(conversation: _Conversation, ts: float, key: str, response: str | None, usage: dict[str, Any]) -> Record:
    model, pico = values.model(usage["model"]), values.usd(usage["cost_usd"])
    billed = response is not None and response.startswith(_OPENROUTER_ID)
    provider = "openrouter" if billed else (model or "").partition("/")[0] if "/" in (model or "") else None
    local = not pico and is_local(provider, model)
    stated = pico if pico or billed or local else None
    return Record(
        runtime=RUNTIME,
        key=key,
        session_id=conversation.id,
        ts=ts,
        tokens=_tokens(model, usage),
        model=model,
        model_source="log" if model else "none",
        provider=provider,
        owner=conversation.first or ts,
        vendor_pico=stated,
        vendor_basis=None if stated is None else "billed" if billed else "runtime_price",
        local=local,
        response_id=response if billed else None,
        duration_ms=values.count(usage["duration_ms"]),
    )


def _tokens(model: str | None, usage: dict[str, Any]) -> Tokens:
    prompt, output, read, write, reasoning = (values.count(usage[name]) for name in USAGE_KEYS)
    beside = model is not None and _ANTHROPIC.search(model) is not None
    return Tokens(
        input_tokens=prompt if beside else values.fresh(prompt, read, write),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        reasoning_tokens=reasoning,
    )
