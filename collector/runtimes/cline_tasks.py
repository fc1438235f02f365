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
from shim.line import Tokens

TASK: Final = "ui_messages.json"
REQUESTS: Final = ("api_req_started", "subagent_usage")
DELETED: Final = "deleted_api_reqs"
COUNT_KEYS: Final = ("tokensIn", "tokensOut", "cacheWrites", "cacheReads")


def read_task(source: Source, state: dict[str, Any] | None) -> Batch:
    """All requests of one task. Raises ``SourceError`` where the document is being written."""
    batch = Batch()
    task = source.path.parent.name
    seen: dict[str, list[int]] = dict(values.mapping((state or {}).get("seen")))
    present: set[str] = set()
    deleted, deleted_at = [0] * 5, 0.0
    moments: list[float] = []
    model: str | None = None
    for message in _document(source):
        ts = values.millis(message.get("ts"))
        if ts is None:
            continue
        moments.append(ts)
        kind = message.get("say") if message.get("type") == "say" else None
        if kind not in (*REQUESTS, DELETED):
            continue
        numbers = _numbers(message)
        if numbers is None:
            batch.skipped["no_usage"] += 1
        elif kind == DELETED:
            deleted, deleted_at = [a + b for a, b in zip(deleted, numbers, strict=True)], ts
        else:
            key = f"vscode:{task}:{message['ts']}:{kind}"
            model = values.model(values.mapping(message.get("modelInfo")).get("modelId")) or model
            batch.records.append(_record(task, key, ts, numbers, moments[0], model))
            seen[key] = numbers
            present.add(key)
    gone = [sum(column) for column in zip(*(seen[key] for key in seen.keys() - present), strict=True)] or [0] * 5
    left = [max(0, a - b) for a, b in zip(deleted, gone, strict=True)]
    if sum(left[:4]):
        batch.records.append(_record(task, f"vscode:{task}:{DELETED}", deleted_at, left, moments[0], model))
    first, last = values.earliest(*moments), values.latest(*moments)
    batch.sessions.append(Session(RUNTIME, f"vscode:{task}", first, last, model, "log" if model else "none"))
    batch.state = {"seen": seen}
    return batch


def _document(source: Source) -> list[dict[str, Any]]:
    try:
        value = orjson.loads(jsonl.document(source.path))
    except orjson.JSONDecodeError:
        raise SourceError(source.path, "not complete JSON") from None
    return [message for message in value if isinstance(message, dict)] if isinstance(value, list) else []


def _numbers(message: dict[str, Any]) -> list[int] | None:
    """In, out, written, read tokens and pico-USD of a request, ``None`` while it has none."""
    text = message.get("text")
    data = jsonl.parse(text.encode("utf-8", "replace")) if isinstance(text, str) else None
    counts = [values.count((data or {}).get(key)) for key in COUNT_KEYS]
    if data is None or not any(counts):
        return None
    return [*(count or 0 for count in counts), values.usd(data.get("cost")) or 0]


def _record(task: str, key: str, ts: float, numbers: list[int], owner: float, model: str | None) -> Record:
    fresh, output, written, read, pico = numbers
    return Record(
        runtime=RUNTIME,
        key=key,
        session_id=f"vscode:{task}",
        ts=ts,
        tokens=Tokens(input_tokens=fresh, cache_read_tokens=read, cache_write_tokens=written, output_tokens=output),
        model=model,
        model_source="log" if model else "none",
        owner=owner,
        revision=fresh + output + written + read,
        vendor_pico=pico or None,
        vendor_basis="runtime_price" if pico else None,
    )
