"""Which sessions a question shows, in which order, and what is known of each: SQL over rollups and sessions' totals.

A page takes as many sessions as it shows, however many there are. Sessions come in the order of their own totals (or of
recency) from an index. Where the filter is narrow, they come from the few that it can mean. What a filter leaves of a
session's total is at most the whole of it, so reading ends when no later session can be on the page.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import orjson

from collector.ledger import SessionHead
from collector.ledger.reads_sums import filtered, where_all
from collector.ledger.schema import MICRO, TOTALS
from collector.rows import SORTS, Filter, Page
from collector.windows import ALL, Calendar

# A filter that means no more sessions than this is answered from those; else they are met often enough on the way.
FEW: Final = 10_000
BATCH: Final = 128
MAX_BATCH: Final = 4_096

LOGGED: Final = """EXISTS (SELECT 1 FROM usage_session AS used JOIN shape ON shape.no = used.shape
    WHERE used.session = session.no AND shape.source = 'log')"""
# A session's model: a metered one's is what its lines say (a store may know an alias only); another's is what its own
# store calls the session's model, else what its records used last.
LINES_FIRST: Final = f"(session.last_model IS NOT NULL AND (session.model IS NULL OR {LOGGED}))"
# A store that knows nothing but a session's start (aider's history) does not tell when it ended.
ENDED: Final = """CASE WHEN session.ended IS NULL AND session.last <= session.started THEN NULL
    ELSE ifnull(session.ended, session.last) END"""
HEAD: Final = f"""session.no, session.vm, session.runtime, session.session_id,
    CASE WHEN {LOGGED} THEN (SELECT opaque.session_id FROM record JOIN session AS opaque ON opaque.no = record.ref
        WHERE record.session = session.no ORDER BY record.ts DESC, record.id DESC LIMIT 1) END,
    CASE WHEN {LINES_FIRST} THEN session.last_model ELSE session.model END,
    CASE WHEN {LINES_FIRST} THEN session.last_model_source
        WHEN session.model IS NOT NULL THEN session.model_source ELSE 'none' END,
    ifnull(session.started, session.first), {ENDED}, session.parent,
    CASE WHEN {LOGGED} THEN 'log' ELSE 'vendor' END,
    (SELECT ifnull(sum(used.calls), 0) FROM usage_session AS used JOIN shape ON shape.no = used.shape
        WHERE used.session = session.no AND shape.attribution = 'ambiguous')"""
# What a sort sums over the records that a filter selects; ``TOTALS`` has the same of whole sessions.
PARTS: Final = {
    "cost": f"sum(used.cost_micro) + sum(used.cost_rest) / {MICRO}",
    "tokens": "sum(used.input_tokens + used.cache_read_tokens + used.cache_write_tokens + used.output_tokens)",
    "calls": "sum(used.calls)",
}
AMONG: Final = "session.no IN (SELECT value FROM json_each(?))"
SHOWN: Final = "(session.listed OR session.calls)"

# The value that a session is sorted by, and its number.
Place = tuple[int, int]


def sessions(
    db: sqlite3.Connection, where: Filter, page: Page, calendar: Calendar
) -> tuple[list[SessionHead], str | None]:
    """See ``Ledger.sessions``. Raises ``ValueError`` for an unknown sort or a cursor that is none of ours."""
    if page.sort not in SORTS:
        raise ValueError(f"sort {page.sort!r} is not one of {', '.join(SORTS)}")
    after = _cursor(page.cursor)
    few = _few(db, where, calendar)
    if page.sort == "recent":
        places = _recent(db, where, page.limit + 1, calendar, after, few)
    elif _whole(where):
        stream = _stream(db, where, page.sort, after, few)
        places = list(islice((place for batch in stream for place in batch), page.limit + 1))
    else:
        places = _largest(db, where, page, after, few)
    shown = places[: page.limit]
    more = len(places) > page.limit and bool(shown)
    return heads(db, [number for _, number in shown]), f"{shown[-1][0]}.{shown[-1][1]}" if more else None


def heads(db: sqlite3.Connection, numbers: Sequence[int]) -> list[SessionHead]:
    """What is known of these sessions, in their order."""
    query = f"SELECT {HEAD} FROM session WHERE {AMONG}"
    found = {row[0]: SessionHead(*row) for row in db.execute(query, (_json(numbers),))}
    return [found[number] for number in numbers]


def find_session(db: sqlite3.Connection, vm: str | None, runtime: str | None, session_id: str) -> list[SessionHead]:
    """See ``Ledger.find_session``."""
    conditions, values = _of(vm, runtime, "presence")
    query = f"""SELECT {HEAD} FROM presence CROSS JOIN session
        ON session.vm = presence.vm AND session.runtime = presence.runtime AND session.session_id = ?
        {where_all([*conditions, SHOWN])} ORDER BY session.vm, session.runtime"""
    return [SessionHead(*row) for row in db.execute(query, [session_id, *values])]


def _cursor(text: str | None) -> Place | None:
    if text is None:
        return None
    value, _, number = text.partition(".")
    try:
        return int(value), int(number)
    except ValueError:
        raise ValueError(f"cursor {text!r} is not one that a page before gave") from None


def _whole(where: Filter) -> bool:
    """Whether a filter takes sessions whole or not at all: a session is of one VM and one runtime."""
    return where.window == ALL and where.model is None and where.source is None


def _json(numbers: Sequence[int]) -> str:
    return orjson.dumps(numbers).decode()


def _of(vm: str | None, runtime: str | None, table: str) -> tuple[list[str], list[Any]]:
    given = [(name, value) for name, value in (("vm", vm), ("runtime", runtime)) if value is not None]
    return [f"{table}.{name} = ?" for name, _ in given], [value for _, value in given]


def _few(db: sqlite3.Connection, where: Filter, calendar: Calendar) -> list[int] | None:
    """The sessions that a filter can mean, perhaps some more, if those are few; else ``None``."""
    if where.window != ALL:
        conditions, values = filtered(Filter(where.window))
        query = f"""SELECT DISTINCT used.session FROM usage_session AS used INDEXED BY usage_session_day
            {where_all(conditions)} LIMIT {FEW + 1}"""
        found = [number for (number,) in db.execute(query, values)]
        if len(found) <= FEW:
            return [*found, *_without_records(db, where, calendar)]
    if where.vm is not None or where.runtime is not None:
        conditions, values = _of(where.vm, where.runtime, "presence")
        chosen = where_all(conditions)
        if db.execute(f"SELECT ifnull(sum(sessions), 0) FROM presence {chosen}", values).fetchone()[0] <= FEW:
            query = f"""SELECT session.no FROM presence CROSS JOIN session INDEXED BY session_from
                ON session.vm = presence.vm AND session.runtime = presence.runtime {where_all([*conditions, SHOWN])}"""
            return [number for (number,) in db.execute(query, values)]
    if where.model is not None or where.source is not None:
        conditions, values = filtered(where)
        query = f"""SELECT DISTINCT used.session FROM shape CROSS JOIN usage_session AS used
            INDEXED BY usage_session_shape ON used.shape = shape.no {where_all(conditions)} LIMIT {FEW + 1}"""
        found = [number for (number,) in db.execute(query, values)]
        if len(found) <= FEW:
            return [*found, *_without_records(db, where, calendar)]
    return None


def _without_records(db: sqlite3.Connection, where: Filter, calendar: Calendar) -> list[int]:
    """Sessions that a store lists within a filter's days and that have no records."""
    if where.model is not None or where.source == "log":
        return []
    listed, values = _listed(where, calendar)
    query = f"""SELECT session.no FROM session INDEXED BY session_empty
        WHERE session.listed AND NOT session.calls AND {listed}"""
    return [number for (number,) in db.execute(query, values)]


def _listed(where: Filter, calendar: Calendar) -> tuple[str, list[int]]:
    start, end = calendar.bounds(where.window)
    low = -(2**62) if start is None else int(start * 1000)
    high = 2**62 if end is None else int(end * 1000)
    return "ifnull(session.ended, session.started) >= ? AND session.started < ?", [low, high]


def _stream(
    db: sqlite3.Connection, where: Filter, sort: str, after: Place | None, few: list[int] | None
) -> Iterator[list[Place]]:
    """Sessions of a VM and runtime by their recency or whole total, the greatest first, in growing batches."""
    value = TOTALS.get(sort, "recency")
    conditions, values = _of(where.vm, where.runtime, "session")
    conditions.append(SHOWN if sort == "recent" else "session.calls")
    if after is not None:
        conditions.append(f"({value}, session.no) < (?, ?)")
        values += after
    table = f"session INDEXED BY session_{'recency' if sort == 'recent' else sort}"
    if few is not None:
        table = "json_each(?) AS few CROSS JOIN session ON session.no = few.value"
        values.insert(0, _json(few))
    query = f"SELECT {value}, session.no FROM {table} {where_all(conditions)} ORDER BY 1 DESC, 2 DESC"
    rows, size = db.execute(query, values), BATCH
    while batch := rows.fetchmany(size):
        yield batch
        size = min(2 * size, MAX_BATCH)


def _recent(
    db: sqlite3.Connection, where: Filter, limit: int, calendar: Calendar, after: Place | None, few: list[int] | None
) -> list[Place]:
    shown, values = _shown(where, calendar)
    places: list[Place] = []
    for batch in _stream(db, where, "recent", after, few):
        if shown:
            query = f"SELECT session.no FROM session WHERE {AMONG} AND {shown}"
            numbers = _json([number for _, number in batch])
            found = {number for (number,) in db.execute(query, [numbers, *values])}
            batch = [place for place in batch if place[1] in found]
        places += batch
        if len(places) >= limit:
            break
    return places[:limit]


def _shown(where: Filter, calendar: Calendar) -> tuple[str, list[Any]]:
    """Which sessions a filter shows: those with records in it and, without records, those listed within its days."""
    if _whole(where):
        return "", []
    conditions, values = filtered(where)
    used = f"""EXISTS (SELECT 1 FROM usage_session AS used JOIN shape ON shape.no = used.shape
        WHERE used.session = session.no AND {" AND ".join(conditions)})"""
    if where.model is not None or where.source == "log":
        return used, values
    listed, bounds = _listed(where, calendar)
    return f"({used} OR (NOT session.calls AND {listed}))", [*values, *bounds]


def _largest(
    db: sqlite3.Connection, where: Filter, page: Page, after: Place | None, few: list[int] | None
) -> list[Place]:
    """Sessions by what a filter leaves of their totals."""
    conditions, values = filtered(where)
    query = f"""SELECT {PARTS[page.sort]}, used.session FROM json_each(?) AS among
        CROSS JOIN usage_session AS used ON used.session = among.value JOIN shape ON shape.no = used.shape
        {where_all(conditions)} GROUP BY used.session"""
    best: list[Place] = []
    for batch in _stream(db, where, page.sort, None, few):
        if len(best) > page.limit and batch[0][0] < best[0][0]:
            break
        for place in db.execute(query, [_json([number for _, number in batch]), *values]):
            if after is not None and place >= after:
                continue
            if len(best) <= page.limit:
                heapq.heappush(best, place)
            else:
                heapq.heappushpop(best, place)
    return sorted(best, reverse=True)
