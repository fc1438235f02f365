"""A task of Cline's VS Code extension: ``tasks/<task>/ui_messages.json``, rewritten whole.

A request is announced without numbers and gets them later; sub-agents are summed in messages of their own. Requests of
deleted messages are summed in ``deleted_api_reqs``, so what was already counted of them is taken off that sum
(``state`` remembers it). ``tokensIn`` excludes the cache; costs are the extension's own arithmetic; few versions name
a model.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from collector import jsonl
from collector.record import Record, Session
from collector.runtimes import Batch, Source, SourceError, values
from collector.runtimes.cline_sessions import RUNTIME
from collector.runtimes.counts import NOTHING, Counts, total
from shim.line import Tokens

REQUESTS: Final = ("api_req_started", "subagent_usage")
DELETED: Final = "deleted_api_reqs"
COUNT_KEYS: Final = ("tokensIn", "tokensOut", "cacheWrites", "cacheReads")


def read_task(source: Source, state: dict[str, Any] | None) -> Batch:
    """All requests of one task. Raises ``SourceError`` where the document is being written."""
    batch = Batch()
    task = _Task(source.path.parent.name)
    for message in _document(source):
        task.take(message, batch)
    known = values.mapping((state or {}).get("seen"))
    present = {record.key for record in batch.records}
    counted = total(Counts(*numbers) for key, numbers in known.items() if key not in present)
    left = task.deleted.beyond(counted)
    if left.size:
        batch.records.append(task.record(f"{task.session}:{DELETED}", task.deleted_at, left))
    model = task.model
    batch.sessions.append(Session(RUNTIME, task.session, task.first, task.last, model, "log" if model else "none"))
    batch.state = {"seen": {**known, **task.seen}}
    return batch


class _Task:
    """What is kept of a task while its messages are read. ``deleted``: the sum of requests of deleted messages."""

    def __init__(self, task: str) -> None:
        self.session = f"vscode:{task}"
        self.first: float | None = None
        self.last: float | None = None
        self.model: str | None = None
        self.deleted = NOTHING
        self.deleted_at = 0.0
        self.seen: dict[str, list[int | None]] = {}

    def take(self, message: dict[str, Any], batch: Batch) -> None:
        """One message of any kind."""
        ts = values.millis(message.get("ts"))
        if ts is None:
            return
        self.first, self.last = values.earliest(self.first, ts), values.latest(self.last, ts)
        kind = message.get("say") if message.get("type") == "say" else None
        if kind not in (*REQUESTS, DELETED):
            return
        counts = _counts(message)
        if counts is None:
            batch.skipped["no_usage"] += 1
        elif kind == DELETED:
            self.deleted, self.deleted_at = self.deleted + counts, ts
        else:
            self.model = values.model(values.mapping(message.get("modelInfo")).get("modelId")) or self.model
            record = self.record(f"{self.session}:{message['ts']}:{kind}", ts, counts)
            batch.records.append(record)
            self.seen[record.key] = list(counts.numbers)

    def record(self, key: str, ts: float, counts: Counts) -> Record:
        """A request, or the rest of the deleted ones."""
        return Record(
            runtime=RUNTIME,
            key=key,
            session_id=self.session,
            ts=ts,
            tokens=Tokens(
                input_tokens=counts.input,
                cache_read_tokens=counts.read,
                cache_write_tokens=counts.write,
                output_tokens=counts.output,
            ),
            model=self.model,
            model_source="log" if self.model else "none",
            owner=self.first or ts,
            revision=counts.size,
            vendor_pico=counts.pico or None,
            vendor_basis="runtime_price" if counts.pico else None,
        )


def _document(source: Source) -> list[dict[str, Any]]:
    try:
        value = jsonl.loads(jsonl.document(source.path))
    except orjson.JSONDecodeError:
        raise SourceError(source.path, "not complete JSON") from None
    return [message for message in value if isinstance(message, dict)] if isinstance(value, list) else []


def _counts(message: dict[str, Any]) -> Counts | None:
    """The numbers of a request, ``None`` while it has none."""
    text = message.get("text")
    data = jsonl.parse(text.encode("utf-8", "replace")) if isinstance(text, str) else None
    if data is None:
        return None
    fresh, output, write, read = (data.get(key) for key in COUNT_KEYS)
    counts = Counts.of(fresh, output, None, read, write, data.get("cost"))
    return counts if counts.size else None
