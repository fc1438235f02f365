"""The ledger as a file: migrations, zones, two writers, damage, copies."""

from __future__ import annotations

import sqlite3
from datetime import date
from pathlib import Path

import pytest

from collector import windows
from collector.ingest_batch import BatchStep
from collector.ledger import LedgerError, migrations
from collector.ledger.migrations import migrate
from collector.ledger.schema import TABLES
from collector.ledger.sqlite import SqliteLedger
from collector.query import ALL_RECORDS, Query
from collector.rows import Filter
from collector.runtimes import Batch
from shim.line import Tokens
from tests.collector.worlds import ALLOWLIST, KEY, PRICED, PRICER, START, ZONE, record

COUNTS = Tokens(100, 20, 0, 0, 30, None)


def put(ledger: SqliteLedger, *records) -> None:
    with ledger.transaction() as tx:
        BatchStep(tx, "vm-1", ALLOWLIST, PRICER, [KEY]).take(Batch(records=list(records)))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "ledger.db"


@pytest.fixture
def ledger(path):
    found = SqliteLedger(path, ZONE)
    put(found, *(record(f"k{number}", START + number * 3600, COUNTS, PRICED, "s") for number in range(12)))
    yield found
    found.close()


def test_a_new_ledger_has_every_migration_and_opening_again_applies_none(path):
    SqliteLedger(path, ZONE).close()
    with sqlite3.connect(path, isolation_level=None) as db:
        assert migrations.names(db) == [function.__name__ for function in migrations.MIGRATIONS]
        assert migrate(db) == []
    db.close()


def test_every_table_is_strict(ledger):
    strict = dict(ledger.select("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'"))
    assert all(strict[table.name] for table in TABLES)


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(path):
    path.parent.mkdir()

    def m001_make(db):
        db.execute("CREATE TABLE one (x)")

    def m002_break(db):
        db.execute("CREATE TABLE two (x)")
        raise RuntimeError

    db = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(RuntimeError):
        migrate(db, [m001_make, m002_break])
    assert migrations.names(db) == ["m001_make"]
    assert not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'two'").fetchone()
    db.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_ledger_of_a_newer_version_is_refused_with_a_sentence_and_left_alone(path, read_only):
    SqliteLedger(path, ZONE).close()
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO migration VALUES ('m999_later', 0)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"newer version \(it has m999_later\): upgrade vm-usage"):
        SqliteLedger(path, ZONE, read_only=read_only)
    assert path.read_bytes() == before


def test_a_file_that_is_no_ledger_and_a_missing_one_get_a_sentence(path, tmp_path):
    path.parent.mkdir()
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(LedgerError, match="damaged or no ledger"):
        SqliteLedger(path, ZONE)
    with pytest.raises(LedgerError, match="there is no ledger"):
        SqliteLedger(tmp_path / "none.db", read_only=True)


def test_damage_is_found_and_the_way_back_named(ledger, tmp_path):
    assert ledger.check() is None
    shipped = tmp_path / "shipped.db"
    ledger.ship(shipped)
    (root,) = ledger.select("SELECT rootpage FROM sqlite_schema WHERE name = 'record_ts'")[0]
    (size,) = ledger.select("PRAGMA page_size")[0]
    with shipped.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    damaged = SqliteLedger(shipped, read_only=True)
    found = damaged.check()
    damaged.close()
    assert found is not None
    assert "is damaged" in found
    assert "run `usage-collector ingest`" in found


def test_another_zone_counts_the_days_again_and_keeps_every_call(ledger, path):
    before = Query(ledger, ledger.calendar)
    total = before.total()
    days = {row.day: row.calls for row in before.aggregates()}
    ledger.close()
    moved = SqliteLedger(path, "Pacific/Kiritimati")
    query = Query(moved, moved.calendar)
    assert query.total() == total
    assert {row.day: row.calls for row in query.aggregates()} != days
    for row in query.aggregates():
        span = windows.between(row.day, row.day)
        start, end = moved.calendar.bounds(span)
        inside = [entry for entry in moved.scan(ALL_RECORDS) if start <= entry.ts_ms / 1000 < end]
        assert row.calls == len(inside) == query.total(Filter(window=span)).calls
    moved.close()


def test_records_that_expire_leave_every_total_and_are_not_counted_when_read_again(ledger):
    query = Query(ledger, ledger.calendar)
    told = query.aggregates(), query.models(), query.total()
    assert ledger.expire(date(2026, 3, 29)) == 3
    assert (query.aggregates(), query.models(), query.total()) == told
    put(ledger, *(record(f"k{number}", START + number * 3600, COUNTS, PRICED, "s") for number in range(12)))
    ledger.recount()
    assert (query.aggregates(), query.models(), query.total()) == told
    assert len(list(ledger.scan(ALL_RECORDS))) == 9


def test_two_writers_number_and_dedupe_as_one(ledger, path):
    other = SqliteLedger(path)
    put(other, record("mine", START, COUNTS, PRICED, "other"), record("k1", START + 3600, COUNTS, PRICED, "s"))
    put(ledger, record("mine", START, COUNTS, PRICED, "other"), record("third", START, COUNTS, PRICED, "other"))
    put(other, record("fourth", START, COUNTS, PRICED, "s"))
    for one in (ledger, other):
        assert Query(one, one.calendar).total().calls == 15
    other.close()


def test_a_transaction_that_fails_writes_nothing_and_spoils_nothing(ledger):
    before = Query(ledger, ledger.calendar).total()
    with pytest.raises(RuntimeError), ledger.transaction() as tx:
        BatchStep(tx, "vm-9", ALLOWLIST, PRICER, []).take(Batch(records=[record("x", START, COUNTS, "new", "new")]))
        raise RuntimeError
    assert Query(ledger, ledger.calendar).total() == before
    put(ledger, record("x", START, COUNTS, "new", "new"))
    assert Query(ledger, ledger.calendar).total().calls == before.calls + 1


@pytest.mark.parametrize("way", ["backup", "ship"])
def test_a_copy_taken_while_a_reader_reads_says_the_same(ledger, tmp_path, way):
    told = Query(ledger, ledger.calendar).aggregates()
    getattr(ledger, way)(tmp_path / "copy.db")
    copy = SqliteLedger(tmp_path / "copy.db", read_only=True)
    assert Query(copy, copy.calendar).aggregates() == told
    copy.close()


def test_a_reader_sees_what_was_committed_and_is_not_blocked(ledger, path):
    reader = SqliteLedger(path, read_only=True)
    with ledger.transaction() as tx:
        BatchStep(tx, "vm-1", ALLOWLIST, PRICER, []).take(Batch(records=[record("x", START, COUNTS, PRICED, "s")]))
        assert Query(reader, reader.calendar).total().calls == 12
    assert Query(reader, reader.calendar).total().calls == 13
    reader.close()


def test_the_call_view_names_everything_for_people_with_a_shell(ledger):
    rows = ledger.select("SELECT runtime, model, cost_status, input_tokens, session_id FROM call")
    assert set(rows) == {("claude_code", PRICED, "exact", 100, "s")}


def test_ledger_files_are_for_their_owner_and_group(ledger, path):
    assert path.stat().st_mode & 0o777 == 0o640
    assert Path(path.parent).stat().st_mode & 0o007 == 0
