"""GitHub Copilot CLI: the ledger ``session-store.db``, and per session ``events.jsonl`` where the ledger has no rows.

True here (no vendor source; independent readers agree, and the store of 1.0.102): ``input_tokens`` includes cache reads
and writes, the output includes reasoning. 1 AI credit = 10**9 nano-AIU = 0.01 USD, so ``total_nano_aiu`` is what was
billed (https://docs.github.com/en/billing). ``token_details_json`` has the exact classes and must sum to it. Rows
without a total are of an older build or of a key of the user's own: premium requests are another currency, so list
prices only estimate. The events are read by ``copilot_events``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

from collector.record import PICO, Record, Session
from collector.runtimes import Batch, Facts, Source, SourceError, values
from collector.runtimes.changes import AMONG, Changes, sums
from collector.runtimes.copilot_events import EVENTS, NO_LEDGER, RUNTIME, STORE, is_events, read_events
from collector.runtimes.places import files, folder, leads_out, own, refuse_stray, stray, subfolders
from collector.sqlite_ro import Database, opened, select, sidecars
from shim.line import Tokens

BATCH: Final = 500
# USD = nano-AIU / 10**11.
PICO_PER_NANO_AIU: Final = PICO // 10**11

ROW: Final = (
    "id",
    "session_id",
    "created_at",
    "model",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "total_nano_aiu",
    "token_details_json",
    "duration_ms",
)
DETAIL_KEYS: Final = ("tokenType", "tokenCount", "costPerBatch", "batchSize")

FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.copilot/{session-store.db, session-state/{*/events.jsonl, *.jsonl}}",
    variables="COPILOT_HOME",
    aggregation="sum of rows; a session.shutdown is cumulative",
    input_includes_cache="reads and writes",
    reasoning_in_output="yes",
    dedupe_key="session, row id, time",
    cost_field="total_nano_aiu",
    cost_unit="nano-AIU (10**11 = 1 USD)",
    cost_basis="billed",
)


class Copilot:
    """The database first; a session's events count only where the database lacks the session."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """The ledger, and one source a session's events."""
        root = folder(home, environ, "COPILOT_HOME", ".copilot")
        yield from stray(RUNTIME, home, root)
        store, sessions = root / STORE, root / "session-state"
        if own(home, store):
            yield Source(RUNTIME, store, sidecars(store))
        for session in subfolders(sessions) if not leads_out(home, sessions) else ():
            for events in files(session.path, EVENTS.__eq__):
                yield Source(RUNTIME, Path(events.path))
        for events in files(sessions, is_events) if not leads_out(home, sessions) else ():
            yield Source(RUNTIME, Path(events.path))

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """The ledger's rows, or a session's events where it has none. Raises ``SourceError``."""
        refuse_stray(source)
        if is_events(source.path.name):
            yield read_events(source, state)
            return
        with opened(source.path) as database:
            yield from _store(database, source.path, state or {})


READER: Final = Copilot()


def _store(database: Database, path: Path, state: dict[str, Any]) -> Iterator[Batch]:
    columns = database.columns("assistant_usage_events")
    if not {"id", "session_id"} <= columns:
        raise SourceError(path, "no usage events in it (older than the ledger, or being made)")
    changes = Changes(state.get("sessions"))
    changes.see(database.rows(sums("assistant_usage_events", columns, *ROW[:1], *ROW[4:10])))
    sessions = {session.session_id: session for session in _sessions(database, changes)}
    last: dict[str, Record] = {}
    batch = Batch()
    wanted = select("assistant_usage_events", ROW, columns, f"WHERE session_id {AMONG} ORDER BY id")
    for row in database.rows(wanted, (changes.sessions,)):
        record = _record(row, sessions, batch)
        if record is None:
            continue
        last[record.session_id] = record
        batch.records.append(record)
        if len(batch.records) >= BATCH:
            batch.state = state
            yield batch
            batch = Batch()
    changed = (session for session in sessions.values() if session.session_id in changes)
    batch.sessions = [_with_last(session, last.get(session.session_id)) for session in changed]
    batch.state = {"sessions": changes.saved}
    yield batch


def _with_last(session: Session, last: Record | None) -> Session:
    """``updated_at`` is the last question; the session ends with the last answer."""
    if last is None:
        return replace(session, model_source="none")
    ended = values.latest(session.ended_ts, last.ts)
    return replace(session, ended_ts=ended, model=last.model, model_source=last.model_source)


def _sessions(database: Database, changes: Changes) -> Iterator[Session]:
    columns = database.columns("sessions")
    if "id" in columns:
        for row in database.rows(select("sessions", ("id", "created_at", "updated_at"), columns)):
            changes.see([row])
            if session := values.reference(row[0]):
                yield Session(RUNTIME, session, values.iso(row[1]), values.iso(row[2]))


def _record(row: tuple[Any, ...], sessions: Mapping[str, Session], batch: Batch) -> Record | None:
    session, ts, nano = values.reference(row[1]), values.iso(row[2]), values.rounded(row[9])
    details = _Details.of(row[10])
    tokens = _tokens(row, details)
    if session is None or ts is None or not tokens.known:
        batch.skipped["no_usage"] += 1
        return None
    caveat = None if nano is not None else NO_LEDGER
    if details is not None and nano is not None and details.nano != nano:
        batch.skipped["details_disagree"] += 1
        tokens, caveat = _tokens(row, None), "cache_split_unknown"
    known = sessions.get(session)
    model = values.model(row[3])
    return Record(
        runtime=RUNTIME,
        key=f"{session}:{row[0]}:{ts:.3f}",
        session_id=session,
        ts=ts,
        tokens=tokens,
        model=model,
        model_source="log" if model else "none",
        owner=(known.started_ts if known else None) or ts,
        revision=(tokens.total or 0) + (nano or 0),
        vendor_pico=None if nano is None else nano * PICO_PER_NANO_AIU,
        vendor_basis=None if nano is None else "billed",
        caveat=caveat,
        duration_ms=values.count(row[11]),
    )


def _tokens(row: tuple[Any, ...], details: _Details | None) -> Tokens:
    """The row's classes; what the details name comes before the columns (compaction leaves those at zero)."""
    total, output, read, write, reasoning = (values.count(value) for value in row[4:9])
    exact = details.counts if details is not None else {}
    read, write = exact.get("cache_read", read), exact.get("cache_write", write)
    return Tokens(
        input_tokens=exact.get("input", values.fresh(total, read, write)),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=exact.get("output", output),
        reasoning_tokens=reasoning,
    )


@dataclass(frozen=True, slots=True)
class _Details:
    """``token_details_json``: tokens by type, and what they sum to in nano-AIU."""

    counts: dict[str, int]
    nano: int

    @classmethod
    def of(cls, text: Any) -> _Details | None:
        try:
            listed = orjson.loads(text) if isinstance(text, str) else None
        except orjson.JSONDecodeError:
            return None
        if not isinstance(listed, list) or not listed:
            return None
        counts: dict[str, int] = {}
        nano = 0.0
        for entry in listed:
            kind, tokens, cost, size = (values.mapping(entry).get(key) for key in DETAIL_KEYS)
            number, price, batch = values.count(tokens), values.count(cost), values.count(size)
            if not isinstance(kind, str) or number is None or price is None or not batch:
                return None
            counts[kind] = counts.get(kind, 0) + number
            nano += number * price / batch
        return cls(counts, round(nano))
