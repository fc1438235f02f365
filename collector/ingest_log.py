"""Usage lines into the ledger: decode, refuse, price, insert, settle, and move the position, one block a transaction.

A line that is no usage line goes to quarantine and blocks nothing. A line that was read before changes nothing,
wherever it stands this time. The position of the file is committed with the lines that moved it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from collector import tail
from collector.ingest_report import IngestReport, Progress
from collector.ledger.interning import Shape
from collector.ledger.settle import Settler, side_of
from collector.ledger.sqlite import SqliteLedger
from collector.ledger.tally import Tally
from collector.ledger.writer import Row, Transaction
from collector.lines import Call, LineReader
from collector.merge import refused_line
from collector.pricing import Pricer
from collector.quotes import Quote, Quotes
from collector.tail import Block, LogError, LogFile, Position, Stamp
from shim.allowlist import Allowlist
from shim.line import LineError

# Reasons for a refusal that only captured lines have.
NOT_CAPTURED: Final = "not_captured"
CAPTURED_WIRES: Final = frozenset({"cursor-cli"})
SAVE_LOG: Final = "INSERT OR REPLACE INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


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
        held = self._held.pop(log, None)
        if held is not None:
            self._file(held, report, progress, captured)
            held.close()
        known = self._stamps()
        for path in tail.family(log):
            found = tail.stamp(path)
            if found is None or (found in known and known[found] == str(path)):
                report.unchanged += 1
                continue
            try:
                file = LogFile(path)
            except LogError as error:
                self._failed(path, found, str(error), report)
                continue
            self._file(file, report, progress, captured)
            if self._hold and path == log:
                self._held[log] = file
            else:
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
            self._save(file, head, stamp, position, position)
            for block in file.blocks(position):
                if not self._block(file, head, position, block, report, captured):
                    return
                progress(block.position.offset - position.offset)
                position = block.position
            self._save(file, head, stamp, position, position)
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

    def _save(self, file: LogFile, head: bytes, stamp: Stamp, old: Position, new: Position) -> None:
        with self._ledger.transaction() as tx:
            _save_position(tx, file, head, stamp, new)

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
            step = Step(tx, self._reader, self._quotes, self._verdict, captured)
            step.take(block.lines)
            faults = [*step.faults, *((offset, "too_long") for offset in block.overlong)]
            step.report.quarantined.update(reason for _, reason in faults)
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


class Step:
    """The lines of one block on their way into one transaction."""

    def __init__(
        self,
        tx: Transaction,
        reader: LineReader,
        quotes: Quotes,
        verdict: Callable[[str], str | None],
        captured: bool,
    ) -> None:
        self._tx = tx
        self._reader = reader
        self._quotes = quotes
        self._verdict = verdict
        self._captured = captured
        self._shapes: dict[tuple[str | None, ...], int] = {}
        self._worth: dict[Quote, tuple[int, int | None]] = {}
        self.faults: list[tuple[int, str]] = []
        self.report = IngestReport()

    def take(self, lines: Sequence[tuple[int, bytes]]) -> None:
        """Decode lines, insert those that are new and count, and settle whose they are."""
        new: list[tuple[int, Call]] = []
        refused: Counter[tuple[str, str, str]] = Counter()
        examples: dict[tuple[str, str, str], tuple[str, int]] = {}
        for offset, data in lines:
            try:
                call = self._reader.read(data)
            except LineError as error:
                self.faults.append((offset, error.reason))
                continue
            number, reason = self._judge(call)
            if number is not None and reason is None:
                new.append((number, call))
            else:
                key = (reason or "duplicate_line", call.runtime, call.vm)
                refused[key] += 1
                examples.setdefault(key, (call.id, int(call.ts * 1000)))
        for key, count in refused.items():
            example, ts_ms = examples[key]
            self._tx.refuse(*key, example, ts_ms, count)
            self.report.refused[key[0]] += count
        self.report.lines += len(lines)
        self.report.new_lines += len(new)
        self._insert(new)

    def _judge(self, call: Call) -> tuple[int | None, str | None]:
        """The record id of a new line (``None`` if it was read before), and why it is refused if it is."""
        if self._captured and call.wire not in CAPTURED_WIRES:
            return None, NOT_CAPTURED
        number = self._tx.line_id(call.boot, call.seq, call.vm)
        return (number, self._verdict(call.runtime)) if number is not None else (None, None)

    def _insert(self, new: Sequence[tuple[int, Call]]) -> None:
        settler, tally = Settler(self._tx), Tally()
        rows = []
        for number, call in new:
            ts_ms = int(call.ts * 1000 + 0.5)
            rows.append(self._row(number, call, ts_ms, tally))
            if settler.concerns(call.vm, call.runtime):
                side = side_of(number, ts_ms, call.duration_ms, None, call.model, call.tokens, call.response)
                settler.line(call.vm, call.runtime, side)
        self._tx.add(rows, tally)
        settler.settle()

    def _row(self, number: int, call: Call, ts_ms: int, tally: Tally) -> Row:
        names = call.names
        shape = self._shapes.get(names)
        if shape is None:
            shape = self._shapes[names] = self._tx.numbers.shape(_shape(call))
        session = self._tx.numbers.session(call.vm, call.runtime, call.session)
        day = self._tx.calendar.day(call.ts)
        fresh, read, write = call.input_tokens, call.cache_read_tokens, call.cache_write_tokens
        hour, output, reasoning = call.cache_write_1h_tokens, call.output_tokens, call.reasoning_tokens
        known = (fresh and 1, read and 1, write and 1, hour and 1, output and 1, reasoning and 1)
        counts = (fresh or 0, read or 0, write or 0, hour or 0, output or 0, reasoning or 0)
        cost, quote = self._quotes.price(call, known, counts)
        worth = self._worth.get(quote)
        if worth is None:
            numbers = self._tx.numbers
            worth = self._worth[quote] = (numbers.kind(quote.kind), numbers.rates(quote.rates))
        kind, rates = worth
        tally.add((session, day, shape, kind, known), ts_ms, counts, cost)
        return (
            number, ts_ms, day, shape, kind, session, session, fresh, read, write, hour, output, reasoning, cost, rates,
            None, call.http_status, call.stream, call.duration_ms, call.ttft_ms, call.response, None, 0,
        )  # fmt: skip


def _shape(call: Call) -> Shape:
    return Shape(
        call.vm,
        call.runtime,
        "log",
        call.model,
        "log" if call.model else "none",
        call.upstream,
        call.wire,
        call.service_tier,
        "call",
        call.session_source,
        None,
    )
