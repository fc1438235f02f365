"""Second prices of records, beside the first and dated. Nothing that is summed anywhere reads them.

An estimate that says what the latest one of its record says already is not written again, so applying twice is
applying once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from collector.ledger import Estimate, Kind, SecondPrice
from collector.ledger.reads_sums import filtered, where_all
from collector.ledger.schema import KIND, SEQ_BITS
from collector.ledger.writer import Transaction
from collector.rows import Filter

LINE: Final = "SELECT no FROM boot WHERE name = ?"
STORED: Final = "SELECT id FROM vendor WHERE key = ?"
LATEST: Final = "SELECT cost, kind, rates FROM estimate WHERE record = ? ORDER BY made_at DESC LIMIT 1"
ADD: Final = "INSERT OR REPLACE INTO estimate (record, made_at, cost, kind, rates) VALUES (?, ?, ?, ?, ?)"
READ: Final = f"""SELECT estimate.made_at, estimate.cost, {", ".join(f"kind.{name}" for name in KIND)}, rates.data
    FROM estimate JOIN kind ON kind.no = estimate.kind LEFT JOIN rates ON rates.no = estimate.rates
    WHERE estimate.record = ? ORDER BY estimate.made_at"""


OF_SESSIONS: Final = f"""SELECT record.session, iif(boot.no IS NULL, lower(hex(vendor.key)),
        boot.name || '-' || (record.id & {2**SEQ_BITS - 1})), record.cost, estimate.made_at, estimate.cost,
        {", ".join(f"kind.{name}" for name in KIND)}, rates.data
    FROM json_each(?) AS chosen CROSS JOIN record ON record.session = chosen.value
    CROSS JOIN estimate ON estimate.record = record.id AND estimate.made_at = (
        SELECT max(made_at) FROM estimate AS other WHERE other.record = record.id)
    JOIN kind ON kind.no = estimate.kind JOIN shape ON shape.no = record.shape
    LEFT JOIN rates ON rates.no = estimate.rates
    LEFT JOIN boot ON boot.no = record.id >> {SEQ_BITS} LEFT JOIN vendor ON vendor.id = record.id"""


def add(tx: Transaction, found: Iterable[tuple[str, Estimate]]) -> int:
    """Write estimates by the records' ids (``Entry.id``); how many were new."""
    written = 0
    for record_id, estimate in found:
        number = _number(tx.db, record_id)
        row = (estimate.cost_pico, tx.numbers.kind(estimate.kind), tx.numbers.rates(estimate.rates))
        if number is None or tx.db.execute(LATEST, (number,)).fetchone() == row:
            continue
        tx.db.execute(ADD, (number, estimate.made_ms, *row))
        written += 1
    return written


def of(db: sqlite3.Connection, record_id: str) -> list[Estimate]:
    """The second prices of a record, oldest first."""
    number = _number(db, record_id)
    found = []
    for made, cost, *kind, rates in db.execute(READ, (number,)):
        found.append(Estimate(made, cost, Kind._make((*kind[:-1], bool(kind[-1]))), rates))
    return found


def of_sessions(db: sqlite3.Connection, sessions: Sequence[int], where: Filter) -> list[SecondPrice]:
    """See ``Ledger.second_prices``."""
    if not db.execute("SELECT 1 FROM estimate LIMIT 1").fetchone():
        return []
    conditions, values = filtered(where)
    clauses = ["record.withdrawn = 0", *(condition.replace("used.day", "record.day") for condition in conditions)]
    rows = db.execute(f"{OF_SESSIONS} {where_all(clauses)}", [orjson.dumps(sessions).decode(), *values])
    return [
        SecondPrice(session, record, first, Estimate(made, cost, Kind._make((*kind[:-1], bool(kind[-1]))), rates))
        for session, record, first, made, cost, *kind, rates in rows
    ]


def _number(db: sqlite3.Connection, record_id: str) -> int | None:
    """The record's number from ``<boot>-<seq>``, or from the hash of a store's key."""
    boot, dash, seq = record_id.rpartition("-")
    row = db.execute(LINE, (boot,)).fetchone() if dash else db.execute(STORED, (bytes.fromhex(record_id),)).fetchone()
    if row is None:
        return None
    return int(row[0]) << SEQ_BITS | int(seq) if dash else int(row[0])
