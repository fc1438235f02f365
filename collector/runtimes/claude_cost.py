"""What Claude Code's running total (``claude_totals``) adds to a session: the calls without a row, and its dollars.

What a session itself spent is its last total less the one that it began with; what that has beyond the session's rows
is the surplus, one more record per model. Dollars are Claude Code's own (its price list). They are spread over the rows
and the surplus by the weights below, the proportions of Anthropic's prices
(https://docs.claude.com/en/docs/about-claude/pricing), so that each row costs what Claude Code charged for it and the
session's sum is exactly what it said. No dollars where it says that it did not know a model, nor for a model of which
the rows hold more than the total: then the total does not cover them. Transcripts are deleted after some weeks: what
one told while it was there (the total that a fork began with, the rows of a sub-agent) is remembered.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from collector.runtimes.claude_sums import NONE, Classes, Models, Priced, canonical, classes_of, minus, plus, sum_of
from collector.runtimes.claude_totals import Total
from shim.line import Tokens

# input, cache read, 5-minute write, 1-hour write, output, in twentieths of the input price.
WEIGHTS: Final = (20, 2, 25, 40, 100)


@dataclass(frozen=True, slots=True)
class Surplus:
    """What a model used beyond the session's rows."""

    model: str
    tokens: Tokens
    pico: int | None


def _weight(classes: Classes) -> int:
    fresh, read, write, long_lived, output = classes
    parts = (fresh, read, write - long_lived, long_lived, output)
    return sum(part * weight for part, weight in zip(parts, WEIGHTS, strict=True))


def settle(calls: Iterable[Priced], total: Total) -> list[Surplus]:
    """Give each covered call its share of the dollars and return what the models used beyond the calls."""
    covered: dict[str, list[Priced]] = {}
    for call in calls:
        if call.ts <= total.ts:
            covered.setdefault(canonical(call.model or ""), []).append(call)
    found = []
    for named, keys, rows in _groups(total, covered):
        surplus = _settle_model(named, keys, rows, total)
        if surplus is not None:
            found.append(surplus)
    return found


def of_agents(calls: Iterable[Priced], until: float | None) -> Models:
    """What sub-agents used until then (epoch seconds)."""
    return sum_of(call for call in calls if call.side and until is not None and call.ts <= until)


def gone(files: Iterable[str], before: Models, now: Models) -> Models:
    """What was counted of sub-agents ``before`` and is not there ``now``, where one of the session's files is gone."""
    left: Models = {}
    for named, (classes, pico) in before.items() if not all(map(os.path.exists, files)) else ():
        rest = minus(classes, now.get(named, (NONE, None))[0])
        if min(rest) >= 0 and any(rest):
            left[named] = (rest, None if pico is None else pico * _weight(rest) // _weight(classes))
    return left


def _groups(total: Total, covered: dict[str, list[Priced]]) -> Iterator[tuple[str, list[str], list[Priced]]]:
    """Models of the total beside their rows; names that match nothing on either side are taken together."""
    by_name: dict[str, list[str]] = {}
    for key in total.last:
        by_name.setdefault(canonical(key), []).append(key)
    strays = [row for named, rows in covered.items() if named not in by_name for row in rows]
    unmatched = [key for named, keys in by_name.items() if named not in covered for key in keys]
    if strays and unmatched:
        largest = max(unmatched, key=lambda key: total.last[key][1] or 0)
        yield largest, unmatched, strays
    for named, keys in by_name.items():
        if named in covered or not strays:
            yield keys[0], keys, covered.get(named, [])


def _settle_model(named: str, keys: list[str], rows: list[Priced], total: Total) -> Surplus | None:
    last, cost = _add(total.last, keys)
    names = {canonical(key) for key in keys}
    base, base_cost = _add(total.base, [key for key in total.base if canonical(key) in names])
    spent = minus(last, base)
    own = (0, 0, 0, 0, 0)
    for row in rows:
        own = plus(own, classes_of(row.tokens))
    extra = minus(spent, own)
    # Older totals do not split the cache writes; then the split is not known, not negative.
    if min(extra[0], extra[1], extra[2], extra[4]) < 0:
        return None
    long_lived = extra[3] if last[3] and 0 <= extra[3] <= extra[2] else None
    extra = (extra[0], extra[1], extra[2], long_lived or 0, extra[4])
    dollars = _dollars(last, cost, spent, base_cost) if total.trusted else None
    share = _spread(rows, extra, dollars)
    if not any(extra):
        return None
    tokens = Tokens(extra[0], extra[1], extra[2], long_lived, extra[4])
    return Surplus(named, tokens, share)


def _add(models: Models, keys: Iterable[str]) -> tuple[Classes, int | None]:
    classes: Classes = (0, 0, 0, 0, 0)
    cost: int | None = 0
    for key in keys:
        more, spent = models[key]
        classes = plus(classes, more)
        cost = None if cost is None or spent is None else cost + spent
    return classes, cost


def _dollars(last: Classes, cost: int | None, spent: Classes, base_cost: int | None) -> int | None:
    """What the session itself cost: the difference of the totals, or its share where the first is not known."""
    if not cost:
        return None
    if base_cost is not None:
        return cost - base_cost if cost > base_cost else None
    whole = _weight(last)
    return cost * _weight(spent) // whole if whole else None


def _spread(rows: list[Priced], extra: Classes, dollars: int | None) -> int | None:
    """Share ``dollars`` out by weight, to the last pico-USD; returns the surplus's share."""
    whole = sum(_weight(classes_of(row.tokens)) for row in rows) + _weight(extra)
    if dollars is None or whole == 0:
        return None
    given = weight = 0
    for row in rows:
        weight += _weight(classes_of(row.tokens))
        row.pico = dollars * weight // whole - given
        given += row.pico
    return dollars - given
