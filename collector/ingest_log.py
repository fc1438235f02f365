"""Usage logs into the ledger: each block of lines (``ingest_lines``) and its position in one transaction.

A line that is no usage line goes to quarantine and blocks nothing. A line that was read before changes nothing,
wherever it stands this time. The position of the file is committed with the lines that moved it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from collector import tail
from collector.ingest_lines import LineStep
from collector.ingest_report import IngestReport, Progress
from collector.ledger.sqlite import SqliteLedger
from collector.ledger.writer import Transaction
from collector.lines import LineReader, told_id
from collector.merge import refused_line
from collector.pricing import Pricer
from collector.quotes import Quotes
from collector.tail import Block, LogError, LogFile, Position, Stamp
from shim.allowlist import Allowlist

SAVE_LOG: Final = "INSERT OR REPLACE INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Rows of a block are a dozen times as large as its bytes, and a collector that follows a log has time.
FOLLOWED_BLOCK: Final = 1 << 20


class LogIngest:
    """Reads logs into one ledger."""

    def __init__(self, ledger: SqliteLedger, allowlist: Allowlist, pricer: Pricer, *, hold: bool = False) -> None:
        """``hold``: keep live files open between passes, so that their end is read even if they are deleted."""
        self._ledger = ledger
        self._allowlist = allowlist
        self._quotes = Quotes(pricer)
        self._hold = hold
        self._held: dict[Path, LogFile] = {}
        self._reader = LineReader()
        self._verdicts: dict[str, str | None] = {}

    def read(self, log: Path, report: IngestReport, progress: Progress, *, captured: bool = False) -> None:
        """Read what is new in a log and its rotated siblings. ``captured``: agents' users wrote the lines here."""
        if (held := self._held.pop(log, None)) is not None:
            self._take(held, report, progress, captured)
        known = self._stamps()
        for path in tail.family(log):
            found = tail.stamp(path)
            if found is None or known.get(found) == str(path):
                report.unchanged += 1
                continue
            try:
                file = LogFile(path)
            except LogError as error:
                self._failed(path, found, str(error), report)
                continue
            self._take(file, report, progress, captured, hold_as=log if self._hold and path == log else None)

    def _take(
        self, file: LogFile, report: IngestReport, progress: Progress, captured: bool, hold_as: Path | None = None
    ) -> None:
        """Read a file to its end; close it then, unless it is to be held for the next pass."""
        try:
            self._file(file, report, progress, captured)
            if hold_as is not None:
                self._held[hold_as] = file
        finally:
            if self._held.get(hold_as or file.path) is not file:
                file.close()

    def close(self) -> None:
        """Close the files that are held open."""
        for file in self._held.values():
            file.close()
        self._held.clear()

    def _stamps(self) -> dict[Stamp, str]:
        rows = self._ledger.select("SELECT dev, ino, size, mtime, path FROM log WHERE error IS NULL")
        return {Stamp(*row[:4]): row[4] for row in rows}

    def _failed(self, path: Path, stamp: Stamp, reason: str, report: IngestReport) -> None:
        report.failed(path, reason)
        with self._ledger.transaction() as tx:
            row = (path.name.encode(), stamp.dev, stamp.ino, str(path), 0, 0, 0, b"", 0, 0, _now(), reason)
            tx.db.execute(SAVE_LOG, row)

    def _file(self, file: LogFile, report: IngestReport, progress: Progress, captured: bool) -> None:
        stamp = file.stamp()
        try:
            head = file.head()
            if head is None:
                return
            report.files += 1
            position = self._position(file, head, stamp)
            unread = Stamp(stamp.dev, stamp.ino, -1, 0)  # not the file's: until its end was read it is not "unchanged"
            self._save(file, head, unread, position)
            for block in file.blocks(position, FOLLOWED_BLOCK if self._hold else tail.BLOCK):
                if not self._block(file, head, position, block, report, captured):
                    return
                progress(block.position.offset - position.offset)
                position = block.position
            self._save(file, head, stamp, position)
        except LogError as error:
            self._failed(file.path, stamp, str(error), report)

    def _position(self, file: LogFile, head: bytes, stamp: Stamp) -> Position:
        """Where to go on: the furthest that was read of a log with this first line and is still what it was."""
        rows = self._ledger.select(
            """SELECT offset, tail, skipping FROM log WHERE head = ?
                ORDER BY (dev, ino) = (?, ?) DESC, offset DESC""",
            (head, stamp.dev, stamp.ino),
        )
        for offset, before, skipping in rows:
            position = Position(offset, before, bool(skipping))
            if file.verified(position):
                return position
        return tail.START

    def _save(self, file: LogFile, head: bytes, stamp: Stamp, position: Position) -> None:
        with self._ledger.transaction() as tx:
            _save_position(tx, file, head, stamp, position)

    def _block(
        self, file: LogFile, head: bytes, before: Position, block: Block, report: IngestReport, captured: bool
    ) -> bool:
        """Take one block in; ``False`` if another process has moved the position meanwhile."""
        stamp = file.stamp()
        with self._ledger.transaction() as tx:
            row = tx.db.execute(
                "SELECT offset FROM log WHERE head = ? AND dev = ? AND ino = ?", (head, stamp.dev, stamp.ino)
            ).fetchone()
            if row is None or row[0] != before.offset:
                return False
            step = LineStep(tx, self._reader, self._quotes, self._verdict, captured)
            step.take(block.lines)
            faults = [(block.offset(place), reason, told_id(block.lines[place])) for place, reason in step.faults]
            faults += [(offset, "too_long", None) for offset in block.overlong]
            step.report.quarantined.update(reason for _, reason, _ in faults)
            tx.quarantine(head, str(file.path), faults, _now())
            _save_position(tx, file, head, Stamp(stamp.dev, stamp.ino, -1, 0), block.position)
        report.add(step.report)
        return True

    def _verdict(self, runtime: str) -> str | None:
        if runtime not in self._verdicts:
            self._verdicts[runtime] = refused_line(runtime, self._allowlist)
        return self._verdicts[runtime]


def _save_position(tx: Transaction, file: LogFile, head: bytes, stamp: Stamp, position: Position) -> None:
    length = position.offset if file.compressed else max(stamp.size, position.offset)
    row = (
        head,
        stamp.dev,
        stamp.ino,
        str(file.path),
        stamp.size,
        stamp.mtime_ns,
        position.offset,
        position.tail,
        int(position.skipping),
        length,
        _now(),
        file.damage,
    )
    tx.db.execute(SAVE_LOG, row)


def _now() -> int:
    return int(time.time() * 1000)
