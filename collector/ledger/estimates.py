"""Second prices of records, beside the first and dated. Nothing that is summed anywhere reads them.

An estimate that says what the latest one of its record says already is not written again, so applying twice is
applying once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from collector.ledger import Kind
from collector.ledger.schema import KIND, SEQ_BITS
from collector.ledger.writer import Transaction

LINE: Final = "SELECT no FROM boot WHERE name = ?"
STORED: Final = "SELECT id FROM vendor WHERE key = ?"
LATEST: Final = "SELECT cost, kind, rates FROM estimate WHERE record = ? ORDER BY made_at DESC LIMIT 1"
ADD: Final = "INSERT OR REPLACE INTO estimate (record, made_at, cost, kind, rates) VALUES (?, ?, ?, ?, ?)"
READ: Final = f"""SELECT estimate.made_at, estimate.cost, {", ".join(f"kind.{name}" for name in KIND)}, rates.data
    FROM estimate JOIN kind ON kind.no = estimate.kind LEFT JOIN rates ON rates.no = estimate.rates
    WHERE estimate.record = ? ORDER BY estimate.made_at"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A second price: when it was made (epoch ms), pico-USD, what it is worth, and the rates as JSON."""

    made_ms: int
    cost_pico: int | None
    kind: Kind
    rates: str | None


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


def _number(db: sqlite3.Connection, record_id: str) -> int | None:
    """The record's number from ``<boot>-<seq>``, or from the hash of a store's key."""
    boot, dash, seq = record_id.rpartition("-")
    row = db.execute(LINE, (boot,)).fetchone() if dash else db.execute(STORED, (bytes.fromhex(record_id),)).fetchone()
    if row is None:
        return None
    return int(row[0]) << SEQ_BITS | int(seq) if dash else int(row[0])
