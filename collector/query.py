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

import orjson

from collector import windows
from collector.honesty import Counts, agree, combine, join_caveats
from collector.hub import trends
from collector.ledger import Contact, Entry, Group, Kind, Ledger, SecondPrice, SessionHead, Total, totals
from collector.ledger.totals import NOTHING
from collector.money import to_usd
from collector.rows import (
    BreakdownRow,
    CallRow,
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
from shim.line import TOKEN_CLASSES

ALL_RECORDS: Final = Filter()
MAX_DETAIL: Final = 1000
DAYS_PAGE: Final = 1000
GROUPS_PAGE: Final = 1000
SENT: Final = ("runtime", "upstream", "model")
# Fields that an entry and the row made of it have in common.
SHARED: Final = (
    "model",
    "model_source",
    "upstream",
    "wire",
    "service_tier",
    "grain",
    "source",
    "http_status",
    "stream",
    "duration_ms",
    "ttft_ms",
    "cost_pico",
)
Row = TypeVar("Row", ModelRow, RuntimeRow)
TOTAL_CLASSES: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
TOTAL_PLACES: Final = tuple(TOKEN_CLASSES.index(name) for name in TOTAL_CLASSES)


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
        contacts = self._contacts(told)
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

    def _contacts(self, contacts: Sequence[Contact]) -> dict[str, dict[str, Any]]:
        """What a hub knows of its VMs beside their records, as fields of ``VmRow``."""
        if not contacts:
            return {}
        now_ms = int(self.clock() * 1000)
        today = windows.number(self.calendar.today(self.clock()))
        runs = [(today + first, today + last) for first, last in (trends.BEFORE, *trends.LATEST)]
        before, *latest = self.ledger.uses(runs)
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
            calls = [_call(entry, second.get(entry.id)) for entry in entries[:limit]]
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
        return [_session(head, found[head.number], second.get(head.number, ())) for head in heads]


def sums(total: Total) -> dict[str, Any]:
    """The numbers of a row (the fields of ``rows.Sums``) from its total: the one place where sums get their worth."""
    known, cost = total.known, total.cost_pico if total.priced else None
    tokens = [count if some else None for count, some in zip(total.sums, known, strict=True)]
    status, source, basis, caveat = _worth(total.counted, total.priced)
    return {
        "calls": total.calls,
        "unknown_calls": total.unknown,
        "calls_without_tokens": total.without_tokens,
        **dict(zip(TOKEN_CLASSES, tokens, strict=True)),
        "total_tokens": sum(filter(None, map(tokens.__getitem__, TOTAL_PLACES))) if any(known) else None,
        "cost_usd": to_usd(cost),
        "cost_pico": cost,
        "cost_status": status,
        "cost_source": source,
        "cost_basis": basis,
        "cost_caveat": caveat,
        "acu": total.acu_micro / 10**6 if total.acu_known else None,
    }


@lru_cache(1024)  # a ledger has few kinds, and many sums are of the same ones
def _worth(counted: frozenset[Kind], priced: frozenset[Kind]) -> tuple[str, str | None, str | None, str | None]:
    """Status, source, basis and caveat of a sum by the kinds of its parts, and those of them that have a cost."""
    return (
        combine(Counts.of(kind.cost_status for kind in counted)),
        agree(kind.cost_source for kind in priced),
        agree(kind.cost_basis for kind in priced),
        join_caveats(kind.cost_caveat for kind in priced),
    )


def _costliest(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (-(row.cost_pico or 0), -(row.total_tokens or 0), -row.calls))


def _session(head: SessionHead, groups: Sequence[Group], second: Sequence[SecondPrice]) -> SessionRow:
    models = sorted({group.key[1] for group in groups if group.key[1] is not None})
    return SessionRow(
        session_id=head.session_id,
        session_ref=head.session_ref,
        vm=head.vm,
        runtime=head.runtime,
        model=head.model,
        models=tuple(models),
        model_source=head.model_source,
        started_at=iso(head.started_ms),
        ended_at=iso(head.ended_ms),
        parent_session_id=head.parent_session_id,
        source=head.source,
        ambiguous_calls=head.ambiguous,
        **_second_of(second),
        **sums(totals.total((), groups)),
    )


def _second_of(prices: Sequence[SecondPrice]) -> dict[str, Any]:
    """Second prices of a session as the fields of ``SessionRow``."""
    if not prices:
        return {}
    counts = Counts.of(price.estimate.kind.cost_status for price in prices)
    costs = [price.estimate.cost_pico for price in prices if price.estimate.cost_pico is not None]
    firsts = [price.first_pico for price in prices if price.first_pico is not None]
    return {
        "second_estimate_calls": len(prices),
        "second_estimate_at": iso(max(price.estimate.made_ms for price in prices)),
        "second_estimate_usd": to_usd(sum(costs)) if costs else None,
        "second_estimate_status": counts.status,
        "second_estimate_first_usd": to_usd(sum(firsts)) if firsts else None,
    }


def _call(entry: Entry, second: SecondPrice | None) -> CallRow:
    rates = orjson.loads(entry.rates) if entry.rates else None
    kind = entry.kind
    return CallRow(
        id=entry.id,
        at=iso(entry.ts_ms),
        session_ref=entry.session_ref,
        usage=kind.usage,
        outcome=kind.outcome,
        cost_usd=to_usd(entry.cost_pico),
        cost_status=kind.cost_status,
        cost_source=kind.cost_source,
        cost_basis=kind.cost_basis,
        cost_caveat=kind.cost_caveat,
        rates=rates,
        book=rates.get("book") if rates else None,
        **_second_price(second),
        **{name: getattr(entry.tokens, name) for name in TOKEN_CLASSES},
        **{name: getattr(entry, name) for name in SHARED},
    )


def _second_price(second: SecondPrice | None) -> dict[str, Any]:
    """A record's second price as the fields of ``CallRow``."""
    if second is None:
        return {}
    estimate = second.estimate
    return {
        "second_estimate_at": iso(estimate.made_ms),
        "second_estimate_usd": to_usd(estimate.cost_pico),
        "second_estimate_status": estimate.kind.cost_status,
        "second_estimate_caveat": estimate.kind.cost_caveat,
        "second_estimate_rates": orjson.loads(estimate.rates) if estimate.rates else None,
    }


@lru_cache(4096)
def _day(value: int | None) -> str | None:
    return None if value is None else windows.day(value).isoformat()


def _date(value: date | None) -> str | None:
    return None if value is None else value.isoformat()
