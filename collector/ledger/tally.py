"""Sums of new records while they are made: the same numbers as ``schema.SUMS``, a good deal faster than asking SQL.

Records are counted per session, day, shape, kind and per which token classes are known, so that one count per group
says how often each class was known. ``Rollups.recount`` is the definition; the tests hold this to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from collector.ledger.schema import MICRO
from shim.line import TOKEN_CLASSES

# Per class: ``None`` where it is not known, else whether it is more than 0.
Known = tuple[int | None, ...]
Key = tuple[int, int, int, int, Known]


class Tally:
    """Counts records of usage lines."""

    def __init__(self) -> None:
        self._groups: dict[Key, list[int]] = {}

    def add(self, key: Key, ts_ms: int, counts: tuple[int, int, int, int, int, int], cost: int | None) -> None:
        """Count one record; ``counts`` are its token classes with 0 for unknown, ``cost`` is in pico-USD."""
        micro, rest = divmod(cost or 0, MICRO)
        group = self._groups.get(key)
        if group is None:
            self._groups[key] = [ts_ms, ts_ms, 1, *counts, micro, rest, int(cost is not None)]
            return
        if ts_ms < group[0]:
            group[0] = ts_ms
        elif ts_ms > group[1]:
            group[1] = ts_ms
        group[2] += 1
        group[3] += counts[0]
        group[4] += counts[1]
        group[5] += counts[2]
        group[6] += counts[3]
        group[7] += counts[4]
        group[8] += counts[5]
        group[9] += micro
        group[10] += rest

    def rows(self) -> Iterator[tuple[int, ...]]:
        """The groups as rows of the table ``delta`` (see ``rollups``)."""
        classes = len(TOKEN_CLASSES)
        for (session, day, shape, kind, known), group in self._groups.items():
            first, last, calls = group[:3]
            micro, rest, has_cost = group[3 + classes :]
            yield (
                session,
                day,
                shape,
                kind,
                first,
                last,
                calls,
                *group[3 : 3 + classes],
                *(0 if one is None else calls for one in known),
                0 if any(one is not None for one in known) else calls,
                calls * has_cost,
                micro,
                rest,
                0,
                0,
            )
