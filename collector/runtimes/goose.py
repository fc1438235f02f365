"""Goose: ``sessions.db``, whose rows hold running totals and, since schema 15, a ledger of calls beside them.

True here (source: https://github.com/aaif-goose/goose session_manager.rs at 017176d0, schemas 5 to 17): columns without
a prefix are the last call only. ``accumulated_*`` are the session's total, and so is the sum of the ledger with its
``carried_forward`` row (what was accumulated before the ledger): the larger of the two counts, never both. So calls are
records, and what the total has beyond them is one more record, whichever way the store says it. Input includes the
cache. Costs are an estimate except where the row says ``provider_reported``; a running total skips calls it could not
price. Times without a zone are UTC.

An imported session (an export of Goose, a transcript of Claude Code, Codex or Pi) is given the total of its source:
that was spent there. It is one whose messages are older than itself though it began when calls already had a ledger,
for then only an import can have a total beyond its calls. Before schema 15 nothing tells it from one of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from collector import jsonl
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, SourceError, values
from collector.runtimes.changes import AMONG, Changes, sums
from collector.runtimes.counts import NOTHING, Counts
from collector.runtimes.goose_jsonl import RUNTIME, read_jsonl, taken_back
from collector.runtimes.local import is_local
from collector.runtimes.places import files, folder, leads_out, own, refuse_stray, stray
from collector.sqlite_ro import Database, opened, picked, select, sidecars
from shim.line import Tokens

BATCH: Final = 500
CARRIED: Final = "carried_forward"
REPORTED: Final = "provider_reported"
# Dollars of running totals are sums of floats.
NOISE_PICO: Final = 10**6
# Ledger times are seconds, or milliseconds where they are larger than this.
MILLISECONDS_FROM: Final = 10**10
# A message is written some moments after its session; much before it, it was copied.
COPIED_BEFORE: Final = 60.0

SESSION: Final = (
    "id",
    "created_at",
    "updated_at",
    "provider_name",
    "parent_session_id",
    "accumulated_input_tokens",
    "accumulated_output_tokens",
    "accumulated_cache_read_tokens",
    "accumulated_cache_write_tokens",
    "accumulated_cost",
)
LEDGER: Final = (
    "id",
    "session_id",
    "created_timestamp",
    "model",
    "cost_source",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cost",
)
_OLLAMA_HOST: Final = re.compile(rb"^OLLAMA_HOST:\s*[\"']?([^\s\"'#]+)", re.M)

FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.local/share/goose/sessions/{sessions.db, *.jsonl}",
    variables="XDG_DATA_HOME, GOOSE_PATH_ROOT",
    aggregation="sum of the ledger; accumulated_* is the check, and all there is before schema 15",
    input_includes_cache="reads and writes",
    reasoning_in_output="yes, not reported apart",
    dedupe_key="session, its start, ledger row",
    cost_field="usage_ledger.cost, sessions.accumulated_cost",
    cost_unit="USD",
    cost_basis="billed where provider_reported, else runtime_price",
)


@dataclass(frozen=True, slots=True)
class _Row:
    """A session's row. ``split``: this schema has cache columns."""

    id: str
    started: float | None
    ended: float | None
    provider: str | None
    parent: str | None
    model: str | None
    total: Counts
    split: bool

    @property
    def name(self) -> str:
        """Session ids count from 1 every day on every machine; with its start one is itself."""
        return f"{self.id}:{self.started or 0:.0f}"


class Goose:
    """One database per home, and the files of before there was one."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """The database, with the configuration that says where Ollama runs, and one source an older session."""
        data = folder(home, environ, "XDG_DATA_HOME", ".local/share") / "goose"
        config = folder(home, environ, "XDG_CONFIG_HOME", ".config") / "goose" / "config.yaml"
        if environ.get("GOOSE_PATH_ROOT", "").startswith("/"):
            root = Path(environ["GOOSE_PATH_ROOT"])
            data, config = root / "data", root / "config" / "config.yaml"
        store = data / "sessions" / "sessions.db"
        yield from stray(RUNTIME, home, store.parent)
        if own(home, store):
            yield Source(RUNTIME, store, (*sidecars(store), *((config,) if os.path.isfile(config) else ())))
        old = files(store.parent, lambda name: name.endswith(".jsonl")) if not leads_out(home, store.parent) else ()
        for entry in old:
            yield Source(RUNTIME, Path(entry.path))

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """Calls of the ledger and what the totals have beyond them. Raises ``SourceError``."""
        refuse_stray(source)
        if source.path.suffix == ".jsonl":
            yield read_jsonl(source.path)
            return
        with opened(source.path) as database:
            yield from _Reading(database, source, state or {}).batches()


READER: Final = Goose()


class _Reading:
    """One pass over one database: a few numbers per session, ledger rows one at a time."""

    def __init__(self, database: Database, source: Source, state: dict[str, Any]) -> None:
        self._database = database
        self._folder = source.path.parent
        self._ollama = _ollama_host(source)
        # Kept until the pass is whole: one that breaks off must not forget it.
        self._state = state
        self._rests: set[str] = set(state.get("rests", ()))
        columns = database.columns("sessions")
        if not {"id", "created_at"} <= columns:
            raise SourceError(source.path, "no sessions in it (yet)")
        self._ledger_columns = database.columns("usage_ledger")
        self._changes = Changes(state.get("sessions"))
        self._changes.see(database.rows(select("sessions", SESSION, columns)))
        if {"id", "session_id"} <= self._ledger_columns:
            self._changes.see(database.rows(sums("usage_ledger", self._ledger_columns, *LEDGER[:1], *LEDGER[5:])))
        self._rows = {row.id: row for row in _sessions(database, columns) if row.id in self._changes}
        self._calls: dict[str, Counts] = {}
        self._carried: dict[str, Counts] = {}
        self._models: dict[str, str | None] = {}
        self._imported = self._imports()

    def batches(self) -> Iterator[Batch]:
        batch = Batch()
        for record in self._ledger(batch):
            batch.records.append(record)
            if len(batch.records) >= BATCH:
                batch.state = self._state
                yield batch
                batch = Batch()
        for row in self._rows.values():
            rest = self._rest(row)
            batch.skipped.update(["copy"] if row.id in self._imported else [])
            if rest is not None:
                batch.records.append(rest)
            if (counted := taken_back(self._folder, row.id)) is not None:
                batch.records.append(counted)
            used = rest is not None or row.id in self._models
            model = self._models.get(row.id) or (row.model if used else None)
            source = "log" if model else "none"
            batch.sessions.append(Session(RUNTIME, row.id, row.started, row.ended, model, source, row.parent))
        batch.state = {"rests": sorted(self._rests), "sessions": self._changes.saved}
        yield batch

    def _imports(self) -> frozenset[str]:
        """The changed sessions that were imported."""
        if not {"session_id", "created_timestamp"} <= self._database.columns("messages") & self._ledger_columns:
            return frozenset()
        ((first,),) = self._database.rows("SELECT min(created_timestamp) FROM usage_ledger")
        ledger_since = _moment(first)
        oldest = f"SELECT session_id, min(created_timestamp) FROM messages WHERE session_id {AMONG} GROUP BY 1"  # noqa: S608
        found = set()
        for session, stamp in self._database.rows(oldest, (self._changes.sessions,)):
            row, when = self._rows.get(session), _moment(stamp)
            if row is None or row.started is None or when is None or ledger_since is None:
                continue
            if when < row.started - COPIED_BEFORE and row.started > ledger_since:
                found.add(row.id)
        return frozenset(found)

    def _ledger(self, batch: Batch) -> Iterator[Record]:
        columns = self._ledger_columns
        if not {"id", "session_id"} <= columns:
            return
        wanted = select("usage_ledger", LEDGER, columns, f"WHERE session_id {AMONG} ORDER BY id")
        for fields in self._database.rows(wanted, (self._changes.sessions,)):
            row, counts = self._rows.get(fields[1]), _counts(fields[5:])
            if row is None or not counts.known:
                batch.skipped["no_usage"] += 1
            elif fields[4] == CARRIED:
                self._carried[row.id] = self._carried.get(row.id, NOTHING) + counts
            else:
                self._calls[row.id] = self._calls.get(row.id, NOTHING) + counts
                model = self._models[row.id] = values.model(fields[3]) or row.model
                yield self._call(row, fields, counts, model)

    def _call(self, row: _Row, fields: tuple[Any, ...], counts: Counts, model: str | None) -> Record:
        ts = _moment(fields[2]) or row.started or 0.0
        reported = fields[4] == REPORTED
        # A zero is one only if the provider said so.
        pico = counts.pico if counts.pico or reported else None
        local = pico is None and is_local(row.provider, model, self._ollama)
        return Record(
            runtime=RUNTIME,
            key=f"{row.name}:{fields[0]}:{ts:.3f}",
            session_id=row.id,
            ts=ts,
            tokens=_tokens(counts),
            model=model,
            model_source="log" if model else "none",
            provider=row.provider,
            owner=row.started or ts,
            revision=counts.size,
            parent_session_id=row.parent,
            vendor_pico=pico,
            vendor_basis=None if pico is None else "billed" if reported else "runtime_price",
            caveat=None if pico is None or reported else "vendor_estimate",
            local=local,
        )

    def _rest(self, row: _Row) -> Record | None:
        """What the session's total has beyond its calls: all of it before the ledger, or what was carried forward."""
        calls = self._calls.get(row.id, NOTHING)
        whole = row.total.larger(calls + self._carried.get(row.id, NOTHING))
        rest = whole.beyond(whole if row.id in self._imported else calls)
        if not rest.size and row.id not in self._rests:
            return None
        self._rests.add(row.id)
        ts = row.ended or row.started or 0.0
        stated = rest.pico if (rest.pico or 0) > NOISE_PICO else None
        local = stated is None and is_local(row.provider, row.model, self._ollama)
        return Record(
            runtime=RUNTIME,
            key=f"{row.name}:rest",
            session_id=row.id,
            ts=ts,
            tokens=_tokens(rest),
            model=row.model,
            model_source="log" if row.model else "none",
            provider=row.provider,
            grain="session",
            owner=row.started or ts,
            revision=row.total.size + calls.size,
            parent_session_id=row.parent,
            vendor_pico=stated,
            vendor_basis=None if stated is None else "runtime_price",
            caveat=("vendor_estimate" if stated else None) if row.split else "cache_split_unknown",
            local=local,
            taken_back=not rest.size,
        )


def _sessions(database: Database, columns: frozenset[str]) -> Iterator[_Row]:
    config = picked("model_config_json", "$.model_name") if "model_config_json" in columns else "NULL"
    sql = select("sessions", SESSION, columns).replace(" FROM", f", {config} FROM", 1)
    for fields in database.rows(sql):
        if (session := values.reference(fields[0])) is not None:
            yield _Row(
                session,
                values.iso(fields[1]),
                values.iso(fields[2]),
                values.name(fields[3]),
                values.reference(fields[4]),
                values.model(fields[10]),
                _counts(fields[5:10]),
                "accumulated_cache_read_tokens" in columns,
            )


def _counts(row: tuple[Any, ...]) -> Counts:
    """From input, output, cache read, cache write and USD."""
    fresh, output, read, write, cost = row
    return Counts.of(fresh, output, None, read, write, cost)


def _tokens(counts: Counts) -> Tokens:
    return Tokens(
        input_tokens=values.fresh(counts.input, counts.read, counts.write),
        cache_read_tokens=counts.read,
        cache_write_tokens=counts.write,
        output_tokens=counts.output,
    )


def _moment(value: Any) -> float | None:
    large = isinstance(value, int | float) and value > MILLISECONDS_FROM
    return values.millis(value) if large else values.seconds(value)


def _ollama_host(source: Source) -> str | None:
    """Where the configuration says Ollama runs, if it does: a remote one is not free of charge."""
    path = next((part for part in source.parts if part.name == "config.yaml"), None)
    try:
        found = _OLLAMA_HOST.search(jsonl.document(path)) if path else None
    except SourceError:
        return None
    if found is None:
        return None
    host = found.group(1).decode("ascii", "replace")
    return host if "://" in host else f"http://{host}"
