"""History stays as it was, and a ledger that went through it is the one that a new ledger is."""

from __future__ import annotations

import hashlib
import re
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from collector.ledger import history, migrations
from collector.ledger.fleet_schema import HUB_TABLES, PUSH_REFUSED
from collector.ledger.migrations import MIGRATIONS, migrate
from collector.ledger.schema import SUMS, TABLES, statements
from collector.ledger.sqlite import SqliteLedger
from collector.query import Query
from tests.collector.worlds import ZONE, Vm, worlds

# What each migration says, word for word. A changed hash is changed history: write a new migration instead.
HISTORY = {
    "INITIAL": "165f89d05df02b89",
    "FLEET": "a2f52e735d1841bb",
    "SPANS": "4d0376c622db0834",
    "SLICES": "40c3118926042483",
    "SEEN": "8fb79ecf9bfc4f3b",
}


@pytest.mark.parametrize("name", HISTORY)
def test_history_is_not_rewritten(name):
    text = "\0".join(" ".join(statement.split()) for statement in getattr(history, name))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == HISTORY[name]


def test_migrations_are_those_that_were_and_in_their_order():
    assert [function.__name__ for function in MIGRATIONS][:5] == [
        "m001_initial",
        "m002_fleet",
        "m003_spans",
        "m004_slices",
        "m005_seen",
    ]


def described(db: sqlite3.Connection) -> dict[str, object]:
    """Tables by their columns, and everything else by its words."""
    found: dict[str, object] = {}
    for kind, name, text in db.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL"):
        if kind == "table":
            found[name] = db.execute("SELECT name, type, `notnull`, pk FROM pragma_table_info(?)", (name,)).fetchall()
        else:
            found[name] = re.sub(r"\s+", " ", text)
    return found


def test_the_migrations_make_what_the_tables_in_code_describe():
    migrated, written = (sqlite3.connect(":memory:", isolation_level=None) for _ in range(2))
    migrate(migrated)
    for statement in (*statements(), *(table.ddl() for table in (*HUB_TABLES, PUSH_REFUSED))):
        written.execute(statement)
    found = described(migrated)
    assert found.pop("migration")
    assert found == described(written)


def as_it_was(path: Path, ledger: SqliteLedger) -> None:
    """The same records as the first schema kept them: every table of then, and its rollup by day."""
    db = sqlite3.connect(path, isolation_level=None)
    migrate(db, MIGRATIONS[:2])
    db.execute("ATTACH ? AS now", (str(ledger.path),))
    for table in {name for (name,) in db.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'")}:
        names = ", ".join(row[0] for row in db.execute("SELECT name FROM pragma_table_info(?, 'main')", (table,)))
        if table not in ("migration", "usage_day"):
            db.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM now.{table}")
    sums = ", ".join(SUMS.values())
    db.execute(
        f"INSERT INTO usage_day SELECT day, shape, kind, {sums} FROM record WHERE withdrawn = 0 GROUP BY 1, 2, 3"
    )
    db.close()


def rows(ledger: SqliteLedger) -> dict[str, list[tuple[object, ...]]]:
    """Every table; slices by their names, because their numbers depend on which came first."""
    named = "level || ifnull(vm, '-') || ifnull(runtime, '-') || ifnull(source, '-') || ifnull(model, '-')"
    selects = {table.name: f"SELECT * FROM {table.name}" for table in TABLES}
    selects["slice"] = f"SELECT {named} || ifnull(upstream, '-') FROM slice"
    for table in ("usage_span", "shape_slice"):
        selects[table] = f"SELECT {named} || ifnull(upstream, '-'), {table}.* FROM {table} JOIN slice ON no = slice"
    found = {name: ledger.select(query) for name, query in selects.items()}
    for name, place in (("usage_span", 1), ("shape_slice", 2)):
        found[name] = [(*row[:place], *row[place + 1 :]) for row in found[name]]
    return {name: sorted(values, key=repr) for name, values in found.items()}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(alike=True))
def test_a_ledger_of_the_first_schema_becomes_what_a_new_one_is(world):
    with tempfile.TemporaryDirectory() as folder:
        machine = Vm(Path(folder))
        for delivery in world.deliveries:
            machine.take(delivery)
        as_it_was(Path(folder) / "old.db", machine.ledger)
        migrated = SqliteLedger(Path(folder) / "old.db", ZONE)
        assert migrations.names(migrated._db) == [function.__name__ for function in MIGRATIONS]
        told, expected = rows(migrated), rows(machine.ledger)
        expected["presence"] = [row for row in expected["presence"] if row[2]]
        assert told == expected
        queries = [Query(ledger, ledger.calendar, machine.query.clock) for ledger in (migrated, machine.ledger)]
        assert queries[0].summary() == queries[1].summary()
        assert queries[0].sessions() == queries[1].sessions()
        migrated.close()
        machine.ledger.close()
