"""What Goose counts for a call or a running total, and how the one is taken off the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from collector.runtimes import values
from shim.line import Tokens

# Dollars of running totals are sums of floats.
NOISE_PICO: Final = 10**6


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens as Goose counts them (``input`` includes the cache) and pico-USD; ``None`` where a column is empty."""

    input: int | None
    output: int | None
    read: int | None
    write: int | None
    pico: int | None

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Counts:
        """From five columns in the order of the fields, the last in USD."""
        fresh, output, read, write = (values.count(value) for value in row[:4])
        return cls(fresh, output, read, write, values.usd(row[4]))

    @property
    def size(self) -> int:
        """All tokens; grows with every call."""
        return (self.input or 0) + (self.output or 0)

    @property
    def tokens(self) -> Tokens:
        """The product's disjoint classes."""
        return Tokens(
            input_tokens=values.fresh(self.input, self.read, self.write),
            cache_read_tokens=self.read,
            cache_write_tokens=self.write,
            output_tokens=self.output,
        )

    def _each(self, other: Counts, combine: Callable[[int, int], int]) -> Counts:
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__slots__)
        return Counts(*(None if a is None and b is None else combine(a or 0, b or 0) for a, b in pairs))

    def __add__(self, other: Counts) -> Counts:
        return self._each(other, lambda a, b: a + b)

    def larger(self, other: Counts) -> Counts:
        """The larger of each number."""
        return self._each(other, max)

    def beyond(self, other: Counts) -> Counts:
        """What these counts have more than the others, class by class."""
        rest = self._each(other, lambda a, b: max(0, a - b))
        return replace(rest, pico=rest.pico if (rest.pico or 0) > NOISE_PICO else None)


NOTHING: Final = Counts(None, None, None, None, None)
