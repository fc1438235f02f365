"""A record that moves to another day counts on one day, whatever is merged, and a window reads its own parts alone."""

import re
from datetime import date

import pytest

from collector.ledger import clickhouse
from collector.query import ALL_RECORDS, Query
from collector.rows import Filter
from collector.windows import UTC, Calendar, Window
from tests.ledger.records import NOON, line, record

DAY_MS = 86_400_000
PLACES = [NOON, NOON + 2 * DAY_MS, NOON + 20 * DAY_MS, None]  # two days of a month, one of the next, none


def moved(number, place):
    return record(1, revision=number, ts_ms=PLACES[place], tokens=record().tokens._replace(input_tokens=number))


def days_of(ledger):
    return {row.day: row.input_tokens for row in Query(ledger, Calendar(UTC)).aggregates()}


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("places", [(0, 1), (0, 2), (0, 1, 0), (0, 2, 0), (0, 3, 1), (2, 1, 0, 2), (3, 0, 3)])
def test_a_record_counts_on_the_day_of_its_latest_version(chdb, places, merged):
    for number, place in enumerate(places, 1):
        chdb.append([moved(number, place)])
        if merged:
            chdb.command("OPTIMIZE TABLE record FINAL")
    at = PLACES[places[-1]]
    assert days_of(chdb) == {None if at is None else day_of(at).isoformat(): len(places)}
    assert [entry.revision for entry in chdb.scan(ALL_RECORDS)] == [len(places)]
    for place in PLACES[:3]:
        window = Window(day_of(place), day_of(place))
        calls = sum(group.calls for group in chdb.groups((), Filter(window)))
        assert calls == (place == at)


def day_of(ms):
    return date.fromordinal(ms // DAY_MS + date(1970, 1, 1).toordinal())


def test_what_moved_is_told_once_as_it_is(chdb):
    chdb.append([moved(1, 0)])
    chdb.append([moved(2, 2)])
    assert [entry.revision for entry in chdb.changes(0, 10)[1]] == [2]
    assert chdb.append([moved(2, 2)]) == 0
    assert chdb.append([moved(1, 0)]) == 0


def test_what_moved_expires_once_and_leaves_nothing(chdb):
    chdb.append([moved(1, 0), line(1)])
    chdb.append([moved(2, 2)])
    cut = date(2026, 12, 1)
    assert chdb.expire(cut) == 1
    chdb.expire(cut)
    assert chdb.ask("SELECT id FROM record FINAL") == [(record().id,)]
    assert days_of(chdb) == {"2026-11-18": 100, "2026-12-08": 2}


def test_a_batch_that_was_cut_off_between_two_days_is_mended_when_it_comes_again(chdb, monkeypatch):
    chdb.append([moved(1, 0)])
    write = chdb._write

    def cut_off_after_the_record(table, rows):
        write(table, rows)
        raise ConnectionError("killed")

    with monkeypatch.context() as killed:
        killed.setattr(chdb, "_write", cut_off_after_the_record)
        with pytest.raises(ConnectionError):
            chdb.append([moved(2, 2)])
    assert chdb.append([moved(2, 2)]) == 0
    assert days_of(chdb) == {"2026-12-08": 2}


@pytest.mark.parametrize("order", [1, -1])
def test_two_hubs_that_write_one_record_at_once_leave_it_on_one_day(chdb, engine_folder, monkeypatch, order):
    """Both look before either has written; each looks again after it has."""
    hubs = [chdb, clickhouse.ClickHouseLedger(f"chdb://{engine_folder}", "Europe/Berlin")]
    offers = [moved(1, 0), moved(2, 2)][::order]
    for hub in hubs:
        hub._alone = False
        look = hub._held
        monkeypatch.setattr(hub, "_held", lambda ids, look=look, **how: look(ids, **how) if how else {})
    for hub, offer in zip(hubs, offers, strict=True):
        hub.append([offer])
    hubs[1].close()
    assert sum(group.calls for group in chdb.groups((), ALL_RECORDS)) == 1
    assert [entry.revision for entry in chdb.scan(ALL_RECORDS)] == [offers[-1].revision]


def test_a_window_reads_the_parts_of_its_days_alone(chdb):
    chdb.command("SYSTEM STOP MERGES record")
    for place in range(40):
        chdb.append([line(place + 1, ts_ms=NOON + place * DAY_MS)])
    last = day_of(NOON + 39 * DAY_MS)
    plan = chdb.ask(f"EXPLAIN indexes = 1 SELECT count() FROM record FINAL WHERE day >= {last.toordinal() - 719163}")
    chdb.command("SYSTEM START MERGES record")
    assert re.search(r"Parts: 1/40\b", "\n".join(row[0] for row in plan))
