"""What the ClickHouse ledger answers: SQL over records with FINAL, joined with the sums of records that have expired.

Nothing here writes. Expired records stand in ``usage_day``; a row of ``record`` whose id a finished fold took does not
count any more, whether it is deleted yet or came in again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from collector.entries import NAMES, entry_of
from collector.ledger import Entry, Group, Kind, Seen, SessionHead, Total, Use, totals
from collector.ledger.clickhouse_days import IS_RECORD, Row, session_number
from collector.ledger.clickhouse_schema import SUMS
from collector.ledger.schema import UNDATED
from collector.rows import SORTS, Filter, Page
from collector.windows import Window, day
from shim.line import TOKEN_CLASSES

Rows = Sequence[Sequence[Any]]
Ask = Callable[[str, Mapping[str, Any]], Rows]
CLASSES: Final = len(TOKEN_CLASSES)
COLUMNS: Final = ", ".join(NAMES)
KINDS: Final = ", ".join(Kind._fields)
COUNTS: Final = "isNull(withdrawn)"
AT: Final = "coalesce(ended_ms, ts_ms, 0)"
TOTAL_CLASSES: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
TOTAL: Final = " + ".join(f"ifNull({name}, 0)" for name in TOTAL_CLASSES)
_LAST_MODEL: Final = f"({AT}, assumeNotNull(model))"


@dataclass(frozen=True, slots=True)
class Folds:
    """The finished folds, and where the ids they took stand on each server."""

    numbers: tuple[int, ...]
    gone: str

    @property
    def counts(self) -> str:
        """The condition that a record is not one of theirs."""
        if not self.numbers:
            return COUNTS
        return f"{COUNTS} AND id NOT IN (SELECT id FROM {self.gone} WHERE fold IN ({self.listed}))"

    @property
    def listed(self) -> str:
        """Their numbers for SQL."""
        return ", ".join(str(number) for number in self.numbers)


def conditions(where: Filter) -> tuple[list[str], dict[str, Any]]:
    """A filter as SQL conditions and their parameters."""
    found, values = [], {}
    if where.window.first is not None:
        found.append("day >= {since:Int32}")
        values["since"] = where.window.first
    if where.window.last is not None:
        found.append(f"day > {UNDATED} AND day <= {{until:Int32}}")
        values["until"] = where.window.last
    for name in ("runtime", "model", "vm", "source"):
        if (value := getattr(where, name)) is not None:
            found.append(f"{name} = {{{name}:String}}")
            values[name] = value
    return found, values


def groups(
    ask: Ask, by: Sequence[str], where: Filter, folds: Folds, live: Sequence[str] = (), kept: str = "0"
) -> list[Group]:
    """See ``Ledger.groups``. ``live``: conditions of records that count themselves; ``kept``: of sums beside them."""
    keys = [f"nullIf(day, {UNDATED}) AS key_day" if name == "day" else name for name in by]
    chosen, values = conditions(where)
    measures = ", ".join(SUMS.values())
    found = _grouped(ask, keys, measures, "record FINAL", [folds.counts, *live, *chosen], values)
    if folds.numbers or live:
        sums = ", ".join(f"sum({name})" for name in SUMS)
        among = f"({kept} OR fold IN ({folds.listed}))" if folds.numbers else kept
        found += _grouped(ask, keys, sums, "usage_day", [among, *chosen], values)
        found = merged(found)
    return found


def by_day(
    ask: Callable[[Sequence[str], Filter], list[Total]], by: Sequence[str], where: Filter, after: int | None, limit: int
) -> tuple[list[Total], int | None]:
    """See ``Ledger.by_day``; ``ask`` is ``Ledger.totals``."""
    if after is not None:
        where = replace(where, window=replace(where.window, since=day(after)))
    return totals.by_day(ask(("day", *by), where), after, limit)


def by_vm(found: Iterable[Group], start: str | None) -> list[Group]:
    """See ``Ledger.by_vm``: what there is from a VM on, in order."""
    return sorted((group for group in found if start is None or group.key[0] >= start), key=lambda group: group.key[0])


def session_groups(ask: Ask, sessions: Sequence[int], where: Filter, folds: Folds) -> list[Group]:
    """See ``Ledger.session_groups``."""
    chosen, values = conditions(where)
    among = f"session_no IN ({', '.join(str(int(number)) for number in sessions)})"
    measures = ", ".join(SUMS.values())
    counted = [folds.counts, among, *chosen]
    return _grouped(ask, ["session_no", "model"], measures, "record FINAL", counted, values) if sessions else []


def merged(found: Iterable[Group]) -> list[Group]:
    """Groups of one key and kind as one."""
    sums: dict[tuple[Any, ...], list[Any]] = {}
    for group in found:
        numbers = _numbers(group)
        known = sums.get((group.key, group.kind))
        sums[group.key, group.kind] = numbers if known is None else [a + b for a, b in zip(known, numbers, strict=True)]
    return [_group(key, kind, numbers) for (key, kind), numbers in sums.items()]


def _grouped(
    ask: Ask, keys: Sequence[str], measures: str, table: str, chosen: Sequence[str], values: Mapping[str, Any]
) -> list[Group]:
    names = [key.rpartition(" AS ")[2] for key in keys]
    query = f"""SELECT {"".join(f"{key}, " for key in keys)}{KINDS}, {measures} FROM {table}
        WHERE {" AND ".join(chosen)} GROUP BY {"".join(f"{name}, " for name in names)}{KINDS}"""
    width, kinds = len(keys), len(Kind._fields)
    return [
        _group(tuple(row[:width]), Kind._make(row[width : width + kinds]), list(row[width + kinds :]))
        for row in ask(query, values)
    ]


def _group(key: tuple[Any, ...], kind: Kind, numbers: Sequence[int]) -> Group:
    calls, *rest = numbers
    return Group(key, kind, calls, tuple(rest[:CLASSES]), tuple(rest[CLASSES : 2 * CLASSES]), *rest[2 * CLASSES :])


def _numbers(group: Group) -> list[int]:
    rest = (group.without_tokens, group.priced, group.cost_pico, group.acu_known, group.acu_micro)
    return [group.calls, *group.sums, *group.known, *rest]


HEAD: Final = f"""session_no, any(vm), any(runtime), any(session_id),
    if(countIf(isNotNull(session_ref)) = 0, NULL,
        argMaxIf(assumeNotNull(session_ref), (ifNull(ts_ms, 0), id), isNotNull(session_ref))),
    if(countIf(isNotNull(model)) = 0, NULL, argMaxIf(assumeNotNull(model), {_LAST_MODEL}, isNotNull(model))),
    if(countIf(isNotNull(model)) = 0, 'none', argMaxIf(model_source, {_LAST_MODEL}, isNotNull(model))),
    min(ts_ms), max(coalesce(ended_ms, ts_ms)), min(parent_session_id),
    if(countIf(source = 'log') > 0, 'log', 'vendor'), countIf(attribution = 'ambiguous')"""


def sessions(ask: Ask, where: Filter, page: Page, folds: Folds) -> tuple[list[SessionHead], str | None]:
    """See ``Ledger.sessions``. Raises ``ValueError`` for an unknown sort or a cursor that is none of ours."""
    if page.sort not in SORTS:
        raise ValueError(f"sort {page.sort!r} is not one of {', '.join(SORTS)}")
    chosen, values = conditions(where)
    shown = " AND ".join(chosen) or "1"
    order = {
        "recent": f"max({AT})",
        "cost": f"sumIf(toInt128(ifNull(cost_pico, 0)), {shown})",
        "tokens": f"sumIf({TOTAL}, {shown})",
        "calls": f"countIf({shown})",
    }[page.sort]
    after = _after(page.cursor)
    # vm and runtime are those of the whole session, so the rest of the table need not be grouped
    narrow = [f"{name} = {{{name}:String}}" for name in ("vm", "runtime") if name in values]
    # which sessions first, by two columns; what they show is then read of these alone
    query = f"""SELECT session_no, {order} AS total FROM record FINAL WHERE {" AND ".join([folds.counts, *narrow])}
        GROUP BY session_no HAVING countIf({shown}) > 0 {after} ORDER BY total DESC, session_no DESC
        LIMIT {page.limit + 1}"""
    places = ask(query, values)
    numbers = [number for number, _ in places[: page.limit]]
    heads = _heads(ask, numbers, folds)
    more = len(places) > page.limit and bool(numbers)
    cursor = f"{places[page.limit - 1][1]}.{numbers[-1]}" if more else None
    return [heads[number] for number in numbers if number in heads], cursor


def _heads(ask: Ask, numbers: Sequence[int], folds: Folds) -> dict[int, SessionHead]:
    if not numbers:
        return {}
    query = f"""SELECT {HEAD} FROM record FINAL
        WHERE {folds.counts} AND session_no IN ({", ".join(map(str, numbers))}) GROUP BY session_no"""
    return {row[0]: SessionHead(*row) for row in ask(query, {})}


def _after(cursor: str | None) -> str:
    if cursor is None:
        return ""
    value, _, number = cursor.partition(".")
    try:
        return f"AND (total, session_no) < ({int(value)}, {int(number)})"
    except ValueError:
        raise ValueError(f"cursor {cursor!r} is not one that a page before gave") from None


def find_session(ask: Ask, vm: str | None, runtime: str | None, session_id: str, folds: Folds) -> list[SessionHead]:
    """See ``Ledger.find_session``."""
    values: dict[str, Any] = {"session_id": session_id}
    values |= {name: value for name, value in (("vm", vm), ("runtime", runtime)) if value is not None}
    chosen = " AND ".join(f"{name} = {{{name}:String}}" for name in values)
    if vm is not None and runtime is not None:
        chosen += f" AND session_no = {session_number(vm, runtime, session_id)}"
    query = f"""SELECT {HEAD} FROM record FINAL WHERE {folds.counts} AND {chosen}
        GROUP BY session_no ORDER BY any(vm), any(runtime)"""
    return [SessionHead(*row) for row in ask(query, values)]


def records(ask: Ask, session: int, limit: int, folds: Folds) -> list[Entry]:
    """See ``Ledger.records``."""
    query = f"""SELECT {COLUMNS} FROM record FINAL WHERE {folds.counts} AND session_no = {int(session)}
        ORDER BY ts_ms NULLS FIRST, id LIMIT {int(limit)}"""
    return [entry(row) for row in ask(query, {})]


def scan_query(where: Filter, folds: Folds) -> tuple[str, dict[str, Any]]:
    """The statement whose rows ``entry`` reads for ``Ledger.scan``."""
    chosen, values = conditions(where)
    query = f"""SELECT {COLUMNS} FROM record FINAL WHERE {" AND ".join([folds.counts, *chosen])}
        ORDER BY ts_ms NULLS FIRST, id"""
    return query, values


def changes(ask: Ask, after: int, limit: int) -> tuple[int, list[Entry]]:
    """See ``Ledger.changes``: a cursor is the time (in microseconds) at which the last record given was received."""
    query = f"""SELECT received, {COLUMNS} FROM record FINAL WHERE received > {int(after)} AND {IS_RECORD}
        ORDER BY received LIMIT {int(limit)} WITH TIES"""
    rows = ask(query, {})
    return (rows[-1][0] if rows else after), [entry(row[1:]) for row in rows]


def held(ask: Ask, table: str, ids: Sequence[str]) -> list[Row]:
    """The rows of ``table`` under these ids, merged or not."""
    names = ", ".join(map(_literal, ids))
    query = f"SELECT day, toString(version), {COLUMNS} FROM {table} WHERE id IN ({names})"
    return [Row(entry(row[2:]), row[0], int(row[1])) for row in ask(query, {})]


def gone(ask: Ask, ids: Sequence[str], folds: Folds) -> set[str]:
    """Those of these records that have expired."""
    if not folds.numbers:
        return set()
    query = f"SELECT id FROM gone WHERE fold IN ({folds.listed}) AND id IN ({', '.join(map(_literal, ids))})"
    return {row[0] for row in ask(query, {})}


def seen(ask: Ask, by: str, folds: Folds) -> list[Seen]:
    """See ``Ledger.seen``; sessions are counted over records that have not expired."""
    column = {"vm": "vm", "runtime": "runtime"}[by]
    query = f"""SELECT {column}, min(ts_ms), max(coalesce(ended_ms, ts_ms)), uniqExact(session_no) FROM record FINAL
        WHERE {folds.counts} GROUP BY {column}"""
    found = {row[0]: Seen(*row) for row in ask(query, {})}
    if folds.numbers:
        kept = f"SELECT {column}, min(first_ms), max(last_ms) FROM usage_day WHERE fold IN ({folds.listed}) GROUP BY 1"
        for name, first, last in ask(kept, {}):
            now = found.get(name, Seen(name, None, None, 0))
            firsts = [ms for ms in (first, now.first_ms) if ms is not None]
            lasts = [ms for ms in (last, now.last_ms) if ms is not None]
            found[name] = Seen(name, min(firsts, default=None), max(lasts, default=None), now.sessions)
    return list(found.values())


def uses(
    ask: Callable[[Sequence[str], Filter], list[Group]], runs: Sequence[tuple[int, int]], vm: str | None
) -> list[dict[str, Use]]:
    """See ``Ledger.uses``; ``ask`` is ``Ledger.groups``."""
    first, last = min(first for first, _ in runs), max(last for _, last in runs)
    tokens: Counter[tuple[str, int]] = Counter()
    for group in ask(("vm", "day"), Filter(Window(day(first), day(last)), vm=vm)):
        tokens[group.key] += sum(group.sums[TOKEN_CLASSES.index(name)] for name in TOTAL_CLASSES)
    found: list[dict[str, Use]] = [{} for _ in runs]
    for one, (first, last) in zip(found, runs, strict=True):
        for (vm, number), total in tokens.items():
            if first <= number <= last:
                use = one.get(vm, Use(0, 0))
                one[vm] = Use(use.days + 1, use.tokens + total)
    return found


def entry(row: Sequence[Any]) -> Entry:
    """A row of ``COLUMNS`` as an entry."""
    return entry_of(dict(zip(NAMES, row, strict=True)))


def entries(blocks: Iterable[Rows]) -> Iterator[Entry]:
    """The rows of a streamed answer as entries."""
    for block in blocks:
        for row in block:
            yield entry(row)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
