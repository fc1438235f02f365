"""Runtimes' own stores into the ledger: what each reader gives, merged, priced, inserted, one batch a transaction.

A self-reporting runtime's records count, each once, for the session that paid. A token-blind runtime's session list
gives usage lines their session; its turns without a line become records without tokens, so that nothing is hidden; a
record of it that has tokens is evidence and is not added. One broken store never hides another.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson

from collector.ingest_report import IngestReport, Progress, RuntimeReport
from collector.ledger import Kind
from collector.ledger.interning import Shape
from collector.ledger.schema import UNDATED
from collector.ledger.settle import STAND_IN, Settler, side_of
from collector.ledger.sqlite import SqliteLedger
from collector.ledger.writer import AT, Listing, Row, Stored, Transaction
from collector.lines import MAX_PLAUSIBLE, MAX_TS
from collector.merge import Version, is_evidence, prefer, version
from collector.pricing import Pricer
from collector.quotes import kind_of
from collector.record import Record, Session
from collector.runtimes import Batch, Reader, Source, SourceError
from shim.allowlist import Allowlist
from shim.identity import reference
from shim.line import TOKEN_CLASSES, Tokens

KEY_BYTES: Final = 16
UNMETERED: Final = Kind("missing", "completed", "unavailable", None, None, None, "no_usage", True)


class StoreIngest:
    """Reads the stores of homes into one ledger. ``keys``: the keys that references of this VM may be made with."""

    def __init__(
        self, ledger: SqliteLedger, vm: str, allowlist: Allowlist, pricer: Pricer, keys: Sequence[bytes]
    ) -> None:
        self._ledger = ledger
        self._vm = vm
        self._allowlist = allowlist
        self._pricer = pricer
        self._keys = keys

    def read(
        self,
        home: Path,
        readers: Iterable[Reader],
        environ: Mapping[str, str],
        report: IngestReport,
        progress: Progress,
    ) -> None:
        """Read what is new in the stores of one home; unchanged sources are not opened."""
        known = {
            path: (stamp, error) for path, stamp, error in self._ledger.select("SELECT path, stamp, error FROM store")
        }
        for reader in readers:
            try:
                for source in reader.sources(home, environ):
                    self._source(reader, source, known.get(str(source.path)), report, progress)
            except (SourceError, OSError) as error:
                report.failed(home, f"{reader.runtime}: {error}")

    def _source(
        self,
        reader: Reader,
        source: Source,
        known: tuple[str, str | None] | None,
        report: IngestReport,
        progress: Progress,
    ) -> None:
        mine = report.runtime(source.runtime)
        mine.files += 1
        found = stamp(source)
        if known == (found, None):
            mine.unchanged += 1
            return
        row = self._ledger.select("SELECT state FROM store WHERE path = ?", (str(source.path),))
        state = orjson.loads(row[0][0]) if row and row[0][0] else None
        try:
            for batch in reader.read(source, state):
                self._batch(source, batch, mine)
                state = batch.state
            self._done(source, found, state, None)
        except SourceError as error:
            self._failed(source, error.reason, report)
        except Exception as error:
            self._failed(source, f"cannot be read ({type(error).__name__})", report)
        progress(os.path.getsize(source.path) if source.path.exists() else 0)

    def _failed(self, source: Source, reason: str, report: IngestReport) -> None:
        report.failed(source.path, reason)
        with self._ledger.transaction() as tx:
            tx.db.execute(
                """INSERT INTO store VALUES (?1, ?2, '', NULL, ?3, ?4)
                    ON CONFLICT DO UPDATE SET stamp = '', read_at = ?3, error = ?4""",
                (str(source.path), source.runtime, int(time.time() * 1000), reason),
            )

    def _done(self, source: Source, found: str, state: dict[str, Any] | None, error: str | None) -> None:
        with self._ledger.transaction() as tx:
            _save(tx, source, found, state, error)

    def _batch(self, source: Source, batch: Batch, mine: RuntimeReport) -> None:
        with self._ledger.transaction() as tx:
            step = Step(tx, self._vm, self._allowlist, self._pricer, self._keys)
            step.take(batch)
            _save(tx, source, "", batch.state, None)
        mine.records += step.changed
        mine.known += step.known
        mine.evidence += step.evidence
        mine.sessions += len(batch.sessions)
        mine.skipped.update(batch.skipped)


def stamp(source: Source) -> str:
    """What ``stat`` says of a source and its parts, as text; the same text means that nothing has changed."""
    parts = []
    for path in (source.path, *source.parts):
        try:
            found = os.stat(path)
            parts.append(f"{found.st_dev}.{found.st_ino}.{found.st_size}.{found.st_mtime_ns}")
        except OSError:
            parts.append("-")
    return " ".join(parts)


def _save(tx: Transaction, source: Source, found: str, state: dict[str, Any] | None, error: str | None) -> None:
    text = None if state is None else orjson.dumps(state).decode()
    row = (str(source.path), source.runtime, found, text, int(time.time() * 1000), error)
    tx.db.execute("INSERT OR REPLACE INTO store VALUES (?, ?, ?, ?, ?, ?)", row)


def record_key(runtime: str, key: str) -> bytes:
    """The fixed-size key of a store's record: the same in every copy, home and VM."""
    return hashlib.blake2b(f"{runtime}\0{key}".encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


class Step:
    """One batch of a store on its way into one transaction."""

    def __init__(self, tx: Transaction, vm: str, allowlist: Allowlist, pricer: Pricer, keys: Sequence[bytes]) -> None:
        self._tx = tx
        self._vm = vm
        self._allowlist = allowlist
        self._pricer = pricer
        self._keys = keys
        self._settler = Settler(tx)
        self.changed = 0
        self.known = 0
        self.evidence = 0

    def take(self, batch: Batch) -> None:
        """Merge records and sessions of one batch, and settle which usage lines they concern."""
        best: dict[bytes, tuple[Version, Record]] = {}
        copies: list[tuple[bytes, int]] = []
        for record in batch.records:
            record = sane(record)
            if is_evidence(record, self._allowlist):
                self._keep(record)
                continue
            key, mine = record_key(record.runtime, record.key), version(record)
            other = best.get(key)
            if other is None or prefer(mine, other[0]):
                best[key] = (mine, record)
            copies.append((key, self._session(record)))
        self._merge(best, copies)
        for session in batch.sessions:
            self._list(session)
        self._settler.settle()

    def _session(self, record: Record, vm: str | None = None) -> int:
        return self._tx.numbers.session(vm or self._vm, record.runtime, record.session_id)

    def _merge(self, best: dict[bytes, tuple[Version, Record]], holders: list[tuple[bytes, int]]) -> None:
        stored, expired = self._tx.stored(best), self._tx.expired(best)
        added, replaced, versions = [], [], []
        paid: dict[bytes, int] = {}
        for key, (mine, record) in best.items():
            old = stored.get(key)
            if key in expired:
                self.known += 1
                continue
            if old is not None and not prefer(mine, old.version):
                self.known += 1
                paid[key] = old.row[AT["session"]]
                continue
            number, vm = (old.id, old.vm) if old else (self._tx.vendor_id(), self._vm)
            row = self._row(number, vm, record)
            paid[key] = row[AT["session"]]
            versions.append((key, number, mine))
            self._seed(vm, record, row, old)
            if old is None:
                added.append(row)
            else:
                replaced.append(row)
                holders.append((key, old.row[AT["session"]]))
        self._tx.add(added)
        self._tx.replace(replaced)
        self._tx.set_versions(versions)
        self._tx.note_copies((one for one in holders if one[1] != paid.get(one[0], one[1])), paid.items())
        self.changed += len(added) + len(replaced)

    def _seed(self, vm: str, record: Record, row: Row, old: Stored | None) -> None:
        """Lines that could be of the same call, now or as the record was before, are looked at again."""
        if record.grain == "session":
            return
        for values in (row, old.row if old else None):
            if values is not None and values[AT["ts"]] is not None:
                cell = dict(zip(AT, values, strict=True))
                tokens = Tokens(*(cell[name] for name in TOKEN_CLASSES))
                side = side_of(
                    cell["id"],
                    vm,
                    cell["ts"],
                    cell["duration_ms"],
                    cell["ended"],
                    record.model,
                    tokens,
                    cell["response"],
                )
                self._settler.record(side)

    def _row(self, number: int, vm: str, record: Record) -> Row:
        ts_ms = _ms(record.ts)
        shape = Shape(
            vm,
            record.runtime,
            "vendor",
            record.model,
            record.model_source if record.model else "none",
            record.provider,
            None,
            record.service_tier,
            record.grain,
        )
        session = self._session(record, vm)
        if record.parent_session_id is not None:
            self._tx.set_parent(session, record.parent_session_id)
        cost, kind, rates = self._price(record)
        return (
            number,
            ts_ms,
            UNDATED if ts_ms is None else self._tx.calendar.day(record.ts),
            self._tx.numbers.shape(shape),
            kind,
            session,
            None,
            *(getattr(record.tokens, name) for name in TOKEN_CLASSES),
            cost,
            rates,
            record.acu_micro,
            None,
            None,
            record.duration_ms,
            None,
            self._response(record),
            None if record.ended_ts is None else _ms(record.ended_ts),
            0,
        )

    def _price(self, record: Record) -> tuple[int | None, int, int | None]:
        priced = self._pricer.price(record)
        kind = kind_of(record.usage, record.outcome, priced)
        rates = self._tx.numbers.rates(priced.card.data if priced.card else None)
        return priced.cost_pico, self._tx.numbers.kind(kind), rates

    def _response(self, record: Record) -> str | None:
        if record.response_id is None or not self._keys:
            return None
        return reference(self._keys[0], "response", record.response_id)

    def _keep(self, record: Record) -> None:
        key = record_key(record.runtime, record.key)
        counts = [getattr(record.tokens, name) for name in TOKEN_CLASSES]
        row = (key, self._vm, record.runtime, record.session_id, _ms(record.ts), record.model, *counts)
        if self._tx.keep_evidence([row]):
            self.evidence += 1
            self._tx.refuse("token_blind_record", record.runtime, self._vm, key.hex(), _ms(record.ts))

    def _list(self, session: Session) -> None:
        number = self._tx.numbers.session(self._vm, session.runtime, session.session_id)
        self._tx.list_session(
            number,
            Listing(
                None if session.started_ts is None else _ms(session.started_ts),
                None if session.ended_ts is None else _ms(session.ended_ts),
                session.model,
                session.model_source if session.model else "none",
                session.parent_session_id,
            ),
        )
        if session.runtime in self._allowlist.token_blind:
            self._token_blind(number, session)

    def _token_blind(self, number: int, session: Session) -> None:
        """Turns by which lines find the session, its opaque references, and stand-ins for what nobody metered."""
        references = [reference(key, "session", session.session_id) for key in self._keys]
        self._tx.db.executemany(
            "INSERT OR IGNORE INTO reference VALUES (?, ?, ?, ?)",
            [(self._vm, session.runtime, one, number) for one in references],
        )
        times = {_ms(ts): alias for ts, alias in session.turns if _ms(ts) is not None}
        stand_ins = {ts_ms: self._stand_in(number, session, ts_ms, "call") for ts_ms in times}
        self._tx.db.executemany(
            "INSERT OR IGNORE INTO turn VALUES (?, ?, ?, ?, ?, ?)",
            [
                (self._vm, session.runtime, ts_ms, number, times[ts_ms], record)
                for ts_ms, record in stand_ins.items()
                if record is not None
            ],
        )
        if not times:
            self._stand_in(number, session, None if session.started_ts is None else _ms(session.started_ts), "session")
        seeds = [ts_ms for ts_ms in times if ts_ms is not None]
        self._settler.listed(self._vm, session.runtime, number, seeds, references)

    def _stand_in(self, number: int, session: Session, ts_ms: int | None, grain: str) -> int | None:
        """The record that stands in for an unmetered call, ``None`` if there is one already."""
        name = f"{session.session_id}\0{ts_ms if grain == 'call' else ''}"
        key = record_key(session.runtime, f"{STAND_IN}\0{grain}\0{name}")
        if self._tx.stored([key]):
            return None
        record = self._tx.vendor_id()
        shape = Shape(self._vm, session.runtime, "vendor", model_source="none", grain=grain, attribution=STAND_IN)
        row = {
            "id": record,
            "ts": ts_ms,
            "day": UNDATED if ts_ms is None else self._tx.calendar.day(ts_ms / 1000),
            "shape": self._tx.numbers.shape(shape),
            "kind": self._tx.numbers.kind(UNMETERED),
            "session": number,
            "withdrawn": 0,
        }
        self._tx.add([tuple(row.get(name) for name in AT)])
        self._tx.set_versions([(key, record, Version(session.session_id, 0, 0, ()))])
        return record


def _ms(ts: float) -> int | None:
    """Epoch seconds as ms; ``None`` for what is no time."""
    return int(ts * 1000 + 0.5) if math.isfinite(ts) and 0 < ts < MAX_TS else None


def sane(record: Record) -> Record:
    """The record without counts that no call can have."""
    counts = [getattr(record.tokens, name) for name in TOKEN_CLASSES]
    if all(count is None or 0 <= count <= MAX_PLAUSIBLE for count in counts):
        return record
    tokens = Tokens(*(count if count is None or 0 <= count <= MAX_PLAUSIBLE else None for count in counts))
    return replace(record, tokens=tokens)
