"""Who a usage line belongs to, decided again whenever a line, a store's record or a session list arrives.

The rules are pure (``collector.merge``, ``collector.attribution``); this module finds what they must look at. What
arrived is a seed; everything that could be of the same call as a seed, within the longest call's time, is looked at
together. So the outcome is the same whatever came first. A turn of a token-blind runtime for which there is no line is
a call that nobody metered: a record without tokens stands in for it, so that no sum pretends to be complete.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from collector.attribution import BY_REFERENCE, LATE_MS, Found, Turn, contradicts, find
from collector.ledger.interning import Shape
from collector.ledger.schema import COUNTS, METERED, SHAPE, TAKEN_BACK, TWIN
from collector.ledger.writer import AT, Transaction
from collector.merge import LONGEST_CALL_MS, TWIN_SLACK_MS, Side, fits, twins
from shim.line import TOKEN_CLASSES, Tokens

# ``shape.attribution`` of a record that stands in for a call that nobody metered.
STAND_IN: Final = "stand_in"
# Seeds further apart than this (ms) are looked at on their own.
CLUSTER_MS: Final = 15 * 60 * 1000
TWIN_REACH_MS: Final = LONGEST_CALL_MS + TWIN_SLACK_MS
TURN_REACH_MS: Final = LONGEST_CALL_MS + LATE_MS

_TOKENS: Final = ", ".join(f"record.{name}" for name in TOKEN_CLASSES)
SIDES: Final = f"""SELECT record.id, shape.vm, record.ts, record.duration_ms, record.ended,
    shape.model, record.response, {_TOKENS} FROM record JOIN shape ON shape.no = record.shape
    WHERE record.ts BETWEEN ? AND ? AND shape.source = ?
    AND shape.grain != 'session' AND ifnull(shape.attribution, '') != '{STAND_IN}'
    AND record.withdrawn != {TAKEN_BACK}"""
TWIN_LINES: Final = f"SELECT id FROM record WHERE withdrawn = {TWIN} AND id IN ({{}})"
LINES: Final = """SELECT record.id, record.ts, ifnull(record.duration_ms, 0) AS duration, record.session, record.ref,
    shape.model, shape.attribution, named.session AS named
    FROM record JOIN shape ON shape.no = record.shape JOIN session AS opaque ON opaque.no = record.ref
    LEFT JOIN reference AS named ON named.reference = opaque.session_id
        AND named.vm = shape.vm AND named.runtime = shape.runtime"""
LINES_BETWEEN: Final = f"{LINES} WHERE record.ts BETWEEN ? AND ? AND shape.vm = ? AND shape.runtime = ?"
LINES_OF_REFERENCE: Final = f"""{LINES} WHERE record.id IN (
    SELECT id FROM record WHERE session = ?1 UNION SELECT id FROM record WHERE ref = ?1 AND ref != session)"""
TURNS: Final = """SELECT ts, session, model, placeholder FROM turn
    WHERE vm = ? AND runtime = ? AND ts BETWEEN ? AND ? ORDER BY ts"""
# Sessions that a store lists without turns: their stand-in counts while the session has no other record.
LONELY: Final = f"""SELECT record.id, record.withdrawn, EXISTS (
        SELECT 1 FROM record AS other JOIN shape AS form ON form.no = other.shape
        WHERE other.session = record.session AND form.grain != 'session')
    FROM record JOIN shape ON shape.no = record.shape
    WHERE record.session IN ({{}}) AND shape.grain = 'session' AND shape.attribution = '{STAND_IN}'"""


class Line(NamedTuple):
    """A usage line as attribution sees it (a row of ``LINES``); ``named``: the listed session that it references."""

    id: int
    ts: int
    duration: int
    session: int
    ref: int
    model: str | None
    attribution: str | None
    named: int | None


def side_of(
    number: int,
    vm: str,
    ts: int,
    duration: int | None,
    ended: int | None,
    model: str | None,
    tokens: Tokens,
    response: str | None,
) -> Side:
    """One side of a possible pair from a record's columns."""
    end = ended if ended is not None else ts + (duration or 0)
    return Side(number, vm, ts, max(ts, end), model, tokens, response)


def clusters(times: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of times that are close to each other."""
    ordered = sorted(times)
    start = 0
    for place in range(1, len(ordered) + 1):
        if place == len(ordered) or ordered[place] - ordered[place - 1] > CLUSTER_MS:
            yield ordered[start], ordered[place - 1]
            start = place


class Settler:
    """Collects seeds during a transaction and settles them before its commit."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._lines: dict[tuple[str, str], dict[int, Side]] = {}
        self._records: list[Side] = []
        self._turns: dict[tuple[str, str], list[int]] = {}
        self._opaque: list[tuple[str, str, str]] = []
        self._sessions: set[int] = set()
        self._concerns: dict[tuple[str, str], bool] = {}

    def concerns(self, vm: str, runtime: str) -> bool:
        """Whether lines of this runtime on this VM can have anything to settle: there are stores read for it."""
        key = (vm, runtime)
        if key not in self._concerns:
            self._concerns[key] = self._lists(vm, runtime) or self._has("vendor")
        return self._concerns[key]

    def line(self, vm: str, runtime: str, side: Side) -> None:
        """A usage line arrived."""
        self._lines.setdefault((vm, runtime), {})[side.id] = side

    def renumber(self, number: int, other: int) -> None:
        """A usage line that arrived has another id."""
        for sides in self._lines.values():
            if number in sides:
                sides[other] = replace(sides.pop(number), id=other)

    def record(self, side: Side) -> None:
        """A self-reporting runtime's record arrived, or is about to be replaced."""
        self._records.append(side)

    def listed(self, vm: str, runtime: str, session: int, turns_ms: Iterable[int], references: Iterable[str]) -> None:
        """A token-blind runtime's session was listed, with turns at these times, under these opaque references."""
        self._turns.setdefault((vm, runtime), []).extend(turns_ms)
        self._sessions.add(session)
        self._opaque += [(vm, runtime, reference) for reference in references]

    def settle(self) -> None:
        """Decide for everything that the seeds touch."""
        for vm, runtime in {**self._lines, **self._turns}:
            times = [side.start_ms for side in self._lines.get((vm, runtime), {}).values()]
            if self._turns.get((vm, runtime)) or (times and self._lists(vm, runtime)):
                self._attribute(vm, runtime, times + self._turns.get((vm, runtime), []))
        for name in self._opaque:
            self._attribute_reference(name)
        self._lonely()
        lines = [side for sides in self._lines.values() for side in sides.values()]
        if (lines or self._records) and self._has("log") and self._has("vendor"):
            self._match(lines, self._records)

    # Twins: lines of calls that a self-reporting runtime recorded itself.

    def _match(self, lines: Sequence[Side], records: Sequence[Side]) -> None:
        """Match the lines that can be of one call with a seed, and all that hangs together with them."""
        met_lines = {side.id: side for side in lines} | self._neighbours("log", records)
        met_records: dict[int, Side] = {}
        fresh = list(met_lines.values())
        while fresh:
            found = self._neighbours("vendor", fresh)
            around = self._neighbours("log", [side for no, side in found.items() if no not in met_records])
            met_records |= found
            fresh = [side for no, side in around.items() if no not in met_lines]
            met_lines |= around
        pairs = twins(list(met_lines.values()), list(met_records.values()))
        known = {row[0] for row in self._tx.select(TWIN_LINES, met_lines)}
        states = dict.fromkeys(pairs.keys() - known, TWIN) | dict.fromkeys(known - pairs.keys(), COUNTS)
        self._change({number: {"withdrawn": state} for number, state in states.items()})

    def _neighbours(self, source: str, sides: Sequence[Side]) -> dict[int, Side]:
        """Lines or records that can be of one call with any of ``sides``."""
        found: dict[int, Side] = {}
        responses = {side.response for side in sides if side.response is not None}
        by_counts: dict[tuple[int | None, int | None], list[Side]] = {}
        for side in sides:
            by_counts.setdefault(_counts(side), []).append(side)
        for first, last in clusters(side.start_ms for side in sides):
            for other in self._sides(source, first - TWIN_REACH_MS, last + TWIN_REACH_MS):
                alike = by_counts.get(_counts(other), ())
                if other.response in responses or any(fits(other, one) for one in alike):
                    found[other.id] = other
        return found

    def _sides(self, source: str, first: int, last: int) -> Iterator[Side]:
        rows = self._tx.db.execute(SIDES, (first, last, source))
        for number, vm, ts, duration, ended, model, response, *counts in rows:
            yield side_of(number, vm, ts, duration, ended, model, Tokens(*counts), response)

    def _has(self, source: str) -> bool:
        query = "SELECT 1 FROM shape WHERE source = ? AND ifnull(attribution, '') != ? LIMIT 1"
        return self._tx.db.execute(query, (source, STAND_IN)).fetchone() is not None

    # Attribution: the session of a line, and the turns for which there is no line.

    def _lists(self, vm: str, runtime: str) -> bool:
        queries = (
            "SELECT 1 FROM turn WHERE vm = ? AND runtime = ? LIMIT 1",
            "SELECT 1 FROM reference WHERE vm = ? AND runtime = ? LIMIT 1",
        )
        return any(self._tx.db.execute(query, (vm, runtime)).fetchone() for query in queries)

    def _attribute(self, vm: str, runtime: str, times: Iterable[int]) -> None:
        """Decide for lines whose span holds one of these times, and for turns that a line there could have made."""
        for first, last in clusters(times):
            start, end = first - TURN_REACH_MS, last + TURN_REACH_MS
            lines = [Line(*row) for row in self._tx.db.execute(LINES_BETWEEN, (start, end, vm, runtime))]
            rows = self._tx.db.execute(TURNS, (vm, runtime, start, end)).fetchall()
            turns = [Turn(*row[:3]) for row in rows]
            made = self._attribute_lines([line for line in lines if line.ts <= last], turns, first)
            made |= {place for line in lines if line.ts > last for place in _made_by(line, turns)}
            metered = {row[3]: place in made for place, row in enumerate(rows) if first <= row[0]}
            self._stand_in(metered)

    def _attribute_lines(self, lines: Sequence[Line], turns: Sequence[Turn], first: int) -> set[int]:
        """Attribute lines; the places of the turns that they could have made."""
        made: set[int] = set()
        changes: dict[int, dict[str, Any]] = {}
        for line in lines:
            places = _made_by(line, turns)
            made.update(places)
            if line.ts + line.duration + LATE_MS >= first:
                found = (
                    Found(line.named, BY_REFERENCE)
                    if line.named is not None
                    else find(line.ts, line.duration, line.model, [turns[place] for place in places])
                )
                changes |= self._attribution(line, found)
        self._change(changes)
        return made

    def _attribute_reference(self, name: tuple[str, str, str]) -> None:
        """Lines whose opaque reference is that of a listed session."""
        row = self._tx.db.execute(
            "SELECT no FROM session WHERE vm = ? AND runtime = ? AND session_id = ?", name
        ).fetchone()
        if row is None:
            return
        lines = [Line(*found) for found in self._tx.db.execute(LINES_OF_REFERENCE, row)]
        changes: dict[int, dict[str, Any]] = {}
        for line in lines:
            if line.named is not None:
                changes |= self._attribution(line, Found(line.named, BY_REFERENCE))
        self._change(changes)

    def _attribution(self, line: Line, found: Found) -> dict[int, dict[str, Any]]:
        session = line.ref if found.session is None else found.session
        if (session, found.how) == (line.session, line.attribution):
            return {}
        self._sessions.update((session, line.session))
        return {line.id: {"session": session, "attribution": found.how}}

    def _stand_in(self, metered: dict[int, bool]) -> None:
        states = {number: METERED if is_metered else COUNTS for number, is_metered in metered.items()}
        rows = self._tx.select("SELECT id, withdrawn FROM record WHERE id IN ({})", states)
        self._change({number: {"withdrawn": states[number]} for number, state in rows if state != states[number]})

    def _lonely(self) -> None:
        rows = self._tx.select(LONELY, self._sessions)
        states = {number: (state, METERED if others else COUNTS) for number, state, others in rows}
        self._change({number: {"withdrawn": new} for number, (old, new) in states.items() if old != new})

    def _change(self, changes: dict[int, dict[str, Any]]) -> None:
        """Change columns of records; ``attribution`` changes the shape."""
        rows = []
        for number, row in self._tx.rows(changes).items():
            values = list(row)
            for name, value in changes[number].items():
                if name == "attribution":
                    shape = self._shape(row[AT["shape"]])
                    values[AT["shape"]] = self._tx.numbers.shape(shape._replace(attribution=value))
                else:
                    values[AT[name]] = value
            rows.append(tuple(values))
        self._tx.replace(rows)

    def _shape(self, number: int) -> Shape:
        row = self._tx.db.execute(f"SELECT {', '.join(SHAPE)} FROM shape WHERE no = ?", (number,)).fetchone()
        return Shape(*row)


def _counts(side: Side) -> tuple[int | None, int | None]:
    return side.tokens.input_tokens, side.tokens.output_tokens


def _made_by(line: Line, turns: Sequence[Turn]) -> list[int]:
    """The places of the turns (in order of time) that a line could have made."""
    start = bisect_left(turns, line.ts, key=lambda turn: turn.ts_ms)
    end = bisect_right(turns, line.ts + line.duration + LATE_MS, key=lambda turn: turn.ts_ms)
    return [place for place in range(start, end) if not contradicts(turns[place].model, line.model)]
