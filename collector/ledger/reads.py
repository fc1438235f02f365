"""What the SQLite ledger answers beside its sums: records, journal, what was refused or is missing. Never writes."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import orjson

from collector.ledger import Entry, Kind, Seen
from collector.ledger.interning import Shape
from collector.ledger.reads_sums import filtered, where_all
from collector.ledger.schema import KIND, RECORD, SEQ_BITS, SHAPE, TWIN, UNDATED, WITHDRAWN
from collector.rows import Filter, GapRow, QuarantineRow, RefusedRow, SourceRow, iso
from collector.windows import Calendar
from shim.line import TOKEN_CLASSES, Tokens

_KIND: Final = ", ".join(f"kind.{name}" for name in KIND)
# A cursor of the journal is ``run * RUN + records of it that were given``; no transaction adds so many.
RUN: Final = 2**24
# Local days are whole minutes off UTC, and times are rounded to ms.
SLACK_MS: Final = 1000

_SHAPE: Final = ", ".join(f"shape.{name}" for name in SHAPE)
ENTRY: Final = f"""SELECT record.*, {_SHAPE}, {_KIND}, session.session_id, session.parent, opaque.session_id,
    boot.name, vendor.key, vendor.owner, vendor.revision, rates.data
    FROM record JOIN shape ON shape.no = record.shape JOIN kind ON kind.no = record.kind
    JOIN session ON session.no = record.session LEFT JOIN session AS opaque ON opaque.no = record.ref
    LEFT JOIN boot ON boot.no = record.id >> {SEQ_BITS} LEFT JOIN vendor ON vendor.id = record.id
    LEFT JOIN rates ON rates.no = record.rates"""


def records(db: sqlite3.Connection, session: int, limit: int) -> list[Entry]:
    """See ``Ledger.records``."""
    query = f"{ENTRY} WHERE record.session = ? AND record.withdrawn = 0 ORDER BY record.ts, record.id LIMIT ?"
    return [_entry(row) for row in db.execute(query, (session, limit))]


def scan(db: sqlite3.Connection, where: Filter, calendar: Calendar) -> Iterator[Entry]:
    """See ``Ledger.scan``."""
    conditions, values = filtered(where)
    clauses = [condition.replace("used.day", "record.day") for condition in conditions]
    start, end = calendar.bounds(where.window)
    # the day decides; times only keep the index from being read from its start or to its end
    if start is not None:
        clauses.append("record.ts >= ?")
        values.append(int(start * 1000) - SLACK_MS)
    if end is not None:
        clauses.append("record.ts <= ?")
        values.append(int(end * 1000) + SLACK_MS)
    query = f"{ENTRY} {where_all(['record.withdrawn = 0', *clauses])} ORDER BY record.ts"
    for row in db.execute(query, values):
        yield _entry(row)


def changes(db: sqlite3.Connection, after: int, limit: int) -> tuple[int, list[Entry]]:
    """See ``Ledger.changes``. A cursor is a run of the journal and how many records of it were given."""
    found: dict[str, Entry] = {}
    number, given = divmod(after, RUN)
    for run, first, last in db.execute("SELECT no, first, last FROM change WHERE no >= ? ORDER BY no", (number,)):
        start = first + given if run == number else first
        stop = min(last, start + limit - len(found) - 1)
        for row in db.execute(f"{ENTRY} WHERE record.id BETWEEN ? AND ?", (start, stop)):
            entry = _entry(row)
            found[entry.id] = entry
        after = run * RUN + stop - first + 1 if stop < last else (run + 1) * RUN
        if len(found) >= limit or stop < last:
            break
    return after, list(found.values())


def waiting(db: sqlite3.Connection, after: int) -> int:
    """How many records of the journal come after a cursor."""
    number, given = divmod(after, RUN)
    row = db.execute("SELECT ifnull(sum(last - first + 1), 0) FROM change WHERE no >= ?", (number,)).fetchone()
    return max(0, int(row[0]) - given)


def first_waiting_day(db: sqlite3.Connection, after: int) -> int | None:
    """The first day of the records that come after a cursor, ``None`` where none has a day."""
    query = f"""SELECT min(record.day) FROM change CROSS JOIN record ON record.id BETWEEN change.first AND change.last
        WHERE change.no >= ? AND record.day > {UNDATED}"""
    found = db.execute(query, (after // RUN,)).fetchone()[0]
    return None if found is None else int(found)


def _entry(row: tuple[Any, ...]) -> Entry:
    cell = dict(zip(RECORD, row, strict=False))
    rest = row[len(RECORD) :]
    shape = Shape(*rest[: len(SHAPE)])
    kind = rest[len(SHAPE) : len(SHAPE) + len(KIND)]
    session_id, parent, ref, boot, key, owner, revision, rates = rest[len(SHAPE) + len(KIND) :]
    return Entry(
        id=f"{boot}-{cell['id'] & (2**SEQ_BITS - 1)}" if boot is not None else key.hex(),
        session_id=session_id,
        ts_ms=cell["ts"],
        tokens=Tokens(*(cell[name] for name in TOKEN_CLASSES)),
        kind=Kind._make((*kind[:-1], bool(kind[-1]))),
        session_ref=ref,
        parent_session_id=parent,
        owner_ms=owner or 0,
        revision=revision or 0,
        ended_ms=cell["ended"],
        stream=None if cell["stream"] is None else bool(cell["stream"]),
        cost_pico=cell["cost"],
        acu_micro=cell["acu"],
        rates=rates,
        withdrawn=WITHDRAWN.get(cell["withdrawn"]),
        **shape._asdict(),
        **{name: cell[name] for name in ("http_status", "duration_ms", "ttft_ms", "response")},
    )


def seen(db: sqlite3.Connection, by: str) -> list[Seen]:
    """See ``Ledger.seen``."""
    column = {"vm": "vm", "runtime": "runtime"}[by]
    query = f"""SELECT {column}, min(first), max(last), sum(sessions) FROM presence WHERE sessions GROUP BY {column}"""
    return [Seen(*row) for row in db.execute(query)]


def refused(db: sqlite3.Connection) -> list[RefusedRow]:
    """See ``Ledger.refused``; twins are not counted up but found, since they may yet be taken back."""
    rows = [
        _refused(reason, runtime, vm, count, first, last, tuple(orjson.loads(examples)))
        for reason, runtime, vm, count, first, last, examples in db.execute("SELECT * FROM refusal")
    ]
    rows += _copies(db)
    twins = f"record INDEXED BY record_withdrawn WHERE withdrawn = {TWIN} AND withdrawn > 0"
    counted = f"SELECT shape, count(*) AS calls, min(ts) AS first, max(ts) AS last FROM {twins} GROUP BY shape"
    totals = f"""SELECT shape.runtime, shape.vm, sum(calls), min(twin.first), max(twin.last) FROM ({counted}) AS twin
        JOIN shape ON shape.no = twin.shape GROUP BY 1, 2"""
    sample = f"""SELECT boot.name || '-' || (record.id & {2**SEQ_BITS - 1}) FROM shape CROSS JOIN record
        INDEXED BY record_withdrawn ON record.withdrawn = {TWIN} AND record.withdrawn > 0 AND record.shape = shape.no
        JOIN boot ON boot.no = record.id >> {SEQ_BITS} WHERE shape.runtime = ? AND shape.vm = ? LIMIT 5"""
    for runtime, vm, count, first, last in db.execute(totals).fetchall():
        examples = tuple(row[0] for row in db.execute(sample, (runtime, vm)))
        rows.append(_refused("twin", runtime, vm, count, first, last, examples))
    return rows


def refused_counts(db: sqlite3.Connection) -> dict[str, int]:
    """See ``Ledger.refused_counts``."""
    query = f"""SELECT reason, sum(count) FROM refusal GROUP BY reason UNION ALL SELECT 'copy', count(*) FROM copy
        UNION ALL SELECT 'twin', count(*) FROM record INDEXED BY record_withdrawn
        WHERE withdrawn = {TWIN} AND withdrawn > 0"""
    return {reason: count for reason, count in db.execute(query) if count}


def _copies(db: sqlite3.Connection) -> list[RefusedRow]:
    query = """SELECT session.runtime, session.vm, sum(copied.calls), min(copied.first), max(copied.last),
        lower(hex(min(copied.example))) FROM (
            SELECT session, count(*) AS calls, min(ts) AS first, max(ts) AS last, min(key) AS example
            FROM copy INDEXED BY copy_session GROUP BY session) AS copied
        JOIN session ON session.no = copied.session GROUP BY session.runtime, session.vm"""
    return [
        _refused("copy", runtime, vm, count, first, last, (example,))
        for runtime, vm, count, first, last, example in db.execute(query)
    ]


def _refused(
    reason: str, runtime: str, vm: str, count: int, first: int | None, last: int | None, examples: Iterable[str]
) -> RefusedRow:
    return RefusedRow(
        reason=reason,
        runtime=runtime,
        vm=vm,
        count=count,
        first_at=iso(first),
        last_at=iso(last),
        examples=tuple(examples),
    )


def gaps(db: sqlite3.Connection) -> list[GapRow]:
    """See ``Ledger.gaps``: what lies between the runs that arrived, and before the first, and is not in quarantine."""
    query = """SELECT boot.vm, boot.name, run.before + 1, run.first - 1 FROM (
            SELECT boot, first, ifnull(lag(last) OVER (PARTITION BY boot ORDER BY first), 0) AS before FROM seen) AS run
        JOIN boot ON boot.no = run.boot WHERE run.first > run.before + 1 ORDER BY boot.vm, boot.name, run.first"""
    aside = _quarantined_seqs(db)
    return [
        GapRow(vm=vm, boot=boot, first_seq=start, last_seq=end, lines=end - start + 1)
        for vm, boot, first, last in db.execute(query)
        for start, end in _without(first, last, aside.get(boot, ()))
    ]


def _quarantined_seqs(db: sqlite3.Connection) -> dict[str, list[int]]:
    """Which lines of each boot stand in a log but are damaged, in order."""
    found: dict[str, list[int]] = {}
    for (line,) in db.execute("SELECT DISTINCT line FROM quarantine WHERE line IS NOT NULL"):
        boot, _, seq = line.rpartition("-")
        found.setdefault(boot, []).append(int(seq))
    for seqs in found.values():
        seqs.sort()
    return found


def _without(first: int, last: int, seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The run from ``first`` to ``last`` without these numbers, as runs."""
    for seq in seqs[bisect_left(seqs, first) : bisect_right(seqs, last)]:
        if seq > first:
            yield first, seq - 1
        first = seq + 1
    if first <= last:
        yield first, last


def sources(db: sqlite3.Connection) -> list[SourceRow]:
    """See ``Ledger.sources``."""
    logs = "SELECT path, 'log', NULL, max(read_at), error, sum(max(length - offset, 0)) FROM log GROUP BY path"
    stores = "SELECT path, 'store', runtime, read_at, error, 0 FROM store"
    return [
        SourceRow(
            path=path,
            kind=kind,
            runtime=runtime,
            last_read_at=iso(read_at),
            ok=error is None,
            error=error,
            lag_bytes=lag,
        )
        for path, kind, runtime, read_at, error, lag in db.execute(f"{logs} UNION ALL {stores} ORDER BY 2, 1")
    ]


def quarantine(db: sqlite3.Connection, limit: int) -> list[QuarantineRow]:
    """See ``Ledger.quarantine``."""
    query = "SELECT path, offset, reason, at, line FROM quarantine ORDER BY at DESC, path, offset DESC LIMIT ?"
    return [
        QuarantineRow(path=path, offset=offset, reason=reason, at=iso(at), line=line)
        for path, offset, reason, at, line in db.execute(query, (limit,))
    ]
