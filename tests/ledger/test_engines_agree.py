"""Whatever is appended in whatever order, both engines hold the same records and sums."""

from __future__ import annotations

import itertools
import tempfile
from datetime import date
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.ledger.clickhouse_decide import Offer, Written, decide, rank
from collector.ledger.sqlite_fleet import SqliteFleet
from collector.query import ALL_RECORDS
from collector.rows import Filter
from collector.windows import Window
from shim.line import Tokens
from tests.ledger.conftest import ZONE
from tests.ledger.records import NOON, line, record

COUNTS = st.sampled_from([None, 0, 1, 10**13])
TOKENS = st.builds(Tokens, COUNTS, COUNTS, COUNTS, st.none(), COUNTS, st.none())
COSTS = st.sampled_from([None, 0, 1, 2**63 - 1])
DAY_MS = 86_400_000
# No time, two days of one month, and the month after.
TIMES = st.sampled_from([None, NOON, NOON + DAY_MS, NOON + 14 * DAY_MS])
WINDOWS = [
    Window(),
    Window(date(2026, 11, 19), None),
    Window(None, date(2026, 11, 18)),
    Window(None, date(2026, 11, 30)),
]
LINES = st.builds(
    lambda seq, tokens, cost, session, withdrawn, at: line(
        seq, cost=cost, tokens=tokens, session_id=session, withdrawn=withdrawn, ts_ms=at
    ),
    st.integers(1, 4), TOKENS, COSTS, st.sampled_from(["a", "b"]), st.sampled_from([None, "twin"]), TIMES,
)  # fmt: skip
RECORDS = st.builds(
    lambda number, tokens, vm, session, owner, revision, cost, at, withdrawn: record(
        number, tokens=tokens, vm=vm, session_id=session, owner_ms=owner, revision=revision, cost_pico=cost, ts_ms=at,
        withdrawn=withdrawn,
    ),
    st.integers(1, 3), TOKENS, st.sampled_from(["vm1", "vm2"]), st.sampled_from(["a", "b"]),
    st.sampled_from([NOON, NOON + 1]), st.integers(0, 2), COSTS, TIMES,
    st.sampled_from([None, "taken_back"]),
)  # fmt: skip
ENTRIES = st.lists(st.one_of(LINES, RECORDS), max_size=4, unique_by=lambda e: e.id)
APPENDS = st.lists(st.tuples(ENTRIES, st.booleans(), st.booleans()))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(APPENDS)
def test_both_engines_hold_the_same(chdb, appends):
    for table in ("record", "usage_day", "settled"):
        chdb.command(f"TRUNCATE TABLE {table}")
    chdb._settled = None
    with tempfile.TemporaryDirectory() as folder:
        sqlite = SqliteFleet(Path(folder) / "ledger.db", ZONE)
        for entries, keep_known, settle in appends:
            changed = [ledger.append(entries, keep_known=keep_known) for ledger in (sqlite, chdb)]
            assert changed[0] == changed[1]
            if settle:
                chdb.settle(date(2026, 12, 20))
        held = [sorted(ledger.scan(ALL_RECORDS), key=lambda entry: entry.id) for ledger in (sqlite, chdb)]
        assert held[0] == held[1]
        for by, window in itertools.product(((), ("vm", "model"), ("day", "source")), WINDOWS):
            told = [sorted(ledger.groups(by, Filter(window)), key=str) for ledger in (sqlite, chdb)]
            assert told[0] == told[1]
        sqlite.close()


# Calls that share an id are of different moments, and say what they say for good.
CLASHING = st.builds(
    lambda seq, moment: line(seq, ts_ms=NOON + moment, duration_ms=moment), st.integers(1, 2), st.integers(0, 3)
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(CLASHING, max_size=8), st.lists(CLASHING, max_size=8), st.randoms(use_true_random=False))
def test_of_calls_with_one_id_each_counts_once_whatever_came_first(chdb, mine, copy, random):
    """A VM and its copy saw the same calls in another order, and tell two hubs what they make of them in between."""
    chdb.command("TRUNCATE TABLE record")
    with tempfile.TemporaryDirectory() as folder:
        vms = [SqliteFleet(Path(folder) / f"{name}.db", ZONE) for name in ("one", "two")]
        sqlite = SqliteFleet(Path(folder) / "hub.db", ZONE)
        steps = [(vm, entry) for vm in vms for entry in random.sample([*mine, *copy], len(mine) + len(copy))]
        random.shuffle(steps)
        told = [0, 0]
        for place, (vm, entry) in enumerate(steps, 1):
            vm.append([entry])
            for number, one in enumerate(vms):
                if place == len(steps) or random.random() < 0.3:
                    told[number], entries = one.changes(told[number], 100)
                    for hub in (sqlite, chdb):
                        hub.append(entries)
        held = [{(e.id, e.ts_ms) for e in ledger.scan(ALL_RECORDS)} for ledger in (*vms, sqlite, chdb)]
        assert held[0] == held[1] == held[2] == held[3]
        calls = {(entry.id, entry.ts_ms) for entry in (*mine, *copy)}
        assert sorted(ts for _, ts in held[3]) == sorted(ts for _, ts in calls)
        for ledger in (*vms, sqlite):
            ledger.close()


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from("abc")), min_size=1, max_size=6), st.randoms())
def test_of_a_line_the_latest_place_in_the_journal_wins_in_any_order(told, draw):
    """Two hubs that do not see each other may write in any order; what ClickHouse keeps is the greatest version."""
    offers = [Offer(line(session_id=session), rank(1, place)) for place, session in dict(told).items()]
    latest = max(offers, key=lambda offer: offer.rank).entry
    draw.shuffle(offers)
    one_by_one = None
    for offer in offers:
        one_by_one = decide(offer, one_by_one) or one_by_one
    assert one_by_one.entry == latest
    blindly = [decide(offer, None) for offer in offers]
    assert max(blindly, key=lambda written: written.version).entry == latest
    assert isinstance(one_by_one, Written)
