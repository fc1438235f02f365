"""Days that are summed once: sums over all time read them and not every record again. Embedded engine only.

A day is settled while ``settled`` names the fold in ``usage_day`` that holds its sums; its records stay. This is exact,
merged or not: the day is part of a record's key, so what FINAL leaves of a day hangs on rows of that day alone, and a
day to which a row is written is unsettled before, durably. That needs one writer, which an embedded engine has. On a
server another hub may be between unsettling and writing, so nothing is settled there; a cluster has its shards.

Readers look up the finished folds first and the settled days after: a fold unsettles the days that it takes records
of before it is finished. Sums that hold no more stay for an hour, for readers that are under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any, Final

from collector import windows
from collector.ledger.clickhouse_fold import sums_of
from collector.ledger.clickhouse_reads import Ask, Folds
from collector.ledger.schema import UNDATED

# Today and yesterday change all day.
OPEN_DAYS: Final = 2
KEPT_US: Final = 3600 * 10**6
QUERY: Final = "SELECT day, fold, written FROM settled FINAL ORDER BY day"
# Sums of a month by every dimension may be a million groups; beyond this much they are sorted on disk.
GROUPING: Final = "max_bytes_before_external_group_by = 500000000"

Row = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Settled:
    """The rows of ``settled``: (day, fold or 0, when that was written in epoch microseconds)."""

    rows: tuple[Row, ...] = ()

    @property
    def days(self) -> list[int]:
        """The settled days in order."""
        return [day for day, fold, _ in self.rows if fold]

    @property
    def live(self) -> list[str]:
        """The conditions that a record's day is not settled: by runs of days, so that whole partitions are left out."""
        runs = groupby(enumerate(self.days), key=lambda place: place[1] - place[0])
        spans = [[day for _, day in run] for _, run in runs]
        return [f"(day < {span[0]} OR day > {span[-1]})" for span in spans]

    @property
    def kept(self) -> str:
        """The condition that a row of ``usage_day`` holds sums of a settled day."""
        pairs = ", ".join(f"({day}, {fold})" for day, fold, _ in self.rows if fold)
        return f"(day, fold) IN ({pairs})" if pairs else "0"

    def with_folds(self, days: Collection[int], fold: int) -> list[dict[str, Any]]:
        """What is written to give these days another fold, later than all that was written."""
        at = max((time.time_ns() // 1000, *(written + 1 for _, _, written in self.rows)))
        return [{"day": day, "fold": fold, "written": at} for day in sorted(days)]

    def after(self, changes: list[dict[str, Any]]) -> Settled:
        """As it is with changes."""
        found = {row[0]: row for row in self.rows}
        found |= {row["day"]: (row["day"], row["fold"], row["written"]) for row in changes}
        return Settled(tuple(found[day] for day in sorted(found)))


def settled(ask: Ask) -> Settled:
    """What is settled now."""
    return Settled(tuple((int(day), int(fold), int(at)) for day, fold, at in ask(QUERY, {})))


def sum_days(ask: Ask, run: Callable[[str], None], last: int, folds: Folds, now: Settled) -> tuple[int, list[int]]:
    """Sum the days until ``last`` that are not settled, of the latest month that has some.

    Gives the number of the fold and its days, to be written. A month at a time, as the writer does nothing else.
    """
    number = time.time_ns() // 1000
    until = [f"day > {UNDATED}", f"day <= {last}", *now.live]
    found = [row[0] for row in ask(f"SELECT DISTINCT day FROM record WHERE {' AND '.join(until)} ORDER BY day", {})]
    days = [day for day in found if _month(day) == _month(found[-1])]
    if days:
        among = f"day >= {days[0]} AND day <= {days[-1]} AND day IN ({', '.join(map(str, days))})"
        run(f"INSERT INTO usage_day {sums_of(number, f'{folds.counts} AND {among}')} SETTINGS {GROUPING}")
    return number, days


def _month(day: int) -> date:
    """The first day of a day's month, as the table is parted."""
    return windows.day(max(day, 0)).replace(day=1)


def clean(ask: Ask, run: Callable[[str], None], folds: Folds, now: Settled) -> None:
    """Delete sums that hold no more for an hour."""
    old = time.time_ns() // 1000 - KEPT_US
    stale = [f"fold < {old}", f"NOT ({now.kept})"]
    if folds.numbers:
        stale.append(f"fold NOT IN ({folds.listed})")
    if changed := [str(day) for day, _, written in now.rows if written >= old]:
        stale.append(f"day NOT IN ({', '.join(changed)})")
    chosen = " AND ".join(stale)
    if ask(f"SELECT count() FROM usage_day WHERE {chosen}", {})[0][0]:
        run(f"DELETE FROM usage_day WHERE {chosen}")
