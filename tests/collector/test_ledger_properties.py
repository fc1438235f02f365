"""The ledger's promises over random worlds (CONTRACTS 6): once each, in any order, as often as you like."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.honesty import STATUSES
from collector.hub import fleet
from collector.ledger import reads_pages, reads_sessions
from collector.ledger.totals import of_groups, when
from collector.query import ALL_RECORDS
from collector.rows import SORTS, Filter, Page
from collector.windows import ALL, Window
from shim.line import TOKEN_CLASSES
from tests.collector.worlds import ALLOWLIST, PRICED, UNPRICED, Vm, worlds

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@contextmanager
def vm(deliveries=()):
    with tempfile.TemporaryDirectory() as folder:
        machine = Vm(Path(folder))
        try:
            for delivery in deliveries:
                machine.take(delivery)
            yield machine
        finally:
            machine.ledger.close()


@FEW
@given(worlds(), st.randoms(use_true_random=False))
def test_every_call_is_counted_once_whatever_the_order(world, random):
    random.shuffle(world.deliveries)
    with vm(world.deliveries) as machine:
        rows = {row.runtime: row for row in machine.query.runtimes()}
        assert {name: row.calls for name, row in rows.items()} == dict(world.calls)
        assert {name: row.total_tokens or 0 for name, row in rows.items()} == {
            name: world.tokens[name] for name in world.calls
        }


@FEW
@given(worlds(alike=True), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(world, random):
    with vm(world.deliveries) as machine:
        told = machine.facts()
    random.shuffle(world.deliveries)
    with vm(world.deliveries) as machine:
        assert machine.facts() == told


@FEW
@given(worlds(alike=True))
def test_what_is_delivered_again_changes_nothing(world):
    with vm(world.deliveries) as machine:
        told = machine.facts()
        for delivery in world.deliveries:
            machine.take(delivery)
        assert machine.facts() == told


@FEW
@given(worlds())
def test_sums_over_any_partition_equal_the_total(world):
    numbers = ("calls", "unknown_calls", *TOKEN_CLASSES, "cost_pico")
    with vm(world.deliveries) as machine:
        query = machine.query
        total = query.total()
        partitions = (
            query.aggregates(),
            query.models(),
            query.runtimes(),
            query.vms(),
            query.sessions(page=Page(limit=1000)).rows,
            [query.total(Filter(source=source)) for source in ("log", "vendor")],
            [query.total(Filter(window=span)) for span in around(machine)],
        )
        for rows in partitions:
            for name in numbers:
                assert sum(getattr(row, name) or 0 for row in rows) == (getattr(total, name) or 0), name


def around(machine):
    """All time before, on and after the second day that has records, or any where all were taken back."""
    days = [row.day for row in machine.query.aggregates()] or ["2026-08-23"]
    middle = date.fromisoformat(days[len(days) // 2])
    return Window(None, middle - timedelta(1)), Window(middle, middle), Window(middle + timedelta(1), None)


@FEW
@given(worlds(alike=True))
def test_rollups_equal_a_recount(world):
    tables = ("usage_span", "usage_session")
    with vm(world.deliveries) as machine:
        kept = [sorted(machine.ledger.select(f"SELECT * FROM {table}")) for table in tables]
        sessions = machine.ledger.select("SELECT * FROM session ORDER BY no")
        shown = """SELECT vm, runtime, count(*), min(ifnull(first, started)), max(ifnull(last, ended)) FROM session
            WHERE listed OR calls GROUP BY vm, runtime"""
        assert machine.ledger.select("SELECT * FROM presence WHERE sessions ORDER BY vm, runtime") == sorted(
            machine.ledger.select(shown)
        )
        machine.ledger.recount()
        assert [sorted(machine.ledger.select(f"SELECT * FROM {table}")) for table in tables] == kept
        assert machine.ledger.select("SELECT * FROM session ORDER BY no") == sessions


DAYS = st.sampled_from([None, date(2026, 3, 28), date(2026, 3, 29)])
FILTERS = st.builds(
    Filter,
    st.builds(Window, DAYS, DAYS),
    st.sampled_from([None, "picoclaw", "claude_code"]),
    st.sampled_from([None, PRICED, UNPRICED]),
    st.sampled_from([None, "vm-1", "vm-2"]),
    st.sampled_from([None, "log", "vendor"]),
)


def chosen(machine, where):
    """The records that a filter selects, by looking at each."""
    first, last = where.window.first, where.window.last
    for entry in machine.ledger.scan(ALL_RECORDS):
        day = None if entry.ts_ms is None else machine.ledger.calendar.day(entry.ts_ms / 1000)
        in_window = where.window == ALL or (
            day is not None and (first is None or day >= first) and (last is None or day <= last)
        )
        names = ("runtime", "model", "vm", "source")
        if in_window and all(getattr(where, name) in (None, getattr(entry, name)) for name in names):
            yield entry, day


@FEW
@given(worlds(), FILTERS, st.sets(st.sampled_from(("day", "runtime", "model", "vm", "source", "upstream"))))
def test_every_question_is_answered_as_by_looking_at_each_record(world, where, by):
    by = sorted(by)
    with vm(world.deliveries) as machine:
        expected = Counter()
        for entry, day in chosen(machine, where):
            key = tuple(day if name == "day" else getattr(entry, name) for name in by)
            expected[key, "calls"] += 1
            expected[key, "cost"] += entry.cost_pico or 0
            expected[key, "output"] += entry.tokens.output_tokens or 0
        told = Counter()
        for group in machine.ledger.groups(by, where):
            told[group.key, "calls"] += group.calls
            told[group.key, "cost"] += group.cost_pico
            told[group.key, "output"] += group.sums[TOKEN_CLASSES.index("output_tokens")]
        assert +told == +expected
        if by:
            assert machine.ledger.keys(by, where) == {key for key, _ in expected}
        totals = {total.key: total for total in machine.ledger.totals(by, where)}
        assert totals == {total.key: total for total in of_groups(machine.ledger.groups(by, where))}
        exported = list(machine.ledger.scan(where))
        assert {entry.id for entry in exported} == {entry.id for entry, _ in chosen(machine, where)}


@FEW
@given(worlds(), FILTERS, st.sampled_from(("runtime", "model")), st.integers(1, 12))
def test_pages_of_days_are_all_days_in_order_each_whole_and_once(world, where, by, limit):
    with vm(world.deliveries) as machine:
        whole = sorted(machine.ledger.totals(("day", by), where), key=when)
        found, cursor = [], None
        while True:
            page = machine.query.breakdown(by, where, limit, cursor)
            days = {row.day for row in page.rows}
            assert len(page.rows) <= limit or len(days) == 1
            assert not days & {row.day for row in found}
            found += page.rows
            cursor = page.next_cursor
            if cursor is None:
                break
        days = machine.query.aggregates(where)
        assert [getattr(row, by) for row in found] == [total.key[1] for total in whole]
        assert [row.calls for row in found] == [total.calls for total in whole]
        assert list(dict.fromkeys(row.day for row in found)) == [row.day for row in days]


@FEW
@given(worlds(), FILTERS, st.integers(1, 12), st.sampled_from([1, 32]))
def test_pages_of_vms_are_all_groups_once_each_vm_whole(world, where, limit, most):
    with vm(world.deliveries) as machine, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reads_pages, "MAX_VMS", most)
        found, start = [], None
        while True:
            page, start = machine.ledger.by_vm(("runtime", "model"), where, start, limit)
            vms = {group.key[0] for group in page}
            assert len(page) <= limit or len(vms) == 1
            assert not vms & {group.key[0] for group in found}
            found += page
            if start is None:
                break
        assert found == sorted(found, key=lambda group: group.key[0])
        whole = machine.ledger.groups(("vm", "runtime", "model"), where)
        assert sorted(found, key=str) == sorted(whole, key=str)


@FEW
@given(worlds())
def test_what_is_refused_is_counted_as_it_is_listed(world):
    with vm(world.deliveries) as machine:
        assert machine.ledger.refused_counts() == fleet.counts(machine.ledger.refused())


@FEW
@given(worlds(), FILTERS, st.sampled_from(SORTS), st.sampled_from([0, 2, 1000]))
def test_pages_are_the_sessions_in_order_however_they_are_found(world, where, sort, few):
    with vm(world.deliveries) as machine, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reads_sessions, "FEW", few)
        patch.setattr(reads_sessions, "BATCH", 1)
        patch.setattr(reads_sessions, "MAX_BATCH", 2)
        sums = {}
        for entry, _ in chosen(machine, where):
            key = (entry.runtime, entry.session_id)
            cost, tokens, calls = sums.get(key, (0, 0, 0))
            sums[key] = (cost + (entry.cost_pico or 0), tokens + (entry.tokens.total or 0), calls + 1)
        page, rows = Page(2, None, sort), []
        while True:
            found = machine.query.sessions(where, page)
            rows += found.rows
            if found.next_cursor is None:
                break
            page = Page(2, found.next_cursor, sort)
        keys = [(row.runtime, row.session_id) for row in rows]
        assert len(set(keys)) == len(keys)
        if sort == "recent":
            assert sums.keys() <= set(keys)
            assert [row.ended_at or row.started_at for row in rows] == sorted(
                (row.ended_at or row.started_at for row in rows), reverse=True
            )
            return
        place = ("cost", "tokens", "calls").index(sort)
        told = [sums[key][place] // (10**6 if sort == "cost" else 1) for key in keys]
        assert set(keys) == sums.keys()
        assert told == sorted(told, reverse=True)


@FEW
@given(worlds())
def test_no_record_has_two_sources_and_no_status_beats_its_worst_part(world):
    with vm(world.deliveries) as machine:
        entries = machine.facts()["records"]
        assert len({entry.id for entry in entries}) == len(entries)
        for entry in entries:
            if entry.tokens.known:
                assert entry.source == ("log" if entry.runtime in ALLOWLIST.token_blind else "vendor")
        for row in machine.query.sessions(page=Page(limit=1000)).rows:
            parts = [entry.kind.cost_status for entry in entries if entry.session_id == row.session_id]
            if any(part in ("tokens_only", "unavailable", "partial") for part in parts):
                assert STATUSES.index(row.cost_status) >= STATUSES.index("partial")
