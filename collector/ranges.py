"""A set of whole numbers as runs: what a million consecutive ``seq`` take is one pair of numbers.

The ledger keeps one per boot: it recognises a line that was seen before and knows which are missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """Runs of whole numbers, both ends included, apart from each other and in order."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        ordered = sorted(runs)
        self._firsts = [first for first, _ in ordered]
        self._lasts = [last for _, last in ordered]

    def __contains__(self, value: int) -> bool:
        place = bisect_right(self._firsts, value) - 1
        return place >= 0 and value <= self._lasts[place]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._firsts)

    def add(self, value: int) -> bool:
        """Put one number in; ``False`` if it was there."""
        firsts, lasts = self._firsts, self._lasts
        if lasts and value == lasts[-1] + 1:  # lines arrive in order
            lasts[-1] = value
            return True
        place = bisect_right(firsts, value) - 1
        if place >= 0 and value <= lasts[place]:
            return False
        touches_left = place >= 0 and lasts[place] == value - 1
        touches_right = place + 1 < len(firsts) and firsts[place + 1] == value + 1
        if touches_left and touches_right:
            lasts[place] = lasts.pop(place + 1)
            firsts.pop(place + 1)
        elif touches_left:
            lasts[place] = value
        elif touches_right:
            firsts[place + 1] = value
        else:
            firsts.insert(place + 1, value)
            lasts.insert(place + 1, value)
        return True

    def gaps(self, start: int = 1) -> Iterator[tuple[int, int]]:
        """Runs of numbers from ``start`` to the largest that are not in the set."""
        for first, last in self:
            if first > start:
                yield start, first - 1
            start = last + 1
