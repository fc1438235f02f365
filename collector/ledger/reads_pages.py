"""Sums a page at a time: whole days or whole VMs in order, as many as make a page, without reading the rest."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from collector.ledger import Group, Total, spans
from collector.ledger.reads_sums import choose, groups, keys, one_state, summed
from collector.ledger.schema import UNDATED
from collector.ledger.totals import whole_days
from collector.rows import Filter

# Looking a VM up costs something however little it has.
MAX_VMS: Final = 32


def by_day(
    db: sqlite3.Connection, by: Sequence[str], where: Filter, after: int | None, limit: int
) -> tuple[list[Total], int | None]:
    """See ``Ledger.by_day``."""
    keyed = ("day", *by)
    with one_state(db):
        chosen = choose(db, keyed, where)
        if chosen is None:
            return [], None
        numbers = sorted(UNDATED if day is None else day for (day,) in keys(db, ("day",), where))
        there = [day for day in numbers if after is None or day >= after]
        # no day has more totals than all days have keys; where they have fewer, more days make a page
        at, step = 0, max(1, limit // max(1, len(keys(db, by, where))))
        found: list[Total] = []
        while at < len(there) and len(found) <= limit // 2:
            run = (spans.BY_DAY, there[at], there[min(at + step, len(there)) - 1])
            found += summed(db, keyed, replace(chosen, runs=(run,)))
            at, step = at + step, 2 * step
    shown = whole_days(found, limit)
    last = UNDATED - 1 if not shown else UNDATED if shown[-1].key[0] is None else shown[-1].key[0]
    return shown, next((day for day in there if day > last), None)


def by_vm(
    db: sqlite3.Connection, by: Sequence[str], where: Filter, start: str | None, limit: int
) -> tuple[list[Group], str | None]:
    """See ``Ledger.by_vm``."""
    found: list[Group] = []
    with one_state(db):
        there = sorted(vm for (vm,) in keys(db, ("vm",), where) if start is None or vm >= start)
        for place, vm in enumerate(there):
            own = groups(db, ("vm", *by), replace(where, vm=vm))
            if found and (len(found) + len(own) > limit or place == MAX_VMS):
                return found, vm
            found += own
    return found, None
