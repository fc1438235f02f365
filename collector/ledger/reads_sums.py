"""Sums out of the rollups, as SQL: which slices and which spans of days a question takes, and their numbers.

The level with the fewest rows that knows what is asked answers, in as wide spans as fit. Nothing here writes or decides
what a number is worth.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson

from collector.honesty import INCOMPLETE
from collector.ledger import DIMENSIONS, Group, Kind, Total, Use, spans
from collector.ledger.schema import KIND, MICRO, SLICE, SUMS, UNDATED
from collector.rows import Filter
from shim.line import TOKEN_CLASSES

COLUMNS: Final = {name: f"nullif(used.block, {UNDATED})" if name == "day" else f"slice.{name}" for name in DIMENSIONS}
CLASSES: Final = len(TOKEN_CLASSES)
_SUMMED: Final = ", ".join(f"sum(used.{name})" for name in SUMS)
# Sums of a total that are of counted kinds alone.
_OF_COUNTED: Final = ("without_tokens", "cost_micro", "cost_rest")
_OF_ALL: Final = tuple(name for name in SUMS if name not in (*_OF_COUNTED, "priced"))
# What each level's slices are told apart by, in the order of the index by which they are found: what is grouped by
# this needs no sorting. No more of them than must be, for each is compared row by row.
_BY_SLICE: Final = tuple(
    ", ".join(f"ifnull(slice.{name}, char(0))" for name in SLICE[: 1 + max(map(SLICE.index, level), default=0)])
    for level in spans.LEVELS
)
# As the indexes of ``slice`` have them; of a model the slices of every VM are found by an index of their own.
_FOUND_BY: Final = {name: f"ifnull(slice.{name}, char(0))" for name in SLICE} | {"model": "slice.model"}
_TOTAL: Final = spans.level(())
_BY_VM: Final = spans.level(("vm",))
_LAST_DAY: Final = f"""SELECT max(used.block) FROM slice CROSS JOIN usage_span AS used
    ON used.slice = slice.no AND used.grain = {spans.BY_DAY} WHERE slice.level = {_TOTAL}"""

Kinds = Mapping[int, Kind]
# The counted kinds of a total, and those of them that have a cost.
Sets = tuple[frozenset[Kind], frozenset[Kind]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rollups of a question: slices of a level that meet ``conditions``, in ``runs`` of spans."""

    level: int
    conditions: tuple[str, ...]
    values: tuple[Any, ...]
    runs: tuple[spans.Run, ...]
    fixed: frozenset[str]

    @property
    def rows(self) -> str:
        """The rows of ``usage_span`` as the rest of a query, from FROM on; its values are ``all_values``."""
        runs = ", ".join(["(?, ?, ?)"] * len(self.runs))
        return f"""FROM slice CROSS JOIN (VALUES {runs}) AS run CROSS JOIN usage_span AS used
            ON used.slice = slice.no AND used.grain = run.column1 AND used.block BETWEEN run.column2 AND run.column3
            {where_all(self.conditions)}"""

    @property
    def all_values(self) -> list[Any]:
        """The values of ``rows``."""
        return [*itertools.chain(*self.runs), *self.values]

    def is_by_slice(self, by: Sequence[str]) -> bool:
        """Whether each slice is a key of its own."""
        return {*by, *self.fixed} == set(spans.LEVELS[self.level])


def groups(db: sqlite3.Connection, by: Sequence[str], where: Filter) -> list[Group]:
    """See ``Ledger.groups``."""
    with one_state(db):
        chosen = choose(db, by, where)
        return _groups(db, chosen.rows, [COLUMNS[name] for name in by], chosen.all_values) if chosen else []


def totals(db: sqlite3.Connection, by: Sequence[str], where: Filter) -> list[Total]:
    """See ``Ledger.totals``."""
    with one_state(db):
        chosen = choose(db, by, where)
        return summed(db, by, chosen) if chosen else []


def summed(db: sqlite3.Connection, by: Sequence[str], chosen: Chosen) -> list[Total]:
    """The totals of rollups: summed over kinds here, so that an answer is one row per key."""
    keys, kinds = [COLUMNS[name] for name in by], _kinds(db)
    order = _BY_SLICE[chosen.level] if chosen.is_by_slice(by) else ", ".join(keys) or "NULL"
    query = f"SELECT {', '.join([*keys, *_measures(kinds)])} {chosen.rows} GROUP BY {order}"
    sets: dict[frozenset[str], Sets] = {}
    return [_total(row, len(by), kinds, sets) for row in db.execute(query, chosen.all_values)]


def keys(db: sqlite3.Connection, by: Sequence[str], where: Filter) -> set[tuple[Any, ...]]:
    """See ``Ledger.keys``."""
    columns = ", ".join(COLUMNS[name] for name in by)
    with one_state(db):
        chosen = choose(db, by, where)
        if chosen is None:
            return set()
        if "day" in by:
            return set(db.execute(f"SELECT DISTINCT {columns} {chosen.rows}", chosen.all_values))
        widest_first = sorted(chosen.runs, reverse=True)  # where most are found, and SQLite looks no further
        one = "EXISTS (SELECT 1 FROM usage_span WHERE slice = slice.no AND grain = ? AND block BETWEEN ? AND ?)"
        used = f"({' OR '.join([one] * len(chosen.runs))})"
        query = f"SELECT {columns or '1'} FROM slice {where_all([*chosen.conditions, used])}"
        return set(db.execute(query, [*chosen.values, *itertools.chain(*widest_first)]))


def session_groups(db: sqlite3.Connection, sessions: Sequence[int], where: Filter) -> list[Group]:
    """See ``Ledger.session_groups``."""
    conditions, values = filtered(where)
    rows = f"""FROM json_each(?) AS chosen CROSS JOIN usage_session AS used ON used.session = chosen.value
        JOIN shape ON shape.no = used.shape {where_all(conditions)}"""
    return _groups(db, rows, ["used.session", "shape.model"], [orjson.dumps(sessions).decode(), *values])


def uses(db: sqlite3.Connection, runs: Sequence[tuple[int, int]], vm: str | None) -> list[dict[str, Use]]:
    """See ``Ledger.uses``."""
    tokens = "used.input_tokens + used.cache_read_tokens + used.cache_write_tokens + used.output_tokens"
    among = [f"FILTER (WHERE used.block BETWEEN {int(first)} AND {int(last)})" for first, last in runs]
    measures = ", ".join(f"group_concat(used.block) {one}, sum({tokens}) {one}" for one in among)
    query = f"""SELECT slice.vm, {measures} FROM slice CROSS JOIN usage_span AS used
        ON used.slice = slice.no AND used.grain = {spans.BY_DAY} AND used.block BETWEEN ? AND ?
        {where_all(["slice.level = ?", *([] if vm is None else [f"{_FOUND_BY['vm']} = ?"])])}
        GROUP BY {_BY_SLICE[_BY_VM]}"""
    found: list[dict[str, Use]] = [{} for _ in runs]
    bounds = min(first for first, _ in runs), max(last for _, last in runs)
    for name, *numbers in db.execute(query, (*bounds, _BY_VM, *([] if vm is None else [vm]))):
        for one, days, total in zip(found, numbers[::2], numbers[1::2], strict=True):
            if days is not None:
                one[name] = Use(len(set(days.split(","))), total)
    return found


@contextmanager
def one_state(db: sqlite3.Connection) -> Iterator[None]:
    """Everything that is read in the block is of one state of the ledger."""
    if db.in_transaction:
        yield
        return
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("COMMIT")


def choose(db: sqlite3.Connection, by: Sequence[str], where: Filter) -> Chosen | None:
    """The rollups that answer, ``None`` if there are none; right as long as the ledger stays in this state."""
    first, last = spans.days(where.window.first, where.window.last)
    end = db.execute(_LAST_DAY).fetchone()[0]
    if end is None or first > end or first > last:
        return None
    runs = [(spans.BY_DAY, first, last)] if "day" in by else spans.cover(first, last, end)
    fixed = {name: value for name in SLICE if (value := getattr(where, name, None)) is not None}
    if "vm" in fixed and "vm" not in by and _is_only_vm(db, fixed["vm"]):
        del fixed["vm"]
    level = spans.level((*by, *fixed))
    conditions = ("slice.level = ?", *(f"{_FOUND_BY[name]} = ?" for name in fixed))
    return Chosen(level, conditions, (level, *fixed.values()), tuple(runs), frozenset(fixed))


def _is_only_vm(db: sqlite3.Connection, vm: str) -> bool:
    """Whether everything is of one VM, as on a VM: to ask for it narrows nothing, and coarser rollups answer."""
    return db.execute("SELECT vm FROM slice WHERE level = ? LIMIT 2", (_BY_VM,)).fetchall() == [(vm,)]


def _groups(db: sqlite3.Connection, rows: str, keys: Sequence[str], values: Sequence[Any]) -> list[Group]:
    kinds = _kinds(db)
    named = "".join(f"{key}, " for key in keys)
    query = f"SELECT {named}used.kind, {_SUMMED} {rows} GROUP BY {named}used.kind"
    width = len(keys)
    return [_group(row[:width], kinds[row[width]], row[width + 1 :]) for row in db.execute(query, values)]


def _kinds(db: sqlite3.Connection) -> Kinds:
    names = ", ".join(KIND)
    return {
        number: Kind._make((*row, bool(counted)))
        for number, *row, counted in db.execute(f"SELECT no, {names} FROM kind")
    }


def _group(key: tuple[Any, ...], kind: Kind, sums: Sequence[int]) -> Group:
    calls, *numbers = sums
    without_tokens, priced, micro, rest, acu_known, acu = numbers[2 * CLASSES :]
    return Group(
        key,
        kind,
        calls,
        tuple(numbers[:CLASSES]),
        tuple(numbers[CLASSES : 2 * CLASSES]),
        without_tokens,
        priced,
        micro * MICRO + rest,
        acu_known,
        acu,
    )


def _measures(kinds: Kinds) -> list[str]:
    """The numbers of a total and, as text, its kinds: a number of ``kind``, less than 0 where nothing has a cost."""
    uncounted = [number for number, kind in kinds.items() if not kind.counted]
    unknown = [number for number, kind in kinds.items() if kind.counted and kind.cost_status in INCOMPLETE]
    counted = f" FILTER (WHERE used.kind NOT IN {_listed(uncounted)})" if uncounted else ""
    return [
        *(f"sum(used.{name})" for name in _OF_ALL),
        *(f"sum(used.{name}){counted}" for name in _OF_COUNTED),
        f"sum(used.calls) FILTER (WHERE used.kind IN {_listed(unknown)})",
        "group_concat(iif(used.priced, used.kind, -used.kind))",
    ]


def _listed(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))})"


def _total(row: tuple[Any, ...], width: int, kinds: Kinds, sets: dict[frozenset[str], Sets]) -> Total:
    key, calls = row[:width], row[width]
    acu_known, acu, without_tokens, micro, rest, unknown, text = row[width + 1 + 2 * CLASSES :]
    of = frozenset(text.split(","))  # in any order, as often as there are spans
    found = sets.get(of)
    if found is None:
        found = sets[of] = _sets(of, kinds)
    return Total(
        key,
        calls,
        row[width + 1 : width + 1 + CLASSES],
        row[width + 1 + CLASSES : width + 1 + 2 * CLASSES],
        without_tokens or 0,
        unknown or 0,
        (micro or 0) * MICRO + (rest or 0),
        acu_known,
        acu,
        *found,
    )


def _sets(of: Iterable[str], kinds: Kinds) -> Sets:
    """The counted kinds and those of them with a cost, as ``_measures`` gives them."""
    numbers = [int(number) for number in of]
    counted = [number for number in numbers if kinds[abs(number)].counted]
    return (
        frozenset(kinds[abs(number)] for number in counted),
        frozenset(kinds[number] for number in counted if number > 0),
    )


def filtered(where: Filter) -> tuple[list[str], list[Any]]:
    """A filter as SQL conditions over ``used`` and ``shape``, with their values."""
    found: list[tuple[str, Any]] = []
    if where.window.first is not None:
        found.append(("used.day >= ?", where.window.first))
    if where.window.last is not None:
        found.append((f"used.day > {UNDATED} AND used.day <= ?", where.window.last))
    for name in ("runtime", "model", "vm", "source"):
        if (value := getattr(where, name)) is not None:
            found.append((f"shape.{name} = ?", value))
    return [condition for condition, _ in found], [value for _, value in found]


def where_all(conditions: Sequence[str]) -> str:
    """Conditions as a WHERE clause; none for none."""
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""
