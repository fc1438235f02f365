"""Groups of one key as one total, whatever their kinds, and totals by day in order. Pure; the same for every engine.

An engine may sum over kinds itself, where that is quicker; it then says the same as this (a property of the tests).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from collector.honesty import INCOMPLETE
from collector.ledger import Group, Total
from shim.line import TOKEN_CLASSES

NONE: Final = (0,) * len(TOKEN_CLASSES)
NOTHING: Final = Total((), 0, NONE, NONE, 0, 0, 0, 0, 0, frozenset(), frozenset())


def of_groups(groups: Iterable[Group]) -> list[Total]:
    """One total per key."""
    found: dict[tuple[Any, ...], list[Group]] = {}
    for group in groups:
        found.setdefault(group.key, []).append(group)
    return [total(key, parts) for key, parts in found.items()]


def total(key: tuple[Any, ...], groups: Sequence[Group]) -> Total:
    """These groups, whatever their own keys are, as one total."""
    counted = [group for group in groups if group.kind.counted]
    priced = [group for group in counted if group.priced]
    return Total(
        key=key,
        calls=sum(group.calls for group in groups),
        sums=_columns(group.sums for group in groups),
        known=_columns(group.known for group in groups),
        without_tokens=sum(group.without_tokens for group in counted),
        unknown=sum(group.calls for group in counted if group.kind.cost_status in INCOMPLETE),
        cost_pico=sum(group.cost_pico for group in priced),
        acu_known=sum(group.acu_known for group in groups),
        acu_micro=sum(group.acu_micro for group in groups),
        counted=frozenset(group.kind for group in counted),
        priced=frozenset(group.kind for group in priced),
    )


def by_day(found: Iterable[Total], after: int | None, limit: int) -> tuple[list[Total], int | None]:
    """See ``Ledger.by_day``: a page out of all the totals by day."""
    there = [total for total in found if after is None or (total.key[0] is not None and total.key[0] >= after)]
    shown = whole_days(there, limit)
    rest = sorted(there, key=when)[len(shown) :]
    return shown, rest[0].key[0] if rest else None


def whole_days(found: Iterable[Total], limit: int) -> list[Total]:
    """Totals of which the first dimension is the day, in order: whole days, at least one, at most ``limit`` totals."""
    ordered = sorted(found, key=when)
    if len(ordered) <= limit:
        return ordered
    cut = ordered[limit].key[0]
    whole = [total for total in ordered[:limit] if total.key[0] != cut]
    return whole or [total for total in ordered if total.key[0] == cut]


def when(total: Total) -> tuple[int, tuple[str, ...]]:
    """By day, what has no time before all days, and then by names."""
    day, *names = total.key
    return (-(2**62) if day is None else day, tuple(name or "" for name in names))


def _columns(rows: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True))) or NONE
