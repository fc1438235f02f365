"""Records expire and no total changes, in either engine."""

from dataclasses import replace
from datetime import date

import pytest

from collector.ledger import clickhouse_fold
from collector.query import ALL_RECORDS, Query
from collector.rows import Filter
from collector.windows import Window
from tests.ledger.records import line, ms, record

CUT = date(2026, 11, 10)
OLD, NEW = ms("2026-11-01T12:00:00+00:00"), ms("2026-11-20T12:00:00+00:00")
WORLD = [
    line(1, ts_ms=OLD),
    line(2, ts_ms=OLD, model="other", vm="vm1", cost=2**62),
    line(3, ts_ms=OLD, withdrawn="twin"),
    record(1, ts_ms=OLD),
    record(2, ts_ms=NEW),
    line(4, ts_ms=NEW),
    replace(record(3), ts_ms=None),
]


def answers(ledger):
    """Every total that a window may show."""
    query = Query(ledger, ledger.calendar, clock=lambda: NEW / 1000)
    narrow = [Filter(Window(None, CUT)), Filter(Window(date(2026, 11, 1), None)), Filter(model="other")]
    return query.total(), query.aggregates(), query.models(), [query.total(where) for where in narrow]


def test_totals_stay_when_records_expire(ledger):
    ledger.append(WORLD)
    before = answers(ledger)
    assert ledger.expire(CUT) == 4
    assert answers(ledger) == before
    assert {entry.id for entry in ledger.scan(ALL_RECORDS)} == {"boot-4", record(2).id, record(3).id}
    assert ledger.expire(CUT) == 0
    assert answers(ledger) == before


def test_what_has_expired_is_not_counted_again(ledger):
    ledger.append(WORLD)
    ledger.expire(CUT)
    before = answers(ledger)
    assert ledger.append(WORLD) == 0
    assert ledger.append([replace(WORLD[3], revision=9, cost_pico=1)]) == 0
    assert answers(ledger) == before


def test_a_record_that_comes_late_still_counts_and_expires_in_its_turn(ledger):
    ledger.append(WORLD)
    ledger.expire(CUT)
    calls = answers(ledger)[0].calls
    assert ledger.append([line(7, ts_ms=OLD), record(9, ts_ms=OLD)]) == 2
    before = answers(ledger)
    assert before[0].calls == calls + 2
    assert ledger.expire(CUT) == 2
    assert answers(ledger) == before
    assert ledger.append([*WORLD, line(7, ts_ms=OLD), record(9, ts_ms=OLD)]) == 0
    assert answers(ledger) == before


def test_new_records_take_no_number_of_an_expired_one(ledger):
    ledger.append([record(1, ts_ms=OLD)])
    ledger.expire(CUT)
    ledger.append([record(2, ts_ms=NEW)])
    assert ledger.append([record(1, ts_ms=OLD)]) == 0
    assert answers(ledger)[0].calls == 2


@pytest.mark.parametrize("statement", [0, 1, 2])
def test_a_fold_that_crashed_counts_nothing_twice(chdb, statement):
    chdb.append(WORLD)
    before = answers(chdb)
    done = []

    def run(text):
        if len(done) == statement:
            raise ConnectionError("killed")
        done.append(text)
        chdb.command(text)

    with pytest.raises(ConnectionError):
        clickhouse_fold.fold(chdb._ask, run, 20_767, chdb.folds(now=True))
    assert answers(chdb) == before
    assert chdb.expire(CUT) == 4
    assert answers(chdb) == before
