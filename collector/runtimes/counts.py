"""What a store counts for a call or a running total, raw, and how the one is taken off the other.

``input`` includes the cache or not, ``output`` reasoning or not: that is the runtime's to know. ``None`` is what the
store does not say; a sum knows what one of its parts knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from collector.runtimes import values


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of tokens, and pico-USD."""

    input: int | None = None
    output: int | None = None
    reasoning: int | None = None
    read: int | None = None
    write: int | None = None
    pico: int | None = None

    @classmethod
    def of(cls, fresh: Any, output: Any, reasoning: Any, read: Any, write: Any, cost: Any) -> Counts:
        """From what JSON or a row gave; ``cost`` in USD."""
        count = values.count
        return cls(count(fresh), count(output), count(reasoning), count(read), count(write), values.usd(cost))

    @property
    def numbers(self) -> tuple[int | None, ...]:
        """All six, to compare and (as a list) to keep in ``state``."""
        return (self.input, self.output, self.reasoning, self.read, self.write, self.pico)

    @property
    def known(self) -> bool:
        """Whether any token count is known."""
        return any(number is not None for number in self.numbers[:5])

    @property
    def size(self) -> int:
        """Grows with every call: for "is there anything" and "which is the later", not to be shown."""
        return (self.input or 0) + (self.output or 0) + (self.reasoning or 0) + (self.read or 0) + (self.write or 0)

    def _each(self, other: Counts, combine: Callable[[int, int], int]) -> Counts:
        pairs = zip(self.numbers, other.numbers, strict=True)
        return Counts(*[None if a is None and b is None else combine(a or 0, b or 0) for a, b in pairs])

    def __add__(self, other: Counts) -> Counts:
        return self._each(other, lambda a, b: a + b)

    def larger(self, other: Counts) -> Counts:
        """The larger of each number."""
        return self._each(other, max)

    def beyond(self, other: Counts) -> Counts:
        """What these counts have more than the others, number by number."""
        return self._each(other, lambda a, b: max(0, a - b))


NOTHING = Counts()


def total(parts: Iterable[Counts]) -> Counts:
    """The sum of counts."""
    return reduce(Counts.__add__, parts, NOTHING)
