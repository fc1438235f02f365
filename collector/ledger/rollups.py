"""Rollups by session and by slices and spans: sums kept in the transaction of the records, always equal to a recount.

There is one definition of a sum (``schema.SUMS``). A change of records is: take the sums of the touched runs of ids
away, change the records, add the sums of the same runs. A recount is adding everything to empty tables. Sums of
sessions and days go on into every slice and span they are part of (``spans``), and into the session's own row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from collector.ledger.schema import SUMS, UNDATED
from collector.ledger.spans import BY_DAY, GRAINS

Run = tuple[int, int]

_NAMES: Final = ", ".join(SUMS)
_ADD: Final = ", ".join(f"{name} = {name} + excluded.{name}" for name in SUMS)
_SIGNED: Final = ", ".join(f"? * {name}" for name in SUMS)
_TOTALS: Final = ", ".join(f"? * sum({name})" for name in SUMS)
_MEASURES: Final = ", ".join(f"{expression} AS {name}" for name, expression in SUMS.items())

TEMPORARY: Final = (
    "CREATE TEMP TABLE touched (first INTEGER PRIMARY KEY, last INTEGER)",
    "CREATE TEMP TABLE stale (session INTEGER PRIMARY KEY)",
    "CREATE TEMP TABLE met (vm, runtime, PRIMARY KEY (vm, runtime)) WITHOUT ROWID",
    f"CREATE TEMP TABLE delta (session, day, shape, kind, first, last, {_NAMES})",
)
# The plus keeps SQLite from making an index of all records by ``withdrawn`` each time a few of them are summed.
DELTA_OF_ALL: Final = f"""INSERT INTO delta
    SELECT session, day, shape, kind, min(ts), max(ifnull(ended, ts)), {_MEASURES} FROM record
    WHERE +withdrawn = 0 GROUP BY session, day, shape, kind"""
DELTA_OF_TOUCHED: Final = DELTA_OF_ALL.replace(
    "FROM record", "FROM touched CROSS JOIN record ON record.id BETWEEN touched.first AND touched.last"
)
TO_SESSIONS: Final = f"""INSERT INTO usage_session (session, day, shape, kind, {_NAMES})
    SELECT session, day, shape, kind, {_SIGNED} FROM delta WHERE true
    ON CONFLICT DO UPDATE SET {_ADD}"""
_DAYS: Final = f"""SELECT shape, day, kind, {", ".join(f"sum({name}) AS {name}" for name in SUMS)} FROM delta
    GROUP BY shape, day, kind"""
_GRAINS: Final = " UNION ALL ".join(f"SELECT {grain} AS grain" for grain in GRAINS)
TO_SPANS: Final = f"""INSERT INTO usage_span (slice, grain, block, kind, {_NAMES})
    SELECT shape_slice.slice, spans.grain, used.day >> spans.grain, used.kind, {_TOTALS}
    FROM ({_DAYS}) AS used CROSS JOIN shape_slice ON shape_slice.shape = used.shape CROSS JOIN ({_GRAINS}) AS spans
    WHERE true GROUP BY 1, 2, 3, 4
    ON CONFLICT DO UPDATE SET {_ADD}"""
# Wider spans from days, for a recount.
WIDEN: Final = f"""INSERT INTO usage_span (slice, grain, block, kind, {_NAMES})
    SELECT slice, spans.grain, block >> spans.grain, kind, {", ".join(f"sum({name})" for name in SUMS)}
    FROM ({_GRAINS}) AS spans CROSS JOIN usage_span AS used
    WHERE spans.grain > {BY_DAY} AND used.grain = {BY_DAY} GROUP BY 1, 2, 3, 4"""

# What a session shows of its records. The model is the one used last; at one instant the greater name, whatever came
# first, so that the order of arrival does not show.
_TOKENS: Final = "input_tokens + cache_read_tokens + cache_write_tokens + output_tokens"
_OWN: Final = f"ifnull(sum(calls), 0), ifnull(sum({_TOKENS}), 0), ifnull(sum(cost_micro), 0), ifnull(sum(cost_rest), 0)"
GROWN: Final = f"SELECT session, min(first), max(last), {_OWN} FROM delta GROUP BY session"
GROWN_MODELS: Final = """SELECT delta.session, ifnull(delta.last, -1), shape.model, shape.model_source
    FROM delta JOIN shape ON shape.no = delta.shape WHERE shape.model IS NOT NULL ORDER BY 1, 2, 3"""
_NEWER: Final = "?7 IS NOT NULL AND (last_model_at IS NULL OR (?7, ?8) >= (last_model_at, last_model))"
GROW: Final = f"""UPDATE session SET first = min(ifnull(first, ?1), ifnull(?1, first)),
    last = max(ifnull(last, ?2), ifnull(?2, last)), calls = calls + ?3, tokens = tokens + ?4,
    cost_micro = cost_micro + ?5, cost_rest = cost_rest + ?6, recency = max(ifnull(recency, 0), ifnull(?2, 0)),
    last_model_at = iif({_NEWER}, ?7, last_model_at), last_model = iif({_NEWER}, ?8, last_model),
    last_model_source = iif({_NEWER}, ?9, last_model_source) WHERE no = ?10"""
NO_MODEL: Final = (None, None, None)
_RECORDS: Final = "FROM record WHERE record.session = session.no AND withdrawn = 0"
LOOK_AGAIN: Final = f"""UPDATE session SET
    first = (SELECT min(ts) {_RECORDS}), last = (SELECT max(ifnull(ended, ts)) {_RECORDS}),
    (calls, tokens, cost_micro, cost_rest) = (
        SELECT {_OWN} FROM usage_session WHERE usage_session.session = session.no),
    (last_model_at, last_model, last_model_source) = (
        SELECT ifnull(ifnull(ended, ts), -1), shape.model, shape.model_source
        FROM record JOIN shape ON shape.no = record.shape
        WHERE record.session = session.no AND withdrawn = 0 AND shape.model IS NOT NULL
        ORDER BY ifnull(ifnull(ended, ts), -1) DESC, shape.model DESC LIMIT 1)
    WHERE no IN (SELECT session FROM stale)"""
RECENCY: Final = """UPDATE session SET recency = max(ifnull(last, 0), ifnull(ended, 0), ifnull(started, 0))
    WHERE no IN (SELECT session FROM stale)"""
# VMs' runtimes of which sessions gained records or are looked at again.
_MEET: Final = "INSERT OR IGNORE INTO met SELECT vm, runtime FROM"
MET: Final = f"{_MEET} shape WHERE no IN (SELECT shape FROM delta)"
MET_AGAIN: Final = f"{_MEET} session WHERE no IN (SELECT session FROM stale)"
_PRESENT: Final = "session.vm = presence.vm AND session.runtime = presence.runtime AND (listed OR calls)"
BOUNDS: Final = f"""UPDATE presence SET
    first = (SELECT min(ifnull(first, started)) FROM session INDEXED BY session_from WHERE {_PRESENT}),
    last = (SELECT max(ifnull(last, ended)) FROM session INDEXED BY session_till WHERE {_PRESENT})
    WHERE (vm, runtime) IN (SELECT vm, runtime FROM met)"""


def runs(ids: Iterable[int]) -> list[Run]:
    """Ids as runs of consecutive numbers, in order."""
    found: list[Run] = []
    ordered = sorted(ids)
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1 and len(set(ordered)) == len(ordered):
        return [(ordered[0], ordered[-1])]  # as lines come
    for value in ordered:
        if found and value <= found[-1][1] + 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return found


class Rollups:
    """Keeps the rollups of one connection; every call belongs to a transaction of the caller."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        for statement in TEMPORARY:
            db.execute(statement)

    def add(self, touched: Iterable[Run]) -> None:
        """Add the sums of new records."""
        self._measure(touched)
        self._apply(1)
        self._grow()

    def add_counted(self, delta: Iterable[tuple[int, ...]]) -> None:
        """Add sums of new records that were taken while they were made (``tally``)."""
        self._db.execute("DELETE FROM delta")
        self._db.executemany(f"INSERT INTO delta VALUES ({', '.join('?' * (6 + len(SUMS)))})", delta)
        self._apply(1)
        self._grow()

    def take(self, touched: Iterable[Run]) -> None:
        """Take the sums of records away before they change; their sessions are looked at again by ``settle``."""
        self._measure(touched)
        self._apply(-1)
        self._stale()

    def put_back(self, touched: Iterable[Run]) -> None:
        """Add the sums of records that were taken away and have changed."""
        self._measure(touched)
        self._apply(1)
        self._stale()

    def look_again(self, sessions: Iterable[int]) -> None:
        """Have ``settle`` make sessions anew from their records and listing."""
        self._db.executemany("INSERT OR IGNORE INTO stale VALUES (?)", [(session,) for session in sessions])

    def settle(self) -> None:
        """Make sessions anew whose records changed, and what hangs on sessions; call before the commit."""
        if self._db.execute("SELECT 1 FROM stale LIMIT 1").fetchone():
            self._db.execute("DELETE FROM usage_session WHERE calls = 0 AND session IN (SELECT session FROM stale)")
            self._db.execute("DELETE FROM usage_span WHERE calls = 0")
            self._db.execute(LOOK_AGAIN)
            self._db.execute(RECENCY)
            self._db.execute(MET_AGAIN)
            self._db.execute("DELETE FROM stale")
        self._db.execute(BOUNDS)
        self._db.execute("DELETE FROM met")

    def recount(self, from_day: int) -> None:
        """Make the rollups of days from ``from_day`` on, and of what has no day, anew from the records."""
        self._db.execute(f"DELETE FROM usage_session WHERE day >= ? OR day = {UNDATED}", (from_day,))
        self._db.execute(
            f"DELETE FROM usage_span WHERE grain != {BY_DAY} OR block >= ? OR block = {UNDATED}", (from_day,)
        )
        self._db.execute("DELETE FROM delta")
        self._db.execute(f"{DELTA_OF_ALL.replace('WHERE', 'WHERE (day >= ? OR day = ?) AND')}", (from_day, UNDATED))
        self._db.execute(TO_SESSIONS, (1,) * len(SUMS))
        self._db.execute(TO_SPANS.replace(_GRAINS, f"SELECT {BY_DAY} AS grain"), (1,) * len(SUMS))
        self._db.execute(WIDEN)
        self._db.execute("INSERT OR IGNORE INTO stale SELECT no FROM session")
        self.settle()

    def _measure(self, touched: Iterable[Run]) -> None:
        self._db.execute("DELETE FROM touched")
        self._db.execute("DELETE FROM delta")
        self._db.executemany("INSERT INTO touched VALUES (?, ?)", touched)
        self._db.execute(DELTA_OF_TOUCHED)

    def _apply(self, sign: int) -> None:
        signs = (sign,) * len(SUMS)
        self._db.execute(TO_SESSIONS, signs)
        self._db.execute(TO_SPANS, signs)

    def _stale(self) -> None:
        self._db.execute("INSERT OR IGNORE INTO stale SELECT session FROM delta")

    def _grow(self) -> None:
        """Sessions that only gained records: no look back at the old ones."""
        self._db.execute(MET)
        newest = {session: (at, model, how) for session, at, model, how in self._db.execute(GROWN_MODELS)}
        grown = self._db.execute(GROWN).fetchall()
        self._db.executemany(GROW, [(*sums, *newest.get(session, NO_MODEL), session) for session, *sums in grown])
