"""Days that are summed once: every answer stays what it was, whatever comes late, moves, expires or is cut off."""

from datetime import date

import pytest

from collector.ledger import clickhouse_settle
from collector.ledger.clickhouse_settle import Settled
from collector.query import ALL_RECORDS, Query
from collector.rows import Filter
from collector.windows import Window
from tests.ledger.records import NOON, line, record

DAY_MS = 86_400_000
TODAY = date(2026, 11, 28)
FIRST = date(2026, 11, 18)
WORLD = [line(seq, ts_ms=NOON + (seq - 21) * DAY_MS, model=f"m{seq % 2}", cost=2**62) for seq in range(1, 32)]


def answers(ledger):
    """Every total that a window may show."""
    query = Query(ledger, ledger.calendar, clock=lambda: (NOON + 10 * DAY_MS) / 1000)
    spans = [Window(FIRST, TODAY), Window(None, FIRST), Window(FIRST, FIRST), Window(date(2026, 11, 27), None)]
    wheres = [ALL_RECORDS, Filter(model="m1"), *map(Filter, spans)]
    return [(query.total(where), query.aggregates(where), query.models(where)) for where in wheres]


@pytest.fixture
def settled(chdb):
    chdb.append(WORLD)
    before = answers(chdb)
    assert settle_all(chdb) == len(WORLD) - 2
    assert answers(chdb) == before
    return chdb


def settle_all(ledger, today=TODAY):
    count = 0
    while found := ledger.settle(today):
        count += found
    return count


def test_a_month_at_a_time_is_summed_the_latest_first(chdb):
    chdb.append(WORLD)
    assert [chdb.settle(TODAY) for _ in range(3)] == [26, len(WORLD) - 2 - 26, 0]


def test_sums_of_settled_days_are_not_made_of_records(settled):
    before = answers(settled)
    settled.command("ALTER TABLE record DELETE WHERE day < 20783 SETTINGS mutations_sync = 2")
    assert answers(settled) == before


def test_nothing_is_summed_twice_and_today_and_yesterday_not_at_all(settled):
    assert settle_all(settled) == 0
    days = clickhouse_settle.settled(settled._ask).days
    assert (days[-1], len(days)) == (20_783, len(WORLD) - 2)
    assert settle_all(settled, date(2026, 11, 29)) == 1


@pytest.mark.parametrize("again", [False, True])
def test_what_comes_late_counts(settled, again):
    calls = answers(settled)[0][0].calls
    late = [line(99, ts_ms=NOON - 3 * DAY_MS, cost=1), record(ts_ms=NOON - 3 * DAY_MS)]
    settled.append(late)
    if again:
        assert settle_all(settled) == 1
    assert answers(settled)[0][0].calls == calls + 2


def test_what_moves_from_one_settled_day_to_another_counts_once(settled):
    settled.append([record(ts_ms=NOON)])
    settle_all(settled)
    before = answers(settled)[0]
    settled.append([record(revision=2, ts_ms=NOON - 2 * DAY_MS)])
    for _ in range(2):
        total, days, _ = answers(settled)[0]
        assert total == before[0]
        moved = {row.day: row.calls for row in days}
        assert (moved["2026-11-18"], moved["2026-11-16"]) == (1, 2)
        assert settle_all(settled) in (0, 2)


def test_settled_days_expire_and_totals_stay(settled):
    before = answers(settled)
    assert settled.expire(FIRST) == 21 - 1
    for _ in range(3):
        assert answers(settled) == before
        settle_all(settled)
        assert answers(settled) == before
        settled.expire(FIRST)


@pytest.mark.parametrize("statement", ["usage_day", "settled"])
def test_a_sum_that_was_cut_off_counts_nowhere(chdb, monkeypatch, statement):
    chdb.append(WORLD)
    before = answers(chdb)
    with monkeypatch.context() as killed:
        if statement == "usage_day":
            killed.setattr(chdb, "command", cut_off)
        else:
            killed.setattr(chdb, "_write_settled", cut_off)
        with pytest.raises(ConnectionError):
            settle_all(chdb)
    assert answers(chdb) == before
    settle_all(chdb)
    assert answers(chdb) == before


def cut_off(*_):
    raise ConnectionError("killed")


def test_a_write_that_fails_leaves_its_day_to_its_records(settled, monkeypatch):
    """The day is unsettled before: what is on the disk counts, whether the insert was whole or not."""
    before = answers(settled)
    write = settled._write

    def records_are_cut_off(table, rows):
        if table == "record":
            raise ConnectionError("killed")
        write(table, rows)

    monkeypatch.setattr(settled, "_write", records_are_cut_off)
    with pytest.raises(ConnectionError):
        settled.append([line(99, ts_ms=NOON)])
    assert answers(settled) == before
    assert 20_775 not in clickhouse_settle.settled(settled._ask).days


def test_sums_that_hold_no_more_are_deleted_when_nobody_can_be_reading_them(settled, monkeypatch):
    settled.append([line(99, ts_ms=NOON, model="m1")])
    settle_all(settled)
    held = "SELECT count() FROM usage_day WHERE day = 20775"
    assert settled.ask(held) == [(2,)]
    settle_all(settled)
    assert settled.ask(held) == [(2,)]
    monkeypatch.setattr(clickhouse_settle, "KEPT_US", 0)
    settle_all(settled)
    assert settled.ask(held) == [(1,)]
    assert settled.ask("SELECT count() FROM usage_day")[0][0] == len(WORLD) - 2


def test_a_clock_that_goes_back_does_not_keep_a_day_settled():
    ahead = 2**60
    now = Settled(((5, 7, ahead),))
    (row,) = now.with_folds([5], 0)
    assert row["written"] > ahead
    assert now.after([row]).days == []


def test_runs_of_days_are_conditions():
    now = Settled(((3, 9, 1), (4, 9, 1), (5, 0, 1), (7, 9, 1)))
    assert now.live == ["(day < 3 OR day > 4)", "(day < 7 OR day > 7)"]
    assert now.kept == "(day, fold) IN ((3, 9), (4, 9), (7, 9))"
    assert (Settled().live, Settled().kept) == ([], "0")
