"""The SQLite ledger: one file in WAL mode, STRICT tables, one writing transaction at a time, any number of readers.

``synchronous=NORMAL`` in WAL mode: a power cut may lose the last transactions but never part of one, and never leaves
the file damaged (https://www.sqlite.org/pragma.html#pragma_synchronous). What is lost is read again from logs and
stores, because their positions are lost with it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

from collector import windows
from collector.ledger import (
    Contact,
    Entry,
    Group,
    LedgerError,
    SecondPrice,
    Seen,
    SessionHead,
    Total,
    Use,
    estimates,
    reads,
    reads_pages,
    reads_sessions,
    reads_sums,
)
from collector.ledger.append import append
from collector.ledger.interning import Numbers
from collector.ledger.migrations import migrate, refuse_foreign, refuse_newer
from collector.ledger.rollups import Rollups
from collector.ledger.schema import UNDATED
from collector.ledger.writer import SeenLines, Transaction
from collector.rows import Filter, GapRow, Page, QuarantineRow, RefusedRow, SourceRow

BUSY_MS: Final = 30_000
# A reader's questions touch few pages, and the system keeps the file's; a writer's indexes are worth more.
CACHE_KIB: Final = 12 * 1024
READER_CACHE_KIB: Final = 2 * 1024
# What comes in while a log is followed touches few pages too: 200 lines or 20,000 take the same with 3 MiB as with 12.
FOLLOWER_CACHE_KIB: Final = 4 * 1024
REMEDY: Final = (
    "move the file away and run `usage-collector ingest`: logs and stores are read again to the same ledger."
)


class SqliteLedger:
    """One ledger file. Not shared by threads: open one per thread; a reader opens it with ``read_only``."""

    def __init__(self, path: Path, zone_name: str | None = None, *, read_only: bool = False) -> None:
        """Open or make the ledger, migrate it, and count its days in ``zone_name`` (as it is, if not given).

        Raises ``LedgerError`` with a sentence: not a ledger, damaged, of a newer version, not readable or writable.
        """
        self.path = path
        self._db = _open(path, read_only=read_only)
        try:
            with _explained(path):
                refuse_foreign(self._db)
                if read_only:
                    refuse_newer(self._db)
                else:
                    migrate(self._db)
                    self._numbers = Numbers(self._db)
                    self._rollups = Rollups(self._db)
                    self._seen = SeenLines(self._db)
                    self._version = self._data_version()
                self.calendar = windows.Calendar(windows.zone_of(self.zone_name))
                if not read_only:
                    self._keep_zone(zone_name)
        except BaseException:
            self._db.close()
            raise

    @property
    def zone_name(self) -> str:
        """The IANA name of the zone in which this ledger counts days."""
        row = self._db.execute("SELECT value FROM setting WHERE name = 'zone'").fetchone()
        return str(row[0]) if row else "UTC"

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Everything written inside is committed together, or nothing if the block raises."""
        with _explained(self.path):
            self._db.execute("BEGIN IMMEDIATE")
        try:
            if (version := self._data_version()) != self._version:  # another process wrote: what we remember is old
                self._version = version
                self._seen.forget()
            transaction = Transaction(self._db, self._numbers, self._rollups, self._seen, self.calendar)
            yield transaction
            with _explained(self.path):
                transaction.finish()
                self._db.execute("COMMIT")
        except BaseException:
            self._numbers.forget()
            self._seen.forget()
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def append(self, entries: Iterable[Entry], *, keep_known: bool = False) -> int:
        """See ``Ledger.append``."""
        with self.transaction() as tx:
            return append(tx, entries, keep_known=keep_known)

    def groups(self, by: Sequence[str], where: Filter) -> list[Group]:
        """See ``Ledger.groups``."""
        return reads_sums.groups(self._db, by, where)

    def totals(self, by: Sequence[str], where: Filter) -> list[Total]:
        """See ``Ledger.totals``."""
        return reads_sums.totals(self._db, by, where)

    def by_day(self, by: Sequence[str], where: Filter, after: int | None, limit: int) -> tuple[list[Total], int | None]:
        """See ``Ledger.by_day``."""
        return reads_pages.by_day(self._db, by, where, after, limit)

    def by_vm(self, by: Sequence[str], where: Filter, start: str | None, limit: int) -> tuple[list[Group], str | None]:
        """See ``Ledger.by_vm``."""
        return reads_pages.by_vm(self._db, by, where, start, limit)

    def keys(self, by: Sequence[str], where: Filter) -> set[tuple[Any, ...]]:
        """See ``Ledger.keys``."""
        return reads_sums.keys(self._db, by, where)

    def sessions(self, where: Filter, page: Page) -> tuple[list[SessionHead], str | None]:
        """See ``Ledger.sessions``."""
        return reads_sessions.sessions(self._db, where, page, self.calendar)

    def find_session(self, vm: str | None, runtime: str | None, session_id: str) -> list[SessionHead]:
        """See ``Ledger.find_session``."""
        return reads_sessions.find_session(self._db, vm, runtime, session_id)

    def session_groups(self, sessions: Sequence[int], where: Filter) -> list[Group]:
        """See ``Ledger.session_groups``."""
        return reads_sums.session_groups(self._db, sessions, where)

    def records(self, session: int, limit: int) -> list[Entry]:
        """See ``Ledger.records``."""
        return reads.records(self._db, session, limit)

    def scan(self, where: Filter) -> Iterator[Entry]:
        """See ``Ledger.scan``."""
        return reads.scan(self._db, where, self.calendar)

    def changes(self, after: int, limit: int) -> tuple[int, list[Entry]]:
        """See ``Ledger.changes``."""
        return reads.changes(self._db, after, limit)

    def waiting(self, after: int) -> int:
        """How many records come after a cursor of ``changes``."""
        return reads.waiting(self._db, after)

    def first_waiting_day(self, after: int) -> int | None:
        """The first day of the records that come after a cursor of ``changes``, ``None`` where none does."""
        return reads.first_waiting_day(self._db, after)

    def contacts(self) -> list[Contact]:
        """See ``Ledger.contacts``."""
        return []

    def second_prices(self, sessions: Sequence[int], where: Filter) -> list[SecondPrice]:
        """See ``Ledger.second_prices``."""
        return estimates.of_sessions(self._db, sessions, where)

    def seen(self, by: str) -> list[Seen]:
        """See ``Ledger.seen``."""
        return reads.seen(self._db, by)

    def uses(self, runs: Sequence[tuple[int, int]], vm: str | None = None) -> list[dict[str, Use]]:
        """See ``Ledger.uses``."""
        return reads_sums.uses(self._db, runs, vm)

    def refused(self) -> list[RefusedRow]:
        """See ``Ledger.refused``."""
        return reads.refused(self._db)

    def refused_counts(self) -> dict[str, int]:
        """See ``Ledger.refused_counts``."""
        return reads.refused_counts(self._db)

    def gaps(self) -> list[GapRow]:
        """See ``Ledger.gaps``."""
        return reads.gaps(self._db)

    def sources(self) -> list[SourceRow]:
        """See ``Ledger.sources``."""
        return reads.sources(self._db)

    def quarantine(self, limit: int) -> list[QuarantineRow]:
        """See ``Ledger.quarantine``."""
        return reads.quarantine(self._db, limit)

    def select(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query, for upkeep and tests."""
        return self._db.execute(query, values).fetchall()

    def recount(self) -> None:
        """Make all rollups anew from the records; days whose records have expired stay as they are."""
        with self.transaction() as tx:
            tx.rollups.recount(self._expired_day())

    def expire(self, before: date) -> int:
        """Delete the records of days before ``before``; their rollups stay, so no total changes. How many went."""
        with self.transaction() as tx:
            day = windows.number(before)
            gone = tx.db.execute("DELETE FROM record WHERE day < ? AND day > ?", (day, UNDATED)).rowcount
            tx.db.execute("DELETE FROM estimate WHERE record NOT IN (SELECT id FROM record)")
            if day > self._expired_day():
                tx.db.execute("INSERT OR REPLACE INTO setting VALUES ('expired', ?)", (str(day),))
        return gone

    def _expired_day(self) -> int:
        """The first day whose records are all here."""
        row = self._db.execute("SELECT value FROM setting WHERE name = 'expired'").fetchone()
        return int(row[0]) if row else UNDATED + 1

    def check(self) -> str | None:
        """What SQLite's quick check finds wrong with the file, ``None`` if nothing; with the way back."""
        try:
            found = [row[0] for row in self._db.execute("PRAGMA quick_check(3)")]
        except sqlite3.DatabaseError as error:
            found = [str(error)]
        return None if found == ["ok"] else f"the ledger {self.path} is damaged ({'; '.join(found)}): {REMEDY}"

    def backup(self, target: Path) -> None:
        """A consistent copy of the ledger while it is being written (SQLite's online backup)."""
        with contextlib.closing(sqlite3.connect(target)) as copy:
            self._db.backup(copy, pages=4096)

    def ship(self, target: Path) -> None:
        """A compact copy in one file without a WAL (``VACUUM INTO``); ``target`` must not exist."""
        with _explained(target):
            self._db.execute("VACUUM INTO ?", (str(target),))

    def rest(self) -> None:
        """Let go of the pages held for the next statement, and hold fewer from now on: what there was is read."""
        self._db.execute(f"PRAGMA cache_size = -{FOLLOWER_CACHE_KIB}")
        self._db.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def _data_version(self) -> int:
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def _keep_zone(self, zone_name: str | None) -> None:
        """Count days in ``zone_name`` from now on; where they were counted in another zone, count them again."""
        row = self._db.execute("SELECT value FROM setting WHERE name = 'zone'").fetchone()
        if zone_name is None or (row and row[0] == zone_name):
            return
        calendar = self.calendar = windows.Calendar(windows.zone_of(zone_name))
        with self.transaction() as tx:
            tx.db.execute("INSERT OR REPLACE INTO setting VALUES ('zone', ?)", (zone_name,))
            if row:
                tx.db.create_function("local_day", 1, lambda ms: calendar.day(ms / 1000), deterministic=True)
                tx.db.execute("UPDATE record SET day = local_day(ts) WHERE ts IS NOT NULL")
                tx.rollups.recount(self._expired_day())


def _open(path: Path, *, read_only: bool) -> sqlite3.Connection:
    with _explained(path):
        if read_only:
            if not path.exists() or (path.is_file() and not path.stat().st_size):
                raise LedgerError(f"there is no ledger at {path} yet: run `usage-collector ingest`.")
            address = f"file:{_quoted(path)}?mode=ro{'&immutable=1' if _is_at_rest(path) else ''}"
            db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_MS / 1000)
        else:
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_MS / 1000)
            path.chmod(0o640)
        for pragma in (
            "journal_mode = WAL",
            "synchronous = NORMAL",
            f"cache_size = -{READER_CACHE_KIB if read_only else CACHE_KIB}",
            "temp_store = MEMORY",
        ):
            if not (read_only and pragma.startswith("journal")):
                db.execute(f"PRAGMA {pragma}")
        return db


def _is_at_rest(path: Path) -> bool:
    """Whether nobody writes and the reader may not make the files beside it that reading in WAL mode takes."""
    return not os.path.exists(f"{path}-wal") and not os.access(path.parent, os.W_OK)


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's and the system's errors as ``LedgerError`` sentences."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise LedgerError(
            f"the ledger {path} cannot be used ({error}): see permissions, disk space and VM_USAGE_DB."
        ) from error
    except sqlite3.DatabaseError as error:
        raise LedgerError(f"{path} is damaged or no ledger ({error}): {REMEDY}") from error
    except OSError as error:
        raise LedgerError(
            f"the ledger {path} cannot be used ({error.strerror}): see permissions and VM_USAGE_DB."
        ) from error
