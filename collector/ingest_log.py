"""Usage lines into the ledger: decode, refuse, price, insert, settle, and move the position, one block a transaction.

A line that is no usage line goes to quarantine and blocks nothing. A line that was read before changes nothing,
wherever it stands this time. The position of the file is committed with the lines that moved it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

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
            for block in file.blocks(position):
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
            step = Step(tx, self._reader, self._quotes, self._verdict, captured)
            step.take(block.lines)
            faults = [(block.offset(place), reason) for place, reason in step.faults]
            faults += [(offset, "too_long") for offset in block.overlong]
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


class Form(NamedTuple):
    """What lines of one form (``Call.form``) have in common: ``refused``: why they do not count, if they do not."""

    refused: str | None
    shape: int
    sessions: dict[str, int]
    concerned: bool


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
        self._settler = Settler(tx)
        self._tally = Tally()
        self._forms: dict[int, Form] = {}
        self._boots: dict[str, tuple[int, Callable[[int], bool]]] = {}
        self._sessions: dict[tuple[str, str], dict[str, int]] = {}
        self._worth: dict[Quote, tuple[int, int | None]] = {}
        self._refused: Counter[tuple[str, str, str]] = Counter()
        self._examples: dict[tuple[str, str, str], tuple[str, int]] = {}
        self.faults: list[tuple[int, str]] = []
        self.report = IngestReport()

    def take(self, lines: Sequence[bytes]) -> None:
        """Decode lines, insert those that are new and count, and settle whose they are."""
        read, rows = self._reader.read, []
        for place, data in enumerate(lines):
            try:
                call = read(data)
            except LineError as error:
                self.faults.append((place, error.reason))
                continue
            row = self._take(call)
            if row is not None:
                rows.append(row)
        self.report.lines += len(lines)
        self.report.new_lines += len(rows)
        self._tx.add_lines(rows, self._tally)
        self._settler.settle()
        for (reason, runtime, vm), count in self._refused.items():
            self._tx.refuse(reason, runtime, vm, *self._examples[reason, runtime, vm], count)
            self.report.refused[reason] += count

    def _take(self, call: Call) -> Row | None:
        """The row of a line that is new and counts, else ``None`` and a refusal."""
        form = self._forms.get(call.form) or self._form(call)
        if form.refused == NOT_CAPTURED:
            return self._refuse(call, NOT_CAPTURED)
        base, note = self._boots.get(call.boot) or self._boot(call)
        if not note(call.seq):
            return self._refuse(call, "duplicate_line")
        if form.refused is not None:
            return self._refuse(call, form.refused)
        return self._row(base + call.seq, call, form)

    def _boot(self, call: Call) -> tuple[int, Callable[[int], bool]]:
        found = self._boots[call.boot] = self._tx.boot(call.boot, call.vm)
        return found

    def _form(self, call: Call) -> Form:
        if self._captured and call.wire not in CAPTURED_WIRES:
            refused: str | None = NOT_CAPTURED
        else:
            refused = self._verdict(call.runtime)
        sessions = self._sessions.setdefault((call.vm, call.runtime), {})
        shape = 0 if refused else self._tx.numbers.shape(_shape(call))
        form = Form(refused, shape, sessions, self._settler.concerns(call.vm, call.runtime))
        self._forms[call.form] = form
        return form

    def _refuse(self, call: Call, reason: str) -> None:
        key = (reason, call.runtime, call.vm)
        self._refused[key] += 1
        self._examples.setdefault(key, (call.id, int(call.ts * 1000)))

    def _row(self, number: int, call: Call, form: Form) -> Row:
        session = form.sessions.get(call.session)
        if session is None:
            session = self._tx.numbers.session(call.vm, call.runtime, call.session)
            form.sessions[call.session] = session
        ts = call.ts
        ts_ms, day = int(ts * 1000 + 0.5), self._tx.calendar.day(ts)
        fresh, read, write = call.input_tokens, call.cache_read_tokens, call.cache_write_tokens
        hour, output, reasoning = call.cache_write_1h_tokens, call.output_tokens, call.reasoning_tokens
        known = (fresh and 1, read and 1, write and 1, hour and 1, output and 1, reasoning and 1)
        counts = (fresh or 0, read or 0, write or 0, hour or 0, output or 0, reasoning or 0)
        cost, quote = self._quotes.price(call, known, counts)
        kind, rates = self._worth.get(quote) or self._number(quote)
        self._tally.add((session, day, form.shape, kind, known), ts_ms, counts, cost)
        if form.concerned:
            side = side_of(number, call.vm, ts_ms, call.duration_ms, None, call.model, call.tokens, call.response)
            self._settler.line(call.vm, call.runtime, side)
        return (
            number, ts_ms, day, form.shape, kind, session, fresh, read, write, hour, output, reasoning, cost, rates,
            call.http_status, call.stream, call.duration_ms, call.ttft_ms, call.response,
        )  # fmt: skip

    def _number(self, quote: Quote) -> tuple[int, int | None]:
        numbers = self._tx.numbers
        found = self._worth[quote] = (numbers.kind(quote.kind), numbers.rates(quote.rates))
        return found


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
