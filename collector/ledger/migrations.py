"""Migrations of the SQLite ledger: functions in order, each run once in a transaction, their names recorded.

A change of the schema is a new function at the end; none that was released is ever edited. A ledger that knows a
migration which this version does not was written by a newer version and is refused.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Final

from collector.ledger import LedgerError, history

Migration = Callable[[sqlite3.Connection], None]
MIGRATIONS: Final[list[Migration]] = []


def migration(function: Migration) -> Migration:
    """Append a migration; its name is its identity for ever."""
    if any(known.__name__ == function.__name__ for known in MIGRATIONS):
        raise ValueError(f"two migrations are called {function.__name__}")
    MIGRATIONS.append(function)
    return function


@migration
def m001_initial(db: sqlite3.Connection) -> None:
    """The first schema."""
    for statement in history.INITIAL:
        db.execute(statement)


@migration
def m002_fleet(db: sqlite3.Connection) -> None:
    """What a hub keeps of VMs, and a VM of its hub."""
    for statement in history.FLEET:
        db.execute(statement)


@migration
def m003_spans(db: sqlite3.Connection) -> None:
    """Sums by slice and span in the place of those by day, and totals of sessions; quarantined lines' ids."""
    for statement in history.SPANS:
        db.execute(statement)


@migration
def m004_slices(db: sqlite3.Connection) -> None:
    """The slices of one model are found without looking at those of every VM."""
    for statement in history.SLICES:
        db.execute(statement)


@migration
def m005_seen(db: sqlite3.Connection) -> None:
    """From when till when a VM's runtime was seen; from now on a record may be taken back (``withdrawn`` 3)."""
    for statement in history.SEEN:
        db.execute(statement)


def migrate(db: sqlite3.Connection, migrations: list[Migration] = MIGRATIONS) -> list[str]:
    """Bring a ledger to this version's schema; the names of what was applied now.

    ``db`` must be in autocommit mode. Raises ``LedgerError`` for a ledger of a newer version; it is left as it is.
    """
    refuse_newer(db, migrations)
    applied = []
    for function in migrations:
        db.execute("BEGIN IMMEDIATE")
        try:
            if function.__name__ not in names(db):
                function(db)
                db.execute(
                    "INSERT INTO migration (name, applied_at) VALUES (?, ?)", (function.__name__, int(time.time()))
                )
                applied.append(function.__name__)
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
    return applied


def refuse_newer(db: sqlite3.Connection, migrations: list[Migration] = MIGRATIONS) -> None:
    """Raise ``LedgerError`` if the ledger has migrations that this version does not know."""
    known = {function.__name__ for function in migrations}
    unknown = [name for name in names(db) if name not in known]
    if unknown:
        raise LedgerError(
            f"the ledger was written by a newer version (it has {unknown[-1]}): "
            "upgrade vm-usage, or give VM_USAGE_DB another file."
        )


def refuse_foreign(db: sqlite3.Connection) -> None:
    """Raise ``LedgerError`` if the file is another program's database: it is read no further and never written to."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if tables and "migration" not in tables:
        raise LedgerError("the database is another program's and no ledger: give VM_USAGE_DB another file.")


def names(db: sqlite3.Connection) -> list[str]:
    """Names of the migrations a ledger has, in order; empty for a new file."""
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migration'").fetchone():
        if db.in_transaction:
            db.execute("CREATE TABLE migration (name TEXT PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT")
        return []
    return [name for (name,) in db.execute("SELECT name FROM migration ORDER BY rowid")]
