"""Token classes and dollars per model: the arithmetic of Claude Code's rows and totals (``claude_totals``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Protocol

from shim.line import Tokens

DECORATION: Final = re.compile(r"\[.*\]$|@.*$|-v\d+(:\d+)?$|-\d{8}$")

Classes = tuple[int, int, int, int, int]  # input, cache read, cache write, of it 1-hour, output
NONE: Final[Classes] = (0, 0, 0, 0, 0)
Models = dict[str, tuple[Classes, int | None]]  # tokens and pico-USD per model; no dollars where they are not known


class Priced(Protocol):
    """A call that can be given a price."""

    ts: float
    pico: int | None
    side: bool

    @property
    def model(self) -> str | None:
        """Its model."""

    @property
    def tokens(self) -> Tokens:
        """Its token classes."""


def summed(parts: Iterable[Models]) -> Models:
    """The sum of totals, model by model."""
    total: Models = {}
    for part in parts:
        for named, (classes, cost) in part.items():
            before, spent = total.get(named, ((0, 0, 0, 0, 0), 0))
            known = None if cost is None or spent is None else cost + spent
            total[named] = (plus(before, classes), known)
    return total


def sum_of(calls: Iterable[Priced]) -> Models:
    """The sum of calls, model by model."""
    return summed({call.model or "": (classes_of(call.tokens), call.pico)} for call in calls)


def less(whole: Models, part: Models) -> Models | None:
    """What a total has beyond another, model by model, without dollars; ``None`` where it has less of anything.

    Older totals do not split the cache writes; then 1-hour writes are 0.
    """
    rest = {canonical(named): NONE for named in (*whole, *part)}
    for named, (classes, _) in whole.items():
        rest[canonical(named)] = plus(rest[canonical(named)], classes)
    for named, (classes, _) in part.items():
        rest[canonical(named)] = minus(rest[canonical(named)], classes)
    found: Models = {}
    for named, (fresh, read, write, long_lived, output) in rest.items():
        if min(fresh, read, write, output) < 0:
            return None
        if fresh or read or write or output:
            found[named] = ((fresh, read, write, min(max(long_lived, 0), write), output), None)
    return found


def canonical(named: str) -> str:
    """A model's name without date, version, context window and vendor prefix: transcript and total differ in these."""
    named = named.rpartition("/")[2].rpartition("anthropic.")[2]
    while (shorter := DECORATION.sub("", named)) != named:
        named = shorter
    return named


def kept(models: Models | None) -> dict[str, Any] | None:
    """A total as a state keeps it, JSON-able; ``known`` is the way back."""
    return None if models is None else {named: [list(classes), pico] for named, (classes, pico) in models.items()}


def known(state: Any) -> Models | None:
    """A total that a state kept."""
    if not isinstance(state, dict):
        return None
    return {named: ((classes[0], *classes[1:]), pico) for named, (classes, pico) in state.items()}


def classes_of(tokens: Tokens) -> Classes:
    """The classes of a call, an unknown one as 0: a total states each of them."""
    return (
        tokens.input_tokens or 0,
        tokens.cache_read_tokens or 0,
        tokens.cache_write_tokens or 0,
        tokens.cache_write_1h_tokens or 0,
        tokens.output_tokens or 0,
    )


def minus(one: Classes, other: Classes) -> Classes:
    """The difference, class by class."""
    return (one[0] - other[0], one[1] - other[1], one[2] - other[2], one[3] - other[3], one[4] - other[4])


def plus(one: Classes, other: Classes) -> Classes:
    """The sum, class by class."""
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3], one[4] + other[4])
