"""The one query layer: CLI, API, page, MCP, metrics and exports all ask here, so they agree to the last digit.

It turns a ledger's groups into rows and decides, with ``collector.honesty`` alone, what each sum is worth. It knows no
SQL and no engine. All windows are whole local days of one calendar (``collector.windows``).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import lru_cache
from typing import Any, Final, TypeVar

from collector import windows
from collector.honesty import agree
from collector.hub import trends
from collector.ledger import Contact, Group, Ledger, SecondPrice, SessionHead, totals
from collector.ledger.totals import NOTHING
from collector.query_rows import call_row, session_row, sums
from collector.rows import (
    BreakdownRow,
    DayPage,
    DayRow,
    Filter,
    GapRow,
    ModelRow,
    Page,
    QuarantineRow,
    RefusedRow,
    RuntimeRow,
    SessionDetail,
    SessionPage,
    SessionRow,
    SourceRow,
    SummaryRow,
    TotalRow,
    VmRow,
    iso,
)

ALL_RECORDS: Final = Filter()
MAX_DETAIL: Final = 1000
DAYS_PAGE: Final = 1000
GROUPS_PAGE: Final = 1000
SENT: Final = ("runtime", "upstream", "model")
Row = TypeVar("Row", ModelRow, RuntimeRow)


class Query:
    """Answers over one ledger. ``clock`` gives epoch seconds and decides what today is."""

    def __init__(self, ledger: Ledger, calendar: windows.Calendar, clock: Callable[[], float] = time.time) -> None:
        self.ledger = ledger
        self.calendar = calendar
        self.clock = clock

    def window(self, name: str) -> windows.Window:
        """The named window as of now. Raises ``ValueError`` naming the allowed ones."""
        return windows.window(name, self.calendar.today(self.clock()))

    def total(self, where: Filter = ALL_RECORDS) -> TotalRow:
        """Everything the filter selects as one row."""
        return TotalRow(**self._sums(where))

    def aggregates(self, where: Filter = ALL_RECORDS) -> list[DayRow]:
        """One row per local day that has records, oldest first; what has no time comes before all days."""
        found = sorted(self.ledger.totals(("day",), where), key=totals.when)
        return [DayRow(day=_day(total.key[0]), **sums(total)) for total in found]

    def breakdown(
        self, by: str, where: Filter = ALL_RECORDS, limit: int = DAYS_PAGE, cursor: str | None = None
    ) -> DayPage:
        """One row per local day and ``runtime`` or ``model`` (``by``), oldest first: whole days, about ``limit`` rows.

        A day with more rows than that is a page of its own. Raises ``ValueError`` for a cursor that is none of ours.
        """
        after = None if cursor is None else windows.number(windows.date_of("cursor", cursor))
        found, following = self.ledger.by_day((by,), where, after, limit)
        names = [{"runtime": None, "model": None} | {by: total.key[1]} for total in found]
        rows = zip(found, names, strict=True)
        return DayPage(
            [BreakdownRow(day=_day(total.key[0]), **name, **sums(total)) for total, name in rows], _day(following)
        )

    def groups(self, where: Filter = ALL_RECORDS) -> Iterator[Group]:
        """The sums by vm, ``SENT`` and kind, VM after VM: what an OpenTelemetry export tells apart."""
        start: str | None = None
        while True:
            found, start = self.ledger.by_vm(SENT, where, start, GROUPS_PAGE)
            yield from found
            if start is None:
                return

    def models(self, where: Filter = ALL_RECORDS) -> list[ModelRow]:
        """One row per model, the costliest first."""
        return _costliest(
            ModelRow(model=total.key[0], **sums(total)) for total in self.ledger.totals(("model",), where)
        )

    def runtimes(self, where: Filter = ALL_RECORDS) -> list[RuntimeRow]:
        """One row per runtime, the costliest first."""
        found: dict[str, list[Group]] = {}
        for group in self.ledger.groups(("runtime", "source"), where):
            found.setdefault(group.key[0], []).append(group)
        seen = {one.name: one for one in self.ledger.seen("runtime")}
        rows = []
        for runtime, groups in found.items():
            known = seen.get(runtime)
            rows.append(
                RuntimeRow(
                    runtime=runtime,
                    source=agree(group.key[1] for group in groups),
                    sessions=known.sessions if known else 0,
                    last_seen=iso(known.last_ms) if known else None,
                    **sums(totals.total((runtime,), groups)),
                )
            )
        return _costliest(rows)

    def vms(self, where: Filter = ALL_RECORDS) -> list[VmRow]:
        """One row per VM by name; on a hub also those that are in touch and have no record."""
        found = {total.key[0]: total for total in self.ledger.totals(("vm",), where)}
        runtimes: dict[str, list[str]] = {}
        for vm, runtime in sorted(self.ledger.keys(("vm", "runtime"), where)):
            runtimes.setdefault(vm, []).append(runtime)
        seen = {one.name: one for one in self.ledger.seen("vm")}
        told = self.ledger.contacts()
        missing = Counter({one.vm: one.missing for one in told})
        for gap in () if told else self.ledger.gaps():
            missing[gap.vm] += gap.lines
        contacts = self._contacts([one for one in told if where.vm in (None, one.vm)], where.vm)
        rows = []
        for vm in sorted(found.keys() | (contacts.keys() if where == ALL_RECORDS else set())):
            known = seen.get(vm)
            rows.append(
                VmRow(
                    vm=vm,
                    runtimes=tuple(runtimes.get(vm, ())),
                    sessions=known.sessions if known else 0,
                    first_seen=iso(known.first_ms) if known else None,
                    last_seen=iso(known.last_ms) if known else None,
                    missing_lines=missing[vm],
                    **contacts.get(vm, {}),
                    **sums(found.get(vm, NOTHING)),
                )
            )
        return rows

    def _contacts(self, contacts: Sequence[Contact], vm: str | None) -> dict[str, dict[str, Any]]:
        """What a hub knows of its VMs (or of one) beside their records, as fields of ``VmRow``."""
        if not contacts:
            return {}
        now_ms = int(self.clock() * 1000)
        today = windows.number(self.calendar.today(self.clock()))
        runs = [(today + first, today + last) for first, last in (trends.BEFORE, *trends.LATEST)]
        before, *latest = self.ledger.uses(runs, vm)
        return {
            one.vm: {
                "last_contact": iso(one.last_ms),
                "version": one.version,
                "clock_skew_ms": one.skew_ms,
                "waiting": one.waiting,
                "refused": one.refused,
                "quarantined": one.quarantined,
                "trend": trends.trend(
                    before.get(one.vm), [use[one.vm] for use in latest if one.vm in use], one.last_ms, now_ms
                ),
            }
            for one in contacts
        }

    def summary(self, names: Sequence[str] = windows.WINDOWS, where: Filter = ALL_RECORDS) -> list[SummaryRow]:
        """One row per named window, all as of one instant."""
        today = self.calendar.today(self.clock())
        rows = []
        for name in names:
            span = windows.window(name, today)
            known = self._sums(replace(where, window=span))
            rows.append(SummaryRow(window=name, since=_date(span.since), until=_date(span.until), **known))
        return rows

    def sessions(self, where: Filter = ALL_RECORDS, page: Page | None = None) -> SessionPage:
        """One page of sessions. Raises ``ValueError`` for a cursor or sort that is none of ours."""
        heads, cursor = self.ledger.sessions(where, page or Page())
        return SessionPage(self._session_rows(heads, where), cursor)

    def session(
        self, session_id: str, vm: str | None = None, runtime: str | None = None, limit: int = MAX_DETAIL
    ) -> list[SessionDetail]:
        """Every session of that id with its records; more than one only where vm or runtime is left open."""
        details = []
        heads = self.ledger.find_session(vm, runtime, session_id)
        for head, row in zip(heads, self._session_rows(heads, ALL_RECORDS), strict=True):
            entries = self.ledger.records(head.number, limit + 1)
            second = {one.record: one for one in self.ledger.second_prices([head.number], ALL_RECORDS)}
            calls = [call_row(entry, second.get(entry.id)) for entry in entries[:limit]]
            details.append(SessionDetail(row, calls, len(entries) > limit))
        return details

    def refused(self) -> list[RefusedRow]:
        """What was refused and why, the commonest first."""
        return sorted(self.ledger.refused(), key=lambda row: (-row.count, row.reason, row.runtime, row.vm))

    def gaps(self) -> list[GapRow]:
        """Runs of usage lines that were written and never arrived."""
        return self.ledger.gaps()

    def sources(self) -> list[SourceRow]:
        """What is read, and how that went last time."""
        return self.ledger.sources()

    def quarantine(self, limit: int = 100) -> list[QuarantineRow]:
        """Lines that are no usage lines, newest first."""
        return self.ledger.quarantine(limit)

    def _sums(self, where: Filter) -> dict[str, Any]:
        """The numbers of everything that the filter selects."""
        return sums(next(iter(self.ledger.totals((), where)), NOTHING))

    def _session_rows(self, heads: Sequence[SessionHead], where: Filter) -> list[SessionRow]:
        found: dict[int, list[Group]] = {head.number: [] for head in heads}
        for group in self.ledger.session_groups(list(found), where):
            found[group.key[0]].append(group)
        second: dict[int, list[SecondPrice]] = {}
        for price in self.ledger.second_prices(list(found), where):
            second.setdefault(price.session, []).append(price)
        return [session_row(head, found[head.number], second.get(head.number, ())) for head in heads]


def _costliest(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (-(row.cost_pico or 0), -(row.total_tokens or 0), -row.calls))


@lru_cache(4096)
def _day(value: int | None) -> str | None:
    return None if value is None else windows.day(value).isoformat()


def _date(value: date | None) -> str | None:
    return None if value is None else value.isoformat()
