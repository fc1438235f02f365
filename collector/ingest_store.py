"""Runtimes' own stores into the ledger: what is on disk, what changed, each batch and its position in one transaction.

Unchanged sources are not opened. One broken store never hides another: what cannot be read is an error of that source.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from collector.ingest_batch import BatchStep
from collector.ingest_report import IngestReport, Progress, RuntimeReport
from collector.ledger.sqlite import SqliteLedger
from collector.ledger.writer import Transaction
from collector.pricing import Pricer
from collector.runtimes import Batch, Reader, Source, SourceError
from shim.allowlist import Allowlist


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
        unfinished = False
        try:
            for batch in reader.read(source, state):
                self._batch(source, batch, mine)
                state, unfinished = batch.state, unfinished or batch.unfinished
            self._done(source, "" if unfinished else found, state, None)
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
            step = BatchStep(tx, self._vm, self._allowlist, self._pricer, self._keys)
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
