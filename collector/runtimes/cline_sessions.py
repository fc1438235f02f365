"""A session folder of Cline's CLI: ``<id>.json`` (manifest) and ``*.messages.json`` (the lead's and its teammates').

Both are rewritten whole, so they are documents. Messages are the records. A fork copies messages with their ids and the
manifest's running total with them, so a message is known by id and time, and a fork's total is never counted. A total
beyond the messages is (a crash lost them), as one more record; ``state`` remembers messages that were seen and are
gone, which the total still holds. ``aggregateUsage`` repeats what teammates and sub-agents record themselves.

A task of the extension that its newer generation goes on with becomes a session of the task's name, and its last answer
is given the sum of all of the task (apps/vscode/src/sdk/legacy-task-handling.ts): the task itself tells of that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from collector import jsonl
from collector.record import Record, Session
from collector.runtimes import Batch, Source, values
from collector.runtimes.counts import Counts, total
from collector.runtimes.local import is_local
from shim.line import Tokens

RUNTIME: Final = "cline"
# Providers whose answer states what was charged; the others' costs come from Cline's price table.
STATES_CHARGE: Final = "openrouter"
MESSAGES: Final = ".messages.json"
TASK: Final = "ui_messages.json"
# The name of a task is the moment it was made, to which that of a session has something added.
TASK_NAME: Final = re.compile(r"\d{13}")
CARRIED: Final = "carried:"
BORN: Final = re.compile(r"(\d{13})_")
USAGE_KEYS: Final = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the session's own document says; all of it may be missing."""

    session: str
    started: float | None = None
    ended: float | None = None
    model: str | None = None
    provider: str | None = None
    total: Counts | None = None
    forked: bool = False

    @property
    def born(self) -> float | None:
        """When the session was made, by its id: a fork may lack its manifest, or have that of its source."""
        found = BORN.match(self.session)
        return values.millis(int(found[1])) if found else None

    @classmethod
    def of(cls, session: str, data: dict[str, Any]) -> Manifest:
        """From the document, which may lack anything."""
        metadata = values.mapping(data.get("metadata"))
        usage = values.mapping(metadata.get("usage"))
        return cls(
            session,
            values.iso(data.get("started_at")),
            values.iso(data.get("ended_at")),
            values.model(data.get("model")),
            values.name(data.get("provider")),
            counts_of(usage, usage.get("totalCost")),
            "fork" in metadata,
        )


@dataclass(frozen=True, slots=True)
class Message:
    """One assistant message with metrics. ``ts`` in epoch seconds."""

    key: str
    ts: float
    model: str | None
    provider: str | None
    counts: Counts


def read_session(source: Source, state: dict[str, Any] | None) -> Batch:
    """All calls of one session folder."""
    batch = Batch()
    folder = source.path.parent
    documents = [path for path in (source.path, *source.parts) if path.name.endswith(MESSAGES)]
    manifest = _manifest(source.path, folder.name, batch)
    urls = base_urls(source.parts)
    lead: list[Message] = []
    calls: list[Message] = []
    for path in documents:
        found = list(_messages(path, folder, batch))
        calls += found
        if path.name == folder.name + MESSAGES:
            lead = found
    started = manifest.started or manifest.born or values.earliest(*(call.ts for call in calls))
    known = state or {}
    task = bool(known.get("task")) or any(part.name == TASK for part in source.parts)
    for call in calls:
        record, carried = _record(call, manifest, started, urls), task and call.key.startswith(CARRIED)
        if carried and known.get("carried"):
            record = msgspec.structs.replace(record, revision=record.revision + 1, taken_back=True)
        if not carried or record.taken_back:
            batch.records.append(record)
    carried = any(record.key.startswith(CARRIED) and not record.taken_back for record in batch.records)
    batch.state = {**_rest(batch, manifest, started, lead, known), "task": task, "carried": carried}
    last = max(calls, key=lambda call: call.ts, default=None)
    ended = manifest.ended or (last.ts if last else None)
    model = last.model if last else None
    batch.sessions.append(Session(RUNTIME, manifest.session, started, ended, model, "log" if model else "none"))
    return batch


def counts_of(usage: dict[str, Any], cost: Any) -> Counts | None:
    """The counts of a ``metrics`` or ``usage`` object, ``None`` where it has none. Reasoning is not reported."""
    fresh, output, read, write = (usage.get(key) for key in USAGE_KEYS)
    counts = Counts.of(fresh, output, None, read, write, cost)
    return None if counts.input is None and counts.output is None else counts


def tokens_of(counts: Counts) -> Tokens:
    """The product's classes: ``input`` includes what was read from and written to the cache."""
    return Tokens(
        input_tokens=values.fresh(counts.input, counts.read, counts.write),
        cache_read_tokens=counts.read,
        cache_write_tokens=counts.write,
        output_tokens=counts.output,
    )


def base_urls(parts: tuple[Path, ...]) -> dict[str, str]:
    """Base URL by provider from Cline's settings."""
    path = next((part for part in parts if part.name == "providers.json"), None)
    providers = values.mapping((jsonl.json_document(path) or {}).get("providers")) if path else {}
    found = {
        name: values.mapping(values.mapping(one).get("settings")).get("baseUrl") for name, one in providers.items()
    }
    return {name: url for name, url in found.items() if isinstance(url, str)}


def money(counts: Counts, provider: str | None, *, local: bool) -> tuple[int | None, str | None]:
    """Vendor dollars and their basis. A zero counts where a charge was stated or the provider is local."""
    billed = provider == STATES_CHARGE
    if counts.pico or (counts.pico == 0 and (billed or local)):
        return counts.pico, "billed" if billed else "runtime_price"
    return None, None


def rest_record(manifest: Manifest, started: float | None, rest: Counts, revision: int, *, alone: bool) -> Record:
    """What a running total has beyond the messages, taken back if that is nothing; ``alone``: there are none."""
    pico, basis = money(rest, manifest.provider, local=False)
    return Record(
        runtime=RUNTIME,
        key=f"rest:{manifest.session}",
        session_id=manifest.session,
        ts=manifest.ended or started or 0.0,
        tokens=tokens_of(rest),
        model=manifest.model,
        model_source="log" if manifest.model else "none",
        provider=manifest.provider,
        grain="session",
        owner=started or 0.0,
        revision=revision,
        vendor_pico=pico,
        vendor_basis=basis,
        caveat=None if alone else "cumulative_rest",
        taken_back=not rest.size,
    )


def _manifest(path: Path, session: str, batch: Batch) -> Manifest:
    if path.name.endswith(MESSAGES):
        return Manifest(session)
    data = jsonl.json_document(path)
    if data is None:
        batch.skipped["bad_json"] += 1
    return Manifest.of(session, data or {})


def _messages(path: Path, folder: Path, batch: Batch) -> Iterator[Message]:
    data = jsonl.json_document(path)
    if data is None:
        batch.skipped["bad_json"] += 1
        return
    own = values.reference(data.get("sessionId")) or folder.name
    if own != folder.name and os.path.isdir(folder.parent / own):
        # A teammate with a session of its own is read there.
        batch.skipped["own_session"] += 1
        return
    listed = data.get("messages")
    resumed = path.name == folder.name + MESSAGES and TASK_NAME.fullmatch(folder.name) is not None
    for message in listed if isinstance(listed, list) else ():
        fields = values.mapping(message)
        call = (_carried(fields, folder.name) if resumed else None) or _call(fields)
        if call is not None:
            resumed = False
            yield call
        elif fields.get("role") == "assistant":
            batch.skipped["no_usage"] += 1


def _carried(message: dict[str, Any], task: str) -> Message | None:
    """What a resumed task had spent before: of no known provider, and of an id and a time that change."""
    metrics, model = values.mapping(message.get("metrics")), values.mapping(message.get("modelInfo"))
    counts = counts_of(metrics, metrics.get("cost"))
    if message.get("role") != "assistant" or counts is None or model.get("provider") not in (None, "unknown"):
        return None
    return Message(f"{CARRIED}{task}", int(task) / 1000, values.model(model.get("id")), None, counts)


def _call(message: dict[str, Any]) -> Message | None:
    metrics, model = values.mapping(message.get("metrics")), values.mapping(message.get("modelInfo"))
    counts = counts_of(metrics, metrics.get("cost"))
    identity, ts = values.reference(message.get("id")), values.millis(message.get("ts"))
    if message.get("role") != "assistant" or counts is None or identity is None or ts is None:
        return None
    return Message(
        f"{identity}:{ts:.3f}", ts, values.model(model.get("id")), values.name(model.get("provider")), counts
    )


def _record(call: Message, manifest: Manifest, started: float | None, urls: dict[str, str]) -> Record:
    local = is_local(call.provider, call.model, urls.get(call.provider or ""))
    pico, basis = money(call.counts, call.provider, local=local)
    return Record(
        runtime=RUNTIME,
        key=call.key,
        session_id=manifest.session,
        ts=call.ts,
        tokens=tokens_of(call.counts),
        model=call.model,
        model_source="log" if call.model else "none",
        provider=call.provider,
        owner=values.latest(started, manifest.born) or call.ts,
        revision=call.counts.size,
        vendor_pico=pico,
        vendor_basis=basis,
        local=local and not pico,
        # Zeros are what it writes where the provider sent no usage.
        usage="reported" if call.counts.size else "missing",
    )


def _rest(
    batch: Batch,
    manifest: Manifest,
    started: float | None,
    lead: list[Message],
    state: dict[str, Any],
) -> dict[str, Any]:
    """Adds what the lead's total has beyond all of its messages ever seen; the next state."""
    seen = {**values.mapping(state.get("seen")), **{call.key: list(call.counts.numbers) for call in lead}}
    rested = bool(state.get("rest"))
    if manifest.total is not None and not manifest.forked and not batch.skipped["bad_json"]:
        known = total(Counts(*numbers) for numbers in seen.values())
        rest = manifest.total.beyond(known)
        if rest.size or rested:
            batch.records.append(rest_record(manifest, started, rest, manifest.total.size + known.size, alone=not seen))
            rested = True
    return {"seen": seen, "rest": rested}
