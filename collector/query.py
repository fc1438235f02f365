"""The one query layer: CLI, API, page, MCP, metrics and exports all ask here, so they agree to the last digit.

It turns a ledger's groups into rows and decides, with ``collector.honesty`` alone, what each sum is worth. It knows no
SQL and no engine. All windows are whole local days of one calendar (``collector.windows``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Any, Final, TypeVar

import orjson

from collector import windows
from collector.honesty import Counts, agree, combine, join_caveats
from collector.hub import trends
from collector.ledger import Entry, Group, Ledger, SecondPrice, SessionHead
from collector.money import to_usd
from collector.rows import (
    BreakdownRow,
    CallRow,
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
NOTHING_KNOWN: Final = [0] * len(TOKEN_CLASSES)
TOTAL_CLASSES: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")


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
        return TotalRow(**sums(self.ledger.groups((), where)))

    def aggregates(self, where: Filter = ALL_RECORDS) -> list[DayRow]:
        """One row per local day that has records, oldest first; what has no time comes before all days."""
        found = _by_key(self.ledger.groups(("day",), where))
        days = sorted(found, key=lambda key: -(2**62) if key[0] is None else key[0])
        return [DayRow(day=_day(key[0]), **sums(found[key])) for key in days]

    def breakdown(self, by: str, where: Filter = ALL_RECORDS) -> list[BreakdownRow]:
        """One row per local day and ``runtime`` or ``model`` (``by``), oldest first."""
        found = _by_key(self.ledger.groups(("day", by), where))
        keys = sorted(found, key=lambda key: (-(2**62) if key[0] is None else key[0], key[1] or ""))
        names = [{"runtime": None, "model": None} | {by: key[1]} for key in keys]
        rows = zip(keys, names, strict=True)
        return [BreakdownRow(day=_day(key[0]), **name, **sums(found[key])) for key, name in rows]

    def models(self, where: Filter = ALL_RECORDS) -> list[ModelRow]:
        """One row per model, the costliest first."""
        found = _by_key(self.ledger.groups(("model",), where))
        return _costliest(ModelRow(model=key[0], **sums(groups)) for key, groups in found.items())

    def runtimes(self, where: Filter = ALL_RECORDS) -> list[RuntimeRow]:
        """One row per runtime, the costliest first."""
        found = _by_key(self.ledger.groups(("runtime", "source"), where), width=1)
        seen = {one.name: one for one in self.ledger.seen("runtime")}
        rows = []
        for (runtime,), groups in found.items():
            known = seen.get(runtime)
            rows.append(
                RuntimeRow(
                    runtime=runtime,
                    source=agree(group.key[1] for group in groups),
                    sessions=known.sessions if known else 0,
                    last_seen=iso(known.last_ms) if known else None,
                    **sums(groups),
                )
            )
        return _costliest(rows)

    def vms(self, where: Filter = ALL_RECORDS) -> list[VmRow]:
        """One row per VM by name; on a hub also those that are in touch and have no record."""
        found = _by_key(self.ledger.groups(("vm",), where))
        runtimes: dict[str, list[str]] = {}
        for vm, runtime in sorted(self.ledger.keys(("vm", "runtime"), where)):
            runtimes.setdefault(vm, []).append(runtime)
        seen = {one.name: one for one in self.ledger.seen("vm")}
        missing: dict[str, int] = {}
        for gap in self.ledger.gaps():
            missing[gap.vm] = missing.get(gap.vm, 0) + gap.lines
        contacts = self._contacts()
        rows = []
        for vm in sorted({key[0] for key in found} | (contacts.keys() if where == ALL_RECORDS else set())):
            groups, known = found.get((vm,), []), seen.get(vm)
            rows.append(
                VmRow(
                    vm=vm,
                    runtimes=tuple(runtimes.get(vm, ())),
                    sessions=known.sessions if known else 0,
                    first_seen=iso(known.first_ms) if known else None,
                    last_seen=iso(known.last_ms) if known else None,
                    missing_lines=missing.get(vm, 0),
                    **contacts.get(vm, {}),
                    **sums(groups),
                )
            )
        return rows

    def _contacts(self) -> dict[str, dict[str, Any]]:
        """What a hub knows of its VMs beside their records, as fields of ``VmRow``."""
        contacts = self.ledger.contacts()
        if not contacts:
            return {}
        now_ms, today = int(self.clock() * 1000), self.calendar.today(self.clock())
        days: dict[str, dict[int, int]] = {}
        last = windows.number(today)
        for vm, day, tokens in self.ledger.daily_tokens(last - trends.LOOK_BACK - 2, last):
            days.setdefault(vm, {})[day] = tokens
        return {
            one.vm: {
                "last_contact": iso(one.last_ms),
                "version": one.version,
                "clock_skew_ms": one.skew_ms,
                "waiting": one.waiting,
                "refused": one.refused,
                "quarantined": one.quarantined,
                "trend": trends.trend(days.get(one.vm, {}), last, one.last_ms, now_ms),
            }
            for one in contacts
        }

    def summary(self, names: Sequence[str] = windows.WINDOWS, where: Filter = ALL_RECORDS) -> list[SummaryRow]:
        """One row per named window, all as of one instant."""
        today = self.calendar.today(self.clock())
        rows = []
        for name in names:
            span = windows.window(name, today)
            groups = self.ledger.groups((), Filter(span, where.runtime, where.model, where.vm, where.source))
            rows.append(SummaryRow(window=name, since=_date(span.since), until=_date(span.until), **sums(groups)))
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

    def _session_rows(self, heads: Sequence[SessionHead], where: Filter) -> list[SessionRow]:
        found: dict[int, list[Group]] = {head.number: [] for head in heads}
        for group in self.ledger.session_groups(list(found), where):
            found[group.key[0]].append(group)
        second: dict[int, list[SecondPrice]] = {}
        for price in self.ledger.second_prices(list(found), where):
            second.setdefault(price.session, []).append(price)
        return [_session(head, found[head.number], second.get(head.number, ())) for head in heads]


def sums(groups: Sequence[Group]) -> dict[str, Any]:
    """The numbers of a row (the fields of ``rows.Sums``) from its groups: the one place where sums get their worth."""
    known = [sum(column) for column in zip(*(group.known for group in groups), strict=True)] or NOTHING_KNOWN
    totals = [sum(column) for column in zip(*(group.sums for group in groups), strict=True)] or NOTHING_KNOWN
    tokens = {name: total if some else None for name, total, some in zip(TOKEN_CLASSES, totals, known, strict=True)}
    parts = [tokens[name] for name in TOTAL_CLASSES]
    counted = [group for group in groups if group.kind.counted]
    counts = _counts(counted)
    priced = [group for group in counted if group.priced]
    cost = sum(group.cost_pico for group in priced) if priced else None
    acu = sum(group.acu_micro for group in groups) if any(group.acu_known for group in groups) else None
    return {
        "calls": sum(group.calls for group in groups),
        "unknown_calls": counts.unknown_calls,
        "calls_without_tokens": sum(group.without_tokens for group in counted),
        **tokens,
        "total_tokens": sum(part for part in parts if part is not None) if any(known) else None,
        "cost_usd": to_usd(cost),
        "cost_pico": cost,
        "cost_status": combine(counts),
        "cost_source": agree(group.kind.cost_source for group in priced),
        "cost_basis": agree(group.kind.cost_basis for group in priced),
        "cost_caveat": join_caveats(group.kind.cost_caveat for group in priced),
        "acu": None if acu is None else acu / 10**6,
    }


def _counts(groups: Iterable[Group]) -> Counts:
    found = {f"n_{status}": 0 for status in ("exact", "estimated", "partial", "tokens_only", "unavailable")}
    for group in groups:
        found[f"n_{group.kind.cost_status}"] += group.calls
    return Counts(**found)


def _by_key(groups: Iterable[Group], width: int | None = None) -> dict[tuple[Any, ...], list[Group]]:
    """Groups by the first ``width`` dimensions of their key."""
    found: dict[tuple[Any, ...], list[Group]] = {}
    for group in groups:
        found.setdefault(group.key[:width], []).append(group)
    return found


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
        **sums(groups),
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


def _day(value: int | None) -> str | None:
    return None if value is None else windows.day(value).isoformat()


def _date(value: date | None) -> str | None:
    return None if value is None else value.isoformat()
