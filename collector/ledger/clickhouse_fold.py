"""How records of ClickHouse expire while every total stays.

A fold notes the ids that it takes, sums exactly those, and is finished by one insert into ``fold``: before it the
records count, after it their sums do, and a crash in between leaves rows that count nowhere. The records are deleted by
the next fold. One whose id was taken never counts again, though its VM sends it once more. ClickHouse's own TTL is not
used: it would delete without asking whether the sums are kept.

Two folds at once would take the same records twice, so on a server only one host may run them (``hub expire``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from collector.ledger import DIMENSIONS
from collector.ledger.clickhouse_days import IS_RECORD
from collector.ledger.clickhouse_reads import KINDS, Ask, Folds
from collector.ledger.clickhouse_schema import SUMS
from collector.ledger.schema import UNDATED

_KEYS: Final = f"{', '.join(DIMENSIONS)}, {KINDS}"
_FIRST_LAST: Final = "min(ts_ms), max(coalesce(ended_ms, ts_ms))"


def fold(ask: Ask, run: Callable[[str], None], day: int, folds: Folds) -> int:
    """Take the records of days before ``day`` into sums; how many. ``run`` runs a statement that answers nothing."""
    number = time.time_ns() // 1000
    old = f"{IS_RECORD} AND day < {day} AND day > {UNDATED}"
    taken = f" AND id NOT IN (SELECT id FROM {folds.gone} WHERE fold IN ({folds.listed}))" if folds.numbers else ""
    run(f"INSERT INTO gone SELECT {number}, id FROM record FINAL WHERE {old}{taken}")
    count = int(ask(f"SELECT count() FROM gone WHERE fold = {number}", {})[0][0])
    if not count:
        return 0
    mine = f"isNull(withdrawn) AND id IN (SELECT id FROM {folds.gone} WHERE fold = {number})"
    run(f"INSERT INTO usage_day {sums_of(number, mine)}")
    run(f"INSERT INTO fold VALUES ({number}, {number})")
    return count


def sums_of(number: int, where: str) -> str:
    """The rows of ``usage_day`` for a fold of the records of a condition."""
    return f"""SELECT {number}, {_KEYS}, {", ".join(SUMS.values())}, {_FIRST_LAST} FROM record FINAL
        WHERE {where} GROUP BY {_KEYS}"""


def clean(ask: Ask, run: Callable[[str], None], table: str, where: str, day: int, folds: Folds) -> None:
    """Delete the records of finished folds, and what moved away. ``table``, ``where``: on each server, ON CLUSTER."""
    moved = f"day < {day} AND NOT ({IS_RECORD})"
    taken = [f"(id, day) IN (SELECT id, day FROM {table} FINAL WHERE {moved})"]
    if folds.numbers:
        taken.append(f"id IN (SELECT id FROM {folds.gone} WHERE fold IN ({folds.listed}))")
    for chosen in taken:
        if ask(f"SELECT count() FROM record WHERE day < {day} AND {chosen}", {})[0][0]:
            run(f"DELETE FROM {table}{where} WHERE {chosen}")
