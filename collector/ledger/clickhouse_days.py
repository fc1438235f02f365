"""Records that move to another day. A record's key in ClickHouse is its id and its day.

All rows of one key have one day and lie in one partition, so that ClickHouse itself may leave out the partitions and
parts of other days where it merges what it reads (FINAL). Of one id one key counts: the row that a record left behind
on its old day is taken back by one more row of that key, ``withdrawn`` as ``moved``, which is no record and counts
nowhere. A record is written before the old row is taken back; a batch that was cut off in between comes again, and
whoever looks a record up takes back what is left over.

Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from collector.entries import flat
from collector.ledger import Entry
from collector.ledger.clickhouse_decide import Written

MOVED: Final = "moved"
IS_RECORD: Final = f"ifNull(withdrawn, '') != '{MOVED}'"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of ``record`` as it stands: the greatest version of its key."""

    entry: Entry
    day: int
    version: int

    @property
    def is_record(self) -> bool:
        """Whether it is none that was taken back."""
        return self.entry.withdrawn != MOVED


def latest(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Of rows of any version, those that stand, by id."""
    keys: dict[tuple[str, int], Row] = {}
    for row in rows:
        known = keys.get((row.entry.id, row.day))
        if known is None or row.version >= known.version:
            keys[row.entry.id, row.day] = row
    found: dict[str, list[Row]] = {}
    for row in keys.values():
        found.setdefault(row.entry.id, []).append(row)
    return found


def current(rows: Sequence[Row]) -> Row | None:
    """The row that is the record, ``None`` where all were taken back."""
    return max((row for row in rows if row.is_record), key=lambda row: (row.version, row.day), default=None)


def above(written: Written, rows: Sequence[Row]) -> Written:
    """With a version that replaces every row of the id, also one that was taken back on the day it returns to."""
    floor = max((row.version for row in rows), default=-1)
    return written if written.version > floor else replace(written, version=floor + 1)


def left_behind(held: Mapping[str, Sequence[Row]], days: Mapping[str, int]) -> Iterator[Row]:
    """The rows that take back what stands on another day than its record. ``days``: of records just written, by id."""
    for name, rows in held.items():
        row = current(rows)
        day = days.get(name, row.day if row is not None else None)
        for one in rows:
            if one.is_record and one.day != day:
                yield Row(replace(one.entry, withdrawn=MOVED), one.day, one.version + 1)


def session_number(vm: str, runtime: str, session_id: str) -> int:
    """The number of a session: the same in every hub without asking anyone."""
    name = "\0".join((vm, runtime, session_id)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")


def cells(row: Row) -> dict[str, Any]:
    """A row as the table's columns; when it was received is added where it is written."""
    entry = row.entry
    return flat(entry) | {
        "day": row.day,
        "session_no": session_number(entry.vm, entry.runtime, entry.session_id),
        "version": str(row.version),
    }
