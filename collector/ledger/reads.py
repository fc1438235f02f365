"""What the SQLite ledger answers, as SQL over its rollups. Nothing here writes or decides what a number is worth."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import orjson

from collector.ledger import DIMENSIONS, Entry, Group, Kind, Seen, SessionHead
from collector.ledger.interning import Shape
from collector.ledger.schema import KIND, MICRO, RECORD, SEQ_BITS, SHAPE, SUMS, TWIN, UNDATED, WITHDRAWN
from collector.rows import SORTS, Filter, GapRow, Page, QuarantineRow, RefusedRow, SourceRow, iso
from collector.windows import Calendar
from shim.line import TOKEN_CLASSES, Tokens

COLUMNS: Final = {name: f"nullif(used.day, {UNDATED})" if name == "day" else f"shape.{name}" for name in DIMENSIONS}
_SUMMED: Final = ", ".join(f"sum(used.{name})" for name in SUMS)
_KIND: Final = ", ".join(f"kind.{name}" for name in KIND)
CLASSES: Final = len(TOKEN_CLASSES)
# A cursor of the journal is ``run * RUN + records of it that were given``; no transaction adds so many.
RUN: Final = 2**24

LOGGED: Final = """EXISTS (SELECT 1 FROM usage_session AS used JOIN shape ON shape.no = used.shape
    WHERE used.session = session.no AND shape.source = 'log')"""
# A session's model: a metered one's is what its lines say (a store may know an alias only); another's is what its own
# store calls the session's model, else what its records used last.
LINES_FIRST: Final = f"(session.last_model IS NOT NULL AND (session.model IS NULL OR {LOGGED}))"
# A store that knows nothing but a session's start (aider's history) does not tell when it ended.
ENDED: Final = """CASE WHEN session.ended IS NULL AND session.last <= session.started THEN NULL
    ELSE ifnull(session.ended, session.last) END"""
HEAD: Final = f"""session.no, session.vm, session.runtime, session.session_id,
    (SELECT opaque.session_id FROM record JOIN session AS opaque ON opaque.no = record.ref
        WHERE record.session = session.no ORDER BY record.ts DESC, record.id DESC LIMIT 1),
    CASE WHEN {LINES_FIRST} THEN session.last_model ELSE session.model END,
    CASE WHEN {LINES_FIRST} THEN session.last_model_source
        WHEN session.model IS NOT NULL THEN session.model_source ELSE 'none' END,
    ifnull(session.started, session.first), {ENDED}, session.parent,
    CASE WHEN {LOGGED} THEN 'log' ELSE 'vendor' END,
    (SELECT ifnull(sum(used.calls), 0) FROM usage_session AS used JOIN shape ON shape.no = used.shape
        WHERE used.session = session.no AND shape.attribution = 'ambiguous')"""
ORDERS: Final = {
    "cost": f"sum(used.cost_micro) + sum(used.cost_rest) / {MICRO}",
    "tokens": "sum(used.input_tokens + used.cache_read_tokens + used.cache_write_tokens + used.output_tokens)",
    "calls": "sum(used.calls)",
}

_SHAPE: Final = ", ".join(f"shape.{name}" for name in SHAPE)
ENTRY: Final = f"""SELECT record.*, {_SHAPE}, {_KIND}, session.session_id, session.parent, opaque.session_id,
    boot.name, vendor.key, vendor.owner, vendor.revision, rates.data
    FROM record JOIN shape ON shape.no = record.shape JOIN kind ON kind.no = record.kind
    JOIN session ON session.no = record.session LEFT JOIN session AS opaque ON opaque.no = record.ref
    LEFT JOIN boot ON boot.no = record.id >> {SEQ_BITS} LEFT JOIN vendor ON vendor.id = record.id
    LEFT JOIN rates ON rates.no = record.rates"""


def groups(db: sqlite3.Connection, by: Sequence[str], where: Filter) -> list[Group]:
    """See ``Ledger.groups``."""
    keys = [COLUMNS[name] for name in by]
    return _groups(db, "usage_day", keys, *_conditions(where))


def session_groups(db: sqlite3.Connection, sessions: Sequence[int], where: Filter) -> list[Group]:
    """See ``Ledger.session_groups``."""
    conditions, values = _conditions(where)
    found: list[Group] = []
    for start in range(0, len(sessions), 500):
        part = sessions[start : start + 500]
        chosen = f"used.session IN ({', '.join('?' * len(part))})"
        found += _groups(db, "usage_session", ["used.session", "shape.model"], [chosen, *conditions], [*part, *values])
    return found


def _groups(
    db: sqlite3.Connection, table: str, keys: Sequence[str], conditions: Sequence[str], values: Sequence[Any]
) -> list[Group]:
    query = f"""SELECT {"".join(f"{key}, " for key in keys)}{_KIND}, {_SUMMED}
        FROM {table} AS used JOIN shape ON shape.no = used.shape JOIN kind ON kind.no = used.kind
        {_all(conditions)} GROUP BY {"".join(f"{key}, " for key in keys)}used.kind"""
    return [_group(row, len(keys)) for row in db.execute(query, values)]


def _group(row: tuple[Any, ...], width: int) -> Group:
    kind = row[width : width + len(KIND)]
    calls, *numbers = row[width + len(KIND) :]
    without_tokens, priced, micro, rest, acu_known, acu = numbers[2 * CLASSES :]
    return Group(
        row[:width],
        Kind._make((*kind[:-1], bool(kind[-1]))),
        calls,
        tuple(numbers[:CLASSES]),
        tuple(numbers[CLASSES : 2 * CLASSES]),
        without_tokens,
        priced,
        micro * MICRO + rest,
        acu_known,
        acu,
    )


def _conditions(where: Filter) -> tuple[list[str], list[Any]]:
    """A filter as SQL conditions over ``used`` and ``shape``, with their values."""
    found: list[tuple[str, Any]] = []
    if where.window.first is not None:
        found.append(("used.day >= ?", where.window.first))
    if where.window.last is not None:
        found.append((f"used.day > {UNDATED} AND used.day <= ?", where.window.last))
    for name in ("runtime", "model", "vm", "source"):
        if (value := getattr(where, name)) is not None:
            found.append((f"shape.{name} = ?", value))
    return [condition for condition, _ in found], [value for _, value in found]


def _all(conditions: Sequence[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def sessions(
    db: sqlite3.Connection, where: Filter, page: Page, calendar: Calendar
) -> tuple[list[SessionHead], str | None]:
    """See ``Ledger.sessions``. Raises ``ValueError`` for an unknown sort or a cursor that is none of ours."""
    if page.sort not in SORTS:
        raise ValueError(f"sort {page.sort!r} is not one of {', '.join(SORTS)}")
    ask = _by_recency if page.sort == "recent" else _by_sum
    rows = ask(db, where, page, calendar, _cursor(page.cursor))
    heads = [SessionHead(*row[:12]) for row in rows[: page.limit]]
    more = len(rows) > page.limit and bool(heads)
    return heads, f"{rows[page.limit - 1][12]}.{heads[-1].number}" if more else None


def _cursor(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    value, _, number = text.partition(".")
    try:
        return int(value), int(number)
    except ValueError:
        raise ValueError(f"cursor {text!r} is not one that a page before gave") from None


def _by_recency(
    db: sqlite3.Connection, where: Filter, page: Page, calendar: Calendar, cursor: tuple[int, int] | None
) -> list[tuple[Any, ...]]:
    conditions, values = ["(session.listed OR session.calls)"], []
    for name in ("vm", "runtime"):
        if (value := getattr(where, name)) is not None:
            conditions.append(f"session.{name} = ?")
            values.append(value)
    shown, shown_values = _shown(where, calendar)
    if shown:
        conditions.append(shown)
        values += shown_values
    if cursor:
        conditions.append("(session.recency, session.no) < (?, ?)")
        values += cursor
    query = f"""SELECT {HEAD}, session.recency FROM session {_all(conditions)}
        ORDER BY session.recency DESC, session.no DESC LIMIT ?"""
    return db.execute(query, [*values, page.limit + 1]).fetchall()


def _shown(where: Filter, calendar: Calendar) -> tuple[str, list[Any]]:
    """Which sessions a filter shows: those with records in it and, without records, those listed within its days."""
    conditions, values = _conditions(where)
    if not conditions:
        return "", []
    used = f"""EXISTS (SELECT 1 FROM usage_session AS used JOIN shape ON shape.no = used.shape
        WHERE used.session = session.no AND {" AND ".join(conditions)})"""
    if where.model is not None or where.source == "log":
        return used, values
    start, end = calendar.bounds(where.window)
    low = -(2**62) if start is None else int(start * 1000)
    high = 2**62 if end is None else int(end * 1000)
    listed = "(NOT session.calls AND ifnull(session.ended, session.started) >= ? AND session.started < ?)"
    return f"({used} OR {listed})", [*values, low, high]


def _by_sum(
    db: sqlite3.Connection, where: Filter, page: Page, calendar: Calendar, cursor: tuple[int, int] | None
) -> list[tuple[Any, ...]]:
    conditions, values = _conditions(where)
    after = "WHERE (total, session.no) < (?, ?)" if cursor else ""
    query = f"""WITH sums AS (
            SELECT used.session AS no, {ORDERS[page.sort]} AS total
            FROM usage_session AS used JOIN shape ON shape.no = used.shape {_all(conditions)} GROUP BY used.session)
        SELECT {HEAD}, total FROM sums JOIN session USING (no) {after}
        ORDER BY total DESC, session.no DESC LIMIT ?"""
    return db.execute(query, [*values, *(cursor or ()), page.limit + 1]).fetchall()


def find_session(db: sqlite3.Connection, vm: str | None, runtime: str | None, session_id: str) -> list[SessionHead]:
    """See ``Ledger.find_session``."""
    conditions, values = ["session.session_id = ?", "(session.listed OR session.calls)"], [session_id]
    for name, value in (("vm", vm), ("runtime", runtime)):
        if value is not None:
            conditions.append(f"session.{name} = ?")
            values.append(value)
    query = f"SELECT {HEAD} FROM session {_all(conditions)} ORDER BY session.vm, session.runtime"
    return [SessionHead(*row) for row in db.execute(query, values)]


def records(db: sqlite3.Connection, session: int, limit: int) -> list[Entry]:
    """See ``Ledger.records``."""
    query = f"{ENTRY} WHERE record.session = ? AND record.withdrawn = 0 ORDER BY record.ts, record.id LIMIT ?"
    return [_entry(row) for row in db.execute(query, (session, limit))]


def scan(db: sqlite3.Connection, where: Filter) -> Iterator[Entry]:
    """See ``Ledger.scan``."""
    conditions, values = _conditions(where)
    clauses = [condition.replace("used.day", "record.day") for condition in conditions]
    query = f"{ENTRY} {_all(['record.withdrawn = 0', *clauses])} ORDER BY record.ts"
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
    query = f"""SELECT {column}, min(ifnull(first, started)), max(ifnull(last, ended)), count(*) FROM session
        WHERE listed OR calls GROUP BY {column}"""
    return [Seen(*row) for row in db.execute(query)]


def refused(db: sqlite3.Connection) -> list[RefusedRow]:
    """See ``Ledger.refused``; twins are not counted up but found, since they may yet be taken back."""
    rows = [
        _refused(reason, runtime, vm, count, first, last, tuple(orjson.loads(examples)))
        for reason, runtime, vm, count, first, last, examples in db.execute("SELECT * FROM refusal")
    ]
    rows += _copies(db)
    twins = f"""FROM record JOIN shape ON shape.no = record.shape JOIN boot ON boot.no = record.id >> {SEQ_BITS}
        WHERE record.withdrawn > 0 AND record.withdrawn = {TWIN}"""
    totals = f"SELECT runtime, shape.vm, count(*), min(ts), max(ts) {twins} GROUP BY 1, 2"
    for runtime, vm, count, first, last in db.execute(totals).fetchall():
        sample = f"""SELECT boot.name || '-' || (record.id & {2**SEQ_BITS - 1}) {twins}
            AND runtime = ? AND shape.vm = ? LIMIT 5"""
        examples = tuple(row[0] for row in db.execute(sample, (runtime, vm)))
        rows.append(_refused("twin", runtime, vm, count, first, last, examples))
    return rows


def _copies(db: sqlite3.Connection) -> list[RefusedRow]:
    query = """SELECT session.runtime, session.vm, count(*), min(record.ts), max(record.ts), min(lower(hex(copy.key)))
        FROM copy JOIN session ON session.no = copy.session LEFT JOIN vendor ON vendor.key = copy.key
        LEFT JOIN record ON record.id = vendor.id GROUP BY session.runtime, session.vm"""
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
    """See ``Ledger.gaps``: what lies between the runs that arrived, and before the first."""
    query = """SELECT boot.vm, boot.name, run.before + 1, run.first - 1 FROM (
            SELECT boot, first, ifnull(lag(last) OVER (PARTITION BY boot ORDER BY first), 0) AS before FROM seen) AS run
        JOIN boot ON boot.no = run.boot WHERE run.first > run.before + 1 ORDER BY boot.vm, boot.name, run.first"""
    return [
        GapRow(vm=vm, boot=boot, first_seq=first, last_seq=last, lines=last - first + 1)
        for vm, boot, first, last in db.execute(query)
    ]


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
    query = "SELECT path, offset, reason, at FROM quarantine ORDER BY at DESC, path, offset DESC LIMIT ?"
    return [
        QuarantineRow(path=path, offset=offset, reason=reason, at=iso(at))
        for path, offset, reason, at in db.execute(query, (limit,))
    ]
