"""By what rollups are kept: levels of detail and spans of days, and which of them answer a question. Pure.

A span is ``day >> grain`` for each of ``GRAINS``: a day, eight days, 64, 512. Any window is a handful of runs of whole
spans, so a question about years reads little more than one about a week. A level is a set of dimensions; the first one
that has every dimension asked for answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from collector.ledger.schema import UNDATED

GRAINS: Final = (0, 3, 6, 9)
BY_DAY: Final = GRAINS[0]
# Every day with a number lies between; what has no time is a day of its own before all of them.
FIRST: Final = -(2**30)
LAST: Final = 2**30 - 1
# From the fewest rows to the most. Days are in every level.
LEVELS: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("runtime", "source"),
    ("model",),
    ("vm",),
    ("vm", "runtime"),
    ("runtime", "source", "model", "upstream"),
    ("vm", "runtime", "source", "model", "upstream"),
)
# A run of spans: grain, first and last.
Run = tuple[int, int, int]


def level(dimensions: Iterable[str]) -> int:
    """The level with the fewest rows that has all of these dimensions (days aside)."""
    wanted = set(dimensions) - {"day"}
    return next(place for place, has in enumerate(LEVELS) if wanted <= set(has))


def days(first: int | None, last: int | None) -> tuple[int, int]:
    """Bounds of a window as day numbers; only a window without any bound holds what has no time."""
    if first is None and last is None:
        return UNDATED, LAST
    return FIRST if first is None else first, LAST if last is None else last


def cover(first: int, last: int, end: int = LAST) -> list[Run]:
    """The fewest runs of spans that are together the days from ``first`` to ``last``, each day in one of them.

    ``end``: the last day of which there is anything. A window that reaches it may go on to where wider spans end.
    """
    if last < end:
        return _cover(first, last)
    lasts = [last, *(((end >> grain) + 1 << grain) - 1 for grain in GRAINS)]
    return min((_cover(first, one) for one in lasts), key=lambda runs: (_filled(runs, end), len(runs)))


def _filled(runs: Iterable[Run], end: int) -> int:
    """How many spans of these runs begin by the day ``end``."""
    return sum(max(0, min(high, end >> grain) - low + 1) for grain, low, high in runs)


def _cover(first: int, last: int) -> list[Run]:
    runs: list[Run] = []
    low, high = first, last + 1
    for grain, wider in pairwise(GRAINS):
        step = wider - grain
        up_low, up_high = -(-low >> step), high >> step
        if up_low >= up_high:
            return [*runs, (grain, low, high - 1)] if low < high else runs
        if low < up_low << step:
            runs.append((grain, low, (up_low << step) - 1))
        if up_high << step < high:
            runs.append((grain, up_high << step, high - 1))
        low, high = up_low, up_high
    return [*runs, (GRAINS[-1], low, high - 1)]
