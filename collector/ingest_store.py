"""Runtimes' own stores into the ledger: what is on disk, what changed, each batch and its position in one transaction.

Unchanged sources are not opened. Where much is new, other processes read and this one writes (``read_pool``). One
broken store never hides another: what cannot be read is an error of that source.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from collector.ingest_batch import BatchStep
from collector.ingest_report import IngestReport, Progress, RuntimeReport
from collector.ledger.sqlite import SqliteLedger
from collector.ledger.writer import Transaction
from collector.pricing import Pricer
from collector.read_pool import Pool, Unread, workers_for
from collector.read_worker import why
from collector.runtimes import Batch, Reader, Source, SourceError
from shim.allowlist import Allowlist


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A source that has changed: what ``stat`` says of it now, and about how many bytes are new."""

    reader: Reader
    source: Source
    stamp: str
    size: int


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
        waiting = list(self._waiting(home, readers, environ, known, report))
        unread = (Unread(one.reader, one.source, self._state(one.source), one.size) for one in waiting)
        with Pool(unread, workers_for(sum(one.size for one in waiting))) as pool:
            for one, (begun, batches) in zip(waiting, pool, strict=True):
                self._source(one, begun.state, batches, report, progress)
        report.lost_workers += pool.lost_workers

    def _waiting(
        self,
        home: Path,
        readers: Iterable[Reader],
        environ: Mapping[str, str],
        known: Mapping[str, tuple[str, str | None]],
        report: IngestReport,
    ) -> Iterator[_Waiting]:
        """The sources that have changed, in the order in which they are read."""
        for reader in readers:
            try:
                for source in reader.sources(home, environ):
                    mine = report.runtime(source.runtime)
                    mine.files += 1
                    found, before = stamp(source), known.get(str(source.path), ("", None))
                    if before == (found, None):
                        mine.unchanged += 1
                    else:
                        yield _Waiting(reader, source, found, max(0, _size(found) - _size(before[0])))
            except (SourceError, OSError) as error:
                report.failed(home, f"{reader.runtime}: {error}")

    def _state(self, source: Source) -> dict[str, Any] | None:
        row = self._ledger.select("SELECT state FROM store WHERE path = ?", (str(source.path),))
        return orjson.loads(row[0][0]) if row and row[0][0] else None

    def _source(
        self,
        one: _Waiting,
        state: dict[str, Any] | None,
        batches: Iterator[Batch],
        report: IngestReport,
        progress: Progress,
    ) -> None:
        source, mine, unfinished = one.source, report.runtime(one.source.runtime), False
        listed: set[str] = set()
        try:
            for batch in batches:
                self._batch(source, batch, mine)
                # A long source lists its sessions with each batch.
                listed.update(session.session_id for session in batch.sessions)
                state, unfinished = batch.state, unfinished or batch.unfinished
            self._done(source, "" if unfinished else one.stamp, state, None)
        except Exception as error:
            if os.path.lexists(source.path):
                self._failed(source, why(error), report)
            else:
                mine.skipped["vanished"] += 1
        mine.sessions += len(listed)
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
            step = BatchStep(tx, self._vm, self._allowlist, self._pricer, self._keys)
            step.take(batch)
            _save(tx, source, "", batch.state, None)
        mine.records += step.changed
        mine.known += step.known
        mine.evidence += step.evidence
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


def _size(found: str) -> int:
    """The bytes of a source by its stamp."""
    return sum(int(part.split(".")[2]) for part in found.split() if part != "-")


def _save(tx: Transaction, source: Source, found: str, state: dict[str, Any] | None, error: str | None) -> None:
    text = None if state is None else orjson.dumps(state).decode()
    row = (str(source.path), source.runtime, found, text, int(time.time() * 1000), error)
    tx.db.execute("INSERT OR REPLACE INTO store VALUES (?, ?, ?, ?, ?, ?)", row)
