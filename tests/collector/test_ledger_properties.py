"""The ledger's promises over random worlds (CONTRACTS 6): once each, in any order, as often as you like."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.honesty import STATUSES
from collector.rows import Filter, Page
from collector.windows import Window
from shim.line import TOKEN_CLASSES
from tests.collector.worlds import ALLOWLIST, Vm, worlds

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
    """All time before, on and after the second day that has records."""
    days = [row.day for row in machine.query.aggregates()]
    middle = date.fromisoformat(days[len(days) // 2])
    return Window(None, middle - timedelta(1)), Window(middle, middle), Window(middle + timedelta(1), None)


@FEW
@given(worlds(alike=True))
def test_rollups_equal_a_recount(world):
    tables = ("usage_day", "usage_session")
    with vm(world.deliveries) as machine:
        kept = [sorted(machine.ledger.select(f"SELECT * FROM {table}")) for table in tables]
        sessions = machine.ledger.select("SELECT * FROM session ORDER BY no")
        machine.ledger.recount()
        assert [sorted(machine.ledger.select(f"SELECT * FROM {table}")) for table in tables] == kept
        assert machine.ledger.select("SELECT * FROM session ORDER BY no") == sessions


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
