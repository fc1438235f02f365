"""Numbers for what repeats: shapes, kinds, rates, boots and sessions, found or made once and remembered.

Rows of these tables are only ever added, so a remembered number stays true while the transaction that made it is kept;
after a rollback ``forget`` everything. What is remembered is bounded: a ledger may hold millions of sessions.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from collector.ledger import Kind
from collector.ledger.schema import KIND, SHAPE, SLICE
from collector.ledger.spans import LEVELS

MAX_REMEMBERED: Final = 50_000
# NULL as the unique indexes of shape and kind see it.
ABSENT: Final = "\0"


class Shape(NamedTuple):
    """Who made a call, with what, and how it was seen (the columns of ``schema.SHAPE``).

    ``attribution`` tells how a usage line found its session: ``reference``, ``time``, ``ambiguous`` or ``None``.
    """

    vm: str
    runtime: str
    source: str
    model: str | None = None
    model_source: str = "log"
    upstream: str | None = None
    wire: str | None = None
    service_tier: str | None = None
    grain: str = "call"
    session_source: str | None = None
    attribution: str | None = None


def _find(table: str, columns: Sequence[str]) -> str:
    same = " AND ".join(f"ifnull({name}, char(0)) = ?" for name in columns)
    return f"SELECT no FROM {table} WHERE {same}"


def _insert(table: str, columns: Sequence[str]) -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"


FIND_SHAPE: Final = _find("shape", SHAPE)
ADD_SHAPE: Final = _insert("shape", SHAPE)
FIND_KIND: Final = _find("kind", KIND)
ADD_KIND: Final = _insert("kind", KIND)
FIND_SLICE: Final = _find("slice", ("level", *SLICE)).replace("ifnull(level, char(0))", "level")
ADD_SLICE: Final = _insert("slice", ("level", *SLICE))
ADD_TO_SLICE: Final = "INSERT OR IGNORE INTO shape_slice VALUES (?, ?)"
FIND_SESSION: Final = "SELECT no FROM session WHERE vm = ? AND runtime = ? AND session_id = ?"
ADD_SESSION: Final = _insert(
    "session", ("vm", "runtime", "session_id", "listed", "model_source", "calls", "recency")
).replace("INSERT", "INSERT OR IGNORE")


class Numbers:
    """The numbers of one connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._shapes: dict[Shape, int] = {}
        self._kinds: dict[Kind, int] = {}
        self._rates: dict[str, int] = {}
        self._boots: dict[str, int] = {}
        self._sessions: dict[tuple[str, str, str], int] = {}

    def forget(self) -> None:
        """Drop every number that is remembered."""
        for known in (self._shapes, self._kinds, self._rates, self._boots, self._sessions):
            known.clear()

    def shape(self, shape: Shape) -> int:
        """The number of a shape."""
        return self._shapes.get(shape) or self._shape(shape)

    def _shape(self, shape: Shape) -> int:
        number = self._keep(self._shapes, shape, FIND_SHAPE, ADD_SHAPE, shape)
        put_into_slices(self._db, number, shape)
        return number

    def kind(self, kind: Kind) -> int:
        """The number of a kind."""
        values = (*kind[:-1], int(kind.counted))
        return self._kinds.get(kind) or self._keep(self._kinds, kind, FIND_KIND, ADD_KIND, values)

    def rates(self, data: str | None) -> int | None:
        """The number of the rates given as canonical JSON, ``None`` for none."""
        if data is None:
            return None
        if number := self._rates.get(data):
            return number
        digest = hashlib.sha256(data.encode()).hexdigest()[:16]
        return self._keep(
            self._rates, data, "SELECT no FROM rates WHERE id = ?", _insert("rates", ("id", "data")), (digest, data), 1
        )

    def boot(self, name: str, vm: str) -> int:
        """The number of a boot; its first line names its VM."""
        return self._boots.get(name) or self._keep(
            self._boots, name, "SELECT no FROM boot WHERE name = ?", _insert("boot", ("name", "vm")), (name, vm), 1
        )

    def session(self, vm: str, runtime: str, session_id: str) -> int:
        """The number of a session."""
        key = (vm, runtime, session_id)
        if number := self._sessions.get(key):
            return number
        # Most that are not remembered are new.
        added = self._db.execute(ADD_SESSION, (*key, 0, "none", 0, 0))
        number = added.lastrowid if added.rowcount else self._db.execute(FIND_SESSION, key).fetchone()[0]
        return self._remember(self._sessions, key, number)

    def _keep(
        self,
        known: dict[Any, int],
        key: Any,
        find: str,
        add: str,
        values: Sequence[Any],
        searched: int | None = None,
    ) -> int:
        """Find a row by its first ``searched`` values (all, if not given) or add it; remember its number."""
        wanted = [ABSENT if value is None else value for value in values[:searched]]
        row = self._db.execute(find, wanted).fetchone()
        number = int(row[0]) if row else self._db.execute(add, values).lastrowid
        return self._remember(known, key, number)

    @staticmethod
    def _remember(known: dict[Any, int], key: Any, number: int | None) -> int:
        assert number is not None
        if len(known) >= MAX_REMEMBERED:
            known.clear()
        known[key] = number
        return number


def put_into_slices(db: sqlite3.Connection, number: int, shape: Shape) -> None:
    """Have the records of a shape summed into the slice of each level that they belong to."""
    for level, has in enumerate(LEVELS):
        names = [getattr(shape, name) if name in has else None for name in SLICE]
        wanted = [level, *(ABSENT if name is None else name for name in names)]
        row = db.execute(FIND_SLICE, wanted).fetchone()
        slice_no = row[0] if row else db.execute(ADD_SLICE, (level, *names)).lastrowid
        db.execute(ADD_TO_SLICE, (number, slice_no))
