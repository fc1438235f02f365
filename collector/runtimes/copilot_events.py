"""``session-state/<session>/events.jsonl`` of Copilot, ``<session>.jsonl`` before sessions had folders.

Used for sessions of which the ledger has no row, and for what those that an older build began had spent before their
first one.

Newer builds write a ``session.usage_record`` per call; a copy of it in a forked session names its source. Older ones
write only ``session.shutdown`` on a clean exit, cumulative over the legs of a session, so the last of a rising series
counts. In the oldest it is of one leg alone, which shows where it holds no more output than the messages since the last
shutdown (``assistant.message``; of those only that number is taken). A zero total with a key of the user's own means
unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec

from collector import jsonl
from collector.record import PICO, Record, Session
from collector.runtimes import Batch, Source, values
from collector.sqlite_ro import KnownIds
from shim.line import Tokens

RUNTIME: Final = "copilot"
EVENTS: Final = "events.jsonl"
STORE: Final = "session-store.db"
NO_LEDGER: Final = "other_basis"
LEDGER: Final = KnownIds("assistant_usage_events", "session_id", since="created_at")
# A call is in the events some moments before it is in the ledger, whose times may be whole seconds; in seconds.
SOONER: Final = 10.0
MESSAGE: Final = "assistant.message"
NEEDLES: Final = (b'"session.start"', b'"session.usage_record"', b'"session.shutdown"', b'"assistant.message"')
OUTPUT: Final = "outputTokens"
USAGE_KEYS: Final = ("inputTokens", OUTPUT, "cacheReadTokens", "cacheWriteTokens", "reasoningTokens")


@dataclass(frozen=True, slots=True)
class _Total:
    """What a shutdown says of one model: raw counts in the order of ``USAGE_KEYS``, nano-AIU and time."""

    counts: tuple[int, ...]
    nano: int
    ts: float

    def __add__(self, other: _Total) -> _Total:
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return _Total(counts, self.nano + other.nano, other.ts)

    def covers(self, other: _Total) -> bool:
        return self.counts[0] >= other.counts[0] and self.counts[1] >= other.counts[1]


@dataclass(slots=True)
class _Events:
    """One file, read. ``said``: output of the messages in legs that are over, and (``leg``) since the last shutdown.

    ``until``: from when on the ledger is in charge. ``recorded``: before that there is a call, its own or a copied one.
    """

    session: str
    until: float = inf
    recorded: bool = False
    # The sessions of which there are copies here that the ledger has.
    origins: set[str] = field(default_factory=set)
    said: int = 0
    leg: int = 0
    first: float | None = None
    last: float | None = None
    calls: list[Record] = field(default_factory=list)
    # Model -> what earlier series came to, and the last total of the present one.
    totals: dict[str, list[_Total]] = field(default_factory=dict)
    model: str | None = None


def read_events(source: Source, state: dict[str, Any] | None) -> Batch:
    """Calls or shutdown totals of one session.

    ``state``: since when the ledger has had the session, which it stays in charge of; which records were counted; which
    sessions it had of which there are copies here. What was read before the ledger had the session is taken back, but
    for what an older build had spent by then.
    """
    batch, known = Batch(), state or {}
    session, folder = _place(source.path)
    ledger = LEDGER.since(folder / STORE)
    since = _since(session, ledger, known.get("ledger"))
    told = known.get("counted") or ()
    counted = told if isinstance(told, dict) else dict.fromkeys(told, 0)
    origins: set[str] = set()
    if since is None:
        origins.update(known.get("origins") or ())
        events = _read(source.path, session, ledger.keys() | origins if origins else ledger.keys(), inf, batch)
        origins |= events.origins
        batch.records = _records(events)
        model = batch.records[-1].model if batch.records else None
        batch.sessions.append(Session(RUNTIME, session, events.first, events.last, model, "log" if model else "none"))
    else:
        batch.skipped["in_ledger"] += 1
        if since != known.get("ledger"):
            batch.records = list(_before(source.path, session, ledger.keys(), since, counted))
    kept = {record.key: record.revision for record in batch.records if not record.taken_back}
    batch.state = {"ledger": since, "counted": kept, "origins": sorted(origins)}
    return batch


def is_events(name: str) -> bool:
    """Whether a file of this name holds a session's events."""
    return name.endswith(".jsonl")


def _place(path: Path) -> tuple[str, Path]:
    """The session that a file of events is of, and the folder of the ledger."""
    if path.name == EVENTS:
        return path.parent.name, path.parents[2]
    return path.stem, path.parents[1]


def _before(path: Path, session: str, ledger: Set[str], since: float, counted: dict[str, Any]) -> Iterator[Record]:
    """What the ledger does not have of a session of its own, and what was ``counted`` of the rest, taken back."""
    events = _read(path, session, ledger, since - SOONER, Batch())
    own = {} if events.recorded else {record.key: record for record in _records(events)}
    rest = _records(_read(path, session, ledger, inf, Batch())) if counted else []
    for record in (*own.values(), *(record for record in rest if record.key not in own)):
        # Later than what it takes the place of, which may be the larger.
        later = max(record.revision, values.count(counted.get(record.key)) or 0) + 1
        if record.key in own:
            yield record if record.key not in counted else msgspec.structs.replace(record, revision=later)
        elif record.key in counted:
            yield msgspec.structs.replace(record, revision=later, taken_back=True)


def _since(session: str, ledger: Mapping[str, Any], known: object) -> float | None:
    """Since when the ledger is in charge of a session; ``None`` where it never had it."""
    found = (values.iso(ledger[session]) or 0.0) if session in ledger else None
    before = float(known) if isinstance(known, int | float) else None
    return values.earliest(found, before)


def _records(events: _Events) -> list[Record]:
    return events.calls or ([] if events.recorded else list(_shutdowns(events)))


def _read(path: Path, session: str, ledger: Set[str], until: float, batch: Batch) -> _Events:
    events = _Events(session, until)
    file = jsonl.LineFile(path)
    last = b""
    for block in file.blocks():
        for line in jsonl.lines(block):
            last = line
            if any(needle in line for needle in NEEDLES):
                _take(events, jsonl.parse(line), ledger, batch)
                if events.last is not None and events.last >= until:
                    return events
    if (value := jsonl.parse(last)) is not None:
        events.last = values.latest(events.last, values.iso(value.get("timestamp")))
    return events


def _take(events: _Events, line: dict[str, Any] | None, ledger: Set[str], batch: Batch) -> None:
    ts = values.iso((line or {}).get("timestamp"))
    if line is None or ts is None:
        batch.skipped["bad_json"] += 1
        return
    events.first, events.last = events.first or ts, ts
    if ts >= events.until:
        return
    data = values.mapping(line.get("data"))
    if line.get("type") == "session.usage_record":
        events.recorded = True
        record = _call(events, values.mapping(data.get("usage")), ts, ledger)
        if record is None:
            batch.skipped["copy"] += 1
        else:
            events.calls.append(record)
    elif line.get("type") == MESSAGE:
        events.leg += values.count(data.get("outputTokens")) or 0
    elif line.get("type") == "session.shutdown":
        _take_totals(events, data, ts)


def _take_totals(events: _Events, data: dict[str, Any], ts: float) -> None:
    models = {name: values.mapping(metrics) for name, metrics in values.mapping(data.get("modelMetrics")).items()}
    # What the session cost in all is what its one model cost, where the model itself does not say.
    whole = values.rounded(data.get("totalNanoAiu")) if len(models) == 1 else None
    written = sum(values.count(values.mapping(metrics.get("usage")).get(OUTPUT)) or 0 for metrics in models.values())
    alone = events.said > 0 and 0 < events.leg == written
    for name, metrics in models.items():
        if (model := values.model(name)) is not None:
            _shutdown(events, model, metrics, whole, ts, alone=alone)
    events.said, events.leg = events.leg + (0 if alone else events.said), 0


def _call(events: _Events, usage: dict[str, Any], ts: float, ledger: Set[str]) -> Record | None:
    accounting = values.mapping(usage.get("accounting"))
    origin = values.reference(accounting.get("sourceSessionId"))
    if origin is not None and origin != events.session and origin in ledger:
        events.origins.add(origin)
        return None
    counts = tuple(values.count(usage.get(key)) for key in USAGE_KEYS)
    identity = values.reference(accounting.get("usageId")) or values.reference(usage.get("apiCallId"))
    nano = values.rounded(usage.get("totalNanoAiu")) or 0
    model = values.model(usage.get("model"))
    return Record(
        runtime=RUNTIME,
        key=f"usage:{identity or f'{ts:.3f}:{model}:{counts}'}",
        session_id=events.session,
        ts=ts,
        tokens=_tokens(counts),
        model=model,
        model_source="log" if model else "none",
        owner=events.first or ts,
        vendor_pico=nano * PICO // 10**11 or None,
        vendor_basis="billed" if nano else None,
        caveat=None if nano else NO_LEDGER,
        response_id=values.reference(usage.get("apiCallId")),
        duration_ms=values.count(usage.get("duration")),
    )


def _shutdown(
    events: _Events, model: str, metrics: dict[str, Any], whole: int | None, ts: float, *, alone: bool
) -> None:
    """Adds a total to its series; one below the one before begins another (compaction), or one of a leg ``alone``."""
    usage = values.mapping(metrics.get("usage"))
    counts = tuple(values.count(usage.get(key)) or 0 for key in USAGE_KEYS)
    total = _Total(counts, values.rounded(metrics.get("totalNanoAiu")) or whole or 0, ts)
    series = events.totals.setdefault(model, [])
    if series and not alone and total.covers(series[-1]):
        series[-1] = total
    else:
        series.append(total)


def _shutdowns(events: _Events) -> Iterator[Record]:
    for model, series in events.totals.items():
        total = series[0]
        for other in series[1:]:
            total += other
        tokens = _tokens(total.counts)
        if not tokens.total:
            continue
        yield Record(
            runtime=RUNTIME,
            key=f"shutdown:{events.session}:{model}",
            session_id=events.session,
            ts=total.ts,
            tokens=tokens,
            model=model,
            grain="session",
            owner=events.first or total.ts,
            revision=tokens.total,
            vendor_pico=total.nano * PICO // 10**11 or None,
            vendor_basis="billed" if total.nano else None,
            caveat=None if total.nano else NO_LEDGER,
        )


def _tokens(counts: tuple[int | None, ...]) -> Tokens:
    total, output, read, write, reasoning = counts
    return Tokens(
        input_tokens=values.fresh(total, read, write),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        reasoning_tokens=reasoning,
    )
