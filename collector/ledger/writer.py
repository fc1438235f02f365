"""What one transaction writes: records with their rollups and journal, refusals, quarantine, positions.

Everything that a step of the ingest learned is committed together or not at all, so a crash at any point and a restart
end in the same ledger. ``Transaction`` is handed out by ``SqliteLedger.transaction`` and is of no use after it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from collector.ledger.interning import Numbers
from collector.ledger.rollups import Rollups, Run, runs
from collector.ledger.schema import BY_NAME, RECORD, SEQ_BITS
from collector.ledger.tally import Tally
from collector.merge import Version
from collector.ranges import RangeSet
from collector.windows import Calendar
from shim.line import TOKEN_CLASSES

EXAMPLES: Final = 5
MAX_BOOTS: Final = 5_000
CHUNK: Final = 500
INSERT_RECORD: Final = f"INSERT INTO record VALUES ({', '.join('?' * len(RECORD))})"
# What a usage line fills; its session is at first its opaque reference.
LINE: Final = tuple(name for name in RECORD if name not in ("ref", "acu", "ended", "withdrawn"))
INSERT_LINE: Final = f"""INSERT INTO record ({", ".join(LINE)}, ref, withdrawn)
    VALUES ({", ".join(f"?{place}" for place in range(1, len(LINE) + 1))}, ?{LINE.index("session") + 1}, 0)"""
REPLACE_RECORD: Final = f"INSERT OR REPLACE INTO record VALUES ({', '.join('?' * len(RECORD))})"

# One row of ``record`` in the order of its columns.
Row = tuple[Any, ...]
AT: Final = {name: place for place, name in enumerate(RECORD)}


@dataclass(frozen=True, slots=True)
class Stored:
    """A store's record that the ledger has: its number, version, vm and row."""

    id: int
    version: Version
    vm: str
    row: Row


class Listing(NamedTuple):
    """What a store's list says of a session; times in epoch ms."""

    started: int | None
    ended: int | None
    model: str | None
    model_source: str
    parent: str | None


# Two lists of one session (two homes, an older copy) give the same whichever is read first.
LIST_SESSION: Final = """UPDATE session SET listed = 1,
    model_source = CASE WHEN ?3 IS NULL OR (model IS NOT NULL AND (ifnull(ended, -1), model) > (ifnull(?2, -1), ?3))
        THEN model_source ELSE ?4 END,
    model = CASE WHEN ?3 IS NULL OR (model IS NOT NULL AND (ifnull(ended, -1), model) > (ifnull(?2, -1), ?3))
        THEN model ELSE ?3 END,
    started = min(ifnull(started, ?1), ifnull(?1, started)), ended = max(ifnull(ended, ?2), ifnull(?2, ended)),
    parent = min(ifnull(parent, ?5), ifnull(?5, parent)) WHERE no = ?6"""


NOTE_COPY: Final = """INSERT OR IGNORE INTO copy SELECT ?1, ?2, (
    SELECT record.ts FROM vendor JOIN record ON record.id = vendor.id WHERE vendor.key = ?1)"""


class SeenLines:
    """Which lines of each boot were read, as runs; loaded when asked for, written back at the commit."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._sets: dict[int, RangeSet] = {}
        self._stored: dict[int, frozenset[Run]] = {}
        self._touched: set[int] = set()

    def forget(self) -> None:
        """Drop what is remembered: another process wrote, or the transaction was rolled back."""
        self._sets.clear()
        self._stored.clear()
        self._touched.clear()

    def of(self, boot: int) -> RangeSet:
        """The lines of one boot, to be added to in this transaction."""
        known = self._sets.get(boot)
        if known is None:
            known = self._load(boot)
        self._touched.add(boot)
        return known

    def flush(self) -> None:
        """Write the runs that changed."""
        for boot in self._touched:
            now = frozenset(self._sets[boot])
            before = self._stored[boot]
            self._db.executemany(
                "DELETE FROM seen WHERE boot = ? AND first = ?", [(boot, first) for first, _ in before - now]
            )
            self._db.executemany("INSERT INTO seen VALUES (?, ?, ?)", [(boot, *run) for run in sorted(now - before)])
            self._stored[boot] = now
        self._touched.clear()
        if len(self._sets) > MAX_BOOTS:
            self.forget()

    def _load(self, boot: int) -> RangeSet:
        rows = self._db.execute("SELECT first, last FROM seen WHERE boot = ?", (boot,)).fetchall()
        self._stored[boot] = frozenset(rows)
        known = self._sets[boot] = RangeSet(rows)
        return known


class Transaction:
    """Writes of one transaction. ``numbers`` turns names into what rows hold, ``calendar`` times into days."""

    def __init__(
        self, db: sqlite3.Connection, numbers: Numbers, rollups: Rollups, seen: SeenLines, calendar: Calendar
    ) -> None:
        self.db = db
        self.calendar = calendar
        self.numbers = numbers
        self.rollups = rollups
        self._seen = seen
        self._next_vendor: int | None = None

    def boot(self, name: str, vm: str) -> tuple[int, Callable[[int], bool]]:
        """A boot's base, to which ``seq`` is added for a record id, and what notes a line: ``False`` if it was read."""
        number = self.numbers.boot(name, vm)
        return number << SEQ_BITS, self._seen.of(number).add

    def vendor_id(self) -> int:
        """The id of a new record of a store."""
        if self._next_vendor is None:
            # also past the ids of records that have expired: their keys are still known by them
            query = "SELECT max((SELECT ifnull(max(id), 0) FROM record WHERE id < ?), ifnull(max(id), 0)) FROM vendor"
            self._next_vendor = self.db.execute(query, (1 << SEQ_BITS,)).fetchone()[0] + 1
        self._next_vendor += 1
        return self._next_vendor - 1

    def add(self, rows: Sequence[Row]) -> None:
        """Insert new records."""
        if not rows:
            return
        self.db.executemany(INSERT_RECORD, rows)
        touched = runs(row[0] for row in rows)
        self.rollups.add(touched)
        self._journal(touched)

    def add_lines(self, rows: Sequence[Row], tally: Tally) -> None:
        """Insert records of usage lines (columns ``LINE``); ``tally`` has their sums."""
        if not rows:
            return
        self.db.executemany(INSERT_LINE, rows)
        self.rollups.add_counted(tally.rows())
        self._journal(runs([row[0] for row in rows]))

    def replace(self, rows: Sequence[Row]) -> None:
        """Put records in the place of those that have their ids."""
        if not rows:
            return
        touched = runs(row[0] for row in rows)
        self.rollups.take(touched)
        self.db.executemany(REPLACE_RECORD, rows)
        self.rollups.put_back(touched)
        self._journal(touched)

    def renumber(self, number: int, other: int) -> None:
        """Give a record another id, in which nothing is."""
        self.db.execute("UPDATE record SET id = ? WHERE id = ?", (other, number))
        self.db.execute("UPDATE estimate SET record = ? WHERE record = ?", (other, number))
        self._journal([(other, other)])

    def rows(self, ids: Iterable[int]) -> dict[int, Row]:
        """Records by id."""
        return {row[0]: row for row in self.select("SELECT * FROM record WHERE id IN ({})", ids)}

    def stored(self, keys: Iterable[bytes]) -> dict[bytes, Stored]:
        """The records of stores that the ledger has under these keys."""
        query = """SELECT vendor.key, vendor.owner, vendor.revision, session.session_id, session.vm, record.*
            FROM vendor JOIN record ON record.id = vendor.id JOIN session ON session.no = record.session
            WHERE vendor.key IN ({})"""
        found = {}
        for key, owner, revision, session_id, vm, *row in self.select(query, keys):
            version = Version(session_id, owner, revision, content(tuple(row)))
            found[key] = Stored(row[0], version, vm, tuple(row))
        return found

    def expired(self, keys: Iterable[bytes]) -> set[bytes]:
        """Keys whose records were deleted when their time was up: they were counted and are not counted again."""
        query = """SELECT key FROM vendor LEFT JOIN record ON record.id = vendor.id
            WHERE record.id IS NULL AND key IN ({})"""
        return {row[0] for row in self.select(query, keys)}

    def set_versions(self, versions: Iterable[tuple[bytes, int, Version]]) -> None:
        """Remember which version of each key a record, already written, holds."""
        rows = [(key, number, version.owner_ms, version.revision) for key, number, version in versions]
        self.db.executemany("INSERT OR REPLACE INTO vendor VALUES (?, ?, ?, ?)", rows)
        self.db.executemany(
            "UPDATE copy SET ts = (SELECT ts FROM record WHERE id = ?) WHERE key = ?",
            [(number, key) for key, number, _, _ in rows],
        )

    def note_copies(self, copies: Iterable[tuple[bytes, int]], paid: Iterable[tuple[bytes, int]]) -> None:
        """Remember which sessions hold a copy of a key, and which session pays for it and so does not."""
        self.db.executemany(NOTE_COPY, copies)
        self.db.executemany("DELETE FROM copy WHERE key = ? AND session = ?", paid)

    def list_session(self, number: int, listing: Listing) -> None:
        """Remember what a store says of a session; what was said before stays where this says nothing."""
        self.db.execute(LIST_SESSION, (*listing, number))
        self.rollups.look_again([number])

    def set_parent(self, session: int, parent: str) -> None:
        """Remember the session that this one was forked from; of two claims the lesser, whatever came first."""
        self.db.execute("UPDATE session SET parent = min(ifnull(parent, ?1), ?1) WHERE no = ?2", (parent, session))

    def refuse(self, reason: str, runtime: str, vm: str, example: str, ts_ms: int | None, count: int = 1) -> None:
        """Count something that was refused; the first few are kept as examples."""
        row = self.db.execute(
            "SELECT count, first, last, examples FROM refusal WHERE reason = ? AND runtime = ? AND vm = ?",
            (reason, runtime, vm),
        ).fetchone() or (0, None, None, "[]")
        times = [time for time in (row[1], row[2], ts_ms) if time is not None]
        examples = orjson.loads(row[3])
        if len(examples) < EXAMPLES and example not in examples:
            examples.append(example)
        self.db.execute(
            "INSERT OR REPLACE INTO refusal VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                reason,
                runtime,
                vm,
                row[0] + count,
                min(times, default=None),
                max(times, default=None),
                orjson.dumps(examples).decode(),
            ),
        )

    def quarantine(self, head: bytes, path: str, faults: Iterable[tuple[int, str, str | None]], at_ms: int) -> int:
        """Keep aside where bad lines stand: offset, reason, the id they still tell; how many were not known yet."""
        before = self.db.total_changes
        self.db.executemany(
            "INSERT OR IGNORE INTO quarantine VALUES (?, ?, ?, ?, ?, ?)",
            [(head, offset, path, reason, at_ms, line) for offset, reason, line in faults],
        )
        return self.db.total_changes - before

    def keep_evidence(self, rows: Iterable[Row]) -> int:
        """Keep token-bearing records of token-blind runtimes beside the ledger; how many were not known yet."""
        marks = ", ".join("?" * len(BY_NAME["evidence"].names))
        before = self.db.total_changes
        self.db.executemany(f"INSERT OR IGNORE INTO evidence VALUES ({marks})", rows)
        return self.db.total_changes - before

    def select(self, query: str, values: Iterable[Any]) -> Iterator[Row]:
        """Rows of a query with one ``IN ({})`` over any number of values."""
        wanted = list(values)
        for start in range(0, len(wanted), CHUNK):
            part = wanted[start : start + CHUNK]
            yield from self.db.execute(query.format(", ".join("?" * len(part))), part)

    def finish(self) -> None:
        """What is left to do before the commit."""
        self._seen.flush()
        self.rollups.settle()

    def _journal(self, touched: Iterable[Run]) -> None:
        self.db.executemany("INSERT INTO change (first, last) VALUES (?, ?)", touched)


_TOKENS: Final = slice(AT[TOKEN_CLASSES[0]], AT[TOKEN_CLASSES[-1]] + 1)


def content(row: Row) -> tuple[int, ...]:
    """What of a row decides between two versions that claim the same revision (as ``merge.version``)."""
    counts = dict(zip(TOKEN_CLASSES, row[_TOKENS], strict=True))
    parts = [counts[name] for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")]
    known = [part for part in parts if part is not None]
    return tuple(
        -1 if value is None else value
        for value in (counts["output_tokens"], sum(known) if known else None, row[AT["acu"]])
    )
