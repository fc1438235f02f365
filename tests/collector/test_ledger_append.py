"""A second ledger fed from the first one's journal holds the same: what a hub relies on."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.ledger import Ledger
from collector.ledger.sqlite import SqliteLedger
from collector.query import ALL_RECORDS
from tests.collector.worlds import ZONE, Vm, worlds


def push(source: Ledger, target: Ledger, cursor: int, limit: int) -> int:
    """Send everything after a cursor, each batch twice."""
    while True:
        after, entries = source.changes(cursor, limit)
        if after == cursor:
            return cursor
        target.append(entries)
        assert target.append(entries) == 0
        cursor = after


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(alike=True), st.integers(1, 5), st.integers(0, 10))
def test_a_ledger_fed_from_the_journal_holds_the_same(world, limit, stop):
    with tempfile.TemporaryDirectory() as folder:
        machine = Vm(Path(folder))
        hub: Ledger = SqliteLedger(Path(folder) / "hub.db", ZONE)
        cursor = 0
        for place, delivery in enumerate(world.deliveries):
            machine.take(delivery)
            if place >= stop:
                cursor = push(machine.ledger, hub, cursor, limit)
        push(machine.ledger, hub, cursor, limit)
        for by in (("day",), ("runtime", "model"), ("vm", "source", "upstream")):
            told = sorted(machine.ledger.groups(by, ALL_RECORDS), key=str)
            assert sorted(hub.groups(by, ALL_RECORDS), key=str) == told
        entries = [sorted(ledger.scan(ALL_RECORDS), key=lambda entry: entry.id) for ledger in (machine.ledger, hub)]
        assert entries[0] == entries[1]
        machine.ledger.close()
        hub.close()
