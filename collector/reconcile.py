"""Our records beside a vendor's bill, per day and model: what both have, what only one has, and the difference.

Pure. Both sides are brought to ``Item``s; ``compare`` pairs them. Where the vendor tells single events, calls are
paired by their token classes within a day and model; where it tells only sums, the sums are set side by side. Nothing
is written to the ledger: a bill is evidence about our records, not a second source of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from collector.honesty import Counts
from collector.ledger import Entry
from collector.money import to_usd
from collector.providers import provider_of
from shim.line import Tokens

# The classes that both sides can know; subsets are left out.
CLASSES: Final[tuple[str, ...]] = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
STATES: Final = {
    "matched": "Both sides have the same tokens.",
    "differs": "Both sides have calls, with different tokens.",
    "ours_only": "Only our records have calls: not billed yet, or billed elsewhere.",
    "theirs_only": "Only the bill has calls: used where this ledger does not look.",
}
_DATED: Final = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d)$")


class ReconcileError(Exception):
    """The vendor's side could not be had: one sentence for a person, without a key or a body."""


@dataclass(frozen=True, slots=True)
class Item:
    """One call (``event``), or the sum of ``calls`` of a day and model, on either side.

    ``calls`` is ``None`` where a bill does not count them. ``billed_pico``: charged money; ``value_pico``: what the
    tokens are worth at list price. On our side ``value_pico`` is the record's cost and ``status`` its state.
    """

    day: date
    model: str
    tokens: Tokens
    calls: int | None = 1
    event: bool = False
    billed_pico: int | None = None
    value_pico: int | None = None
    status: str = "exact"


@dataclass(slots=True)
class Side:
    """The sum of one side's items of a day and model. A class is known if any item knows it."""

    calls: int | None = 0
    tokens: dict[str, int] = field(default_factory=dict)
    events: Counter[tuple[int, ...]] = field(default_factory=Counter)
    only_events: bool = True
    billed_pico: int | None = None
    value_pico: int | None = None
    statuses: list[str] = field(default_factory=list)

    def add(self, item: Item) -> None:
        """Take one item in."""
        self.calls = None if self.calls is None or item.calls is None else self.calls + item.calls
        for name in CLASSES:
            count = getattr(item.tokens, name)
            if count is not None:
                self.tokens[name] = self.tokens.get(name, 0) + count
        self.events[tuple(getattr(item.tokens, name) or 0 for name in CLASSES)] += 1
        self.only_events = self.only_events and item.event
        self.billed_pico = _plus(self.billed_pico, item.billed_pico)
        self.value_pico = _plus(self.value_pico, item.value_pico)
        self.statuses.append(item.status)


@dataclass(frozen=True, slots=True)
class Row:
    """One day and model. ``matched_calls`` is ``None`` where the bill tells no single calls.

    ``open``: the vendor may still add events to this day. ``our_cost_status`` is the worth of our figure.
    """

    day: str
    model: str
    state: str
    our_calls: int
    their_calls: int | None
    matched_calls: int | None
    ours_only_calls: int | None
    theirs_only_calls: int | None
    our_tokens: dict[str, int]
    their_tokens: dict[str, int]
    difference_tokens: dict[str, int]
    our_cost_usd: float | None
    our_cost_status: str | None
    billed_usd: float | None
    value_usd: float | None
    difference_usd: float | None
    open: bool


def compare(ours: Iterable[Item], theirs: Iterable[Item], open_from: date | None = None) -> list[Row]:
    """One row per day and model that either side has, oldest first; days from ``open_from`` on may still change."""
    sides: dict[tuple[date, str], tuple[Side, Side]] = {}
    for place, items in enumerate((ours, theirs)):
        for item in items:
            sides.setdefault((item.day, model_key(item.model)), (Side(), Side()))[place].add(item)
    return [
        _row(day, model, *sides[day, model], is_open=open_from is not None and day >= open_from)
        for day, model in sorted(sides)
    ]


def ours(entries: Iterable[Entry], day_of: Callable[[float], date]) -> Iterator[Item]:
    """Our side: records with a time that can be on a bill; ``day_of`` gives the bill's day of an epoch time in s."""
    for entry in entries:
        if entry.ts_ms is None or not entry.kind.counted:
            continue
        yield Item(
            day=day_of(entry.ts_ms / 1000),
            model=entry.model or "unknown",
            tokens=entry.tokens,
            event=entry.grain != "session",
            value_pico=entry.cost_pico,
            status=entry.kind.cost_status,
        )


def made_at(entry: Entry) -> str | None:
    """The provider (id of the price book) that was asked, ``None`` where that is not known.

    Not the one whose list gave the price: Cursor bills what it sells at OpenAI's list price.
    """
    lists = provider_of(entry.runtime, None, entry.upstream, entry.model or "")
    return lists[0].provider if lists else None


def model_key(model: str) -> str:
    """A model's name as both sides may be expected to spell it: lower case, no maker, no date, dots for dashes."""
    name = _DATED.sub("", model.strip().lower().replace(" ", "-").rpartition("/")[2])
    return re.sub(r"(?<=\d)-(?=\d{1,2}(?!\d))", ".", name)


def _row(day: date, model: str, ours: Side, theirs: Side, *, is_open: bool) -> Row:
    matched = sum((ours.events & theirs.events).values()) if theirs.only_events else None
    difference = {
        name: theirs.tokens.get(name, 0) - ours.tokens.get(name, 0)
        for name in CLASSES
        if name in ours.tokens and name in theirs.tokens
    }
    counts = Counts.of(ours.statuses)
    charged = theirs.billed_pico if theirs.billed_pico is not None else theirs.value_pico
    complete = ours.value_pico is not None and counts.unknown_calls == 0
    return Row(
        day=day.isoformat(),
        model=model,
        state=_state(ours, theirs, difference),
        our_calls=ours.calls or 0,
        their_calls=theirs.calls,
        matched_calls=matched,
        ours_only_calls=None if matched is None else sum(ours.events.values()) - matched,
        theirs_only_calls=None if matched is None else sum(theirs.events.values()) - matched,
        our_tokens=dict(ours.tokens),
        their_tokens=dict(theirs.tokens),
        difference_tokens=difference,
        our_cost_usd=to_usd(ours.value_pico),
        our_cost_status=counts.status if ours.statuses else None,
        billed_usd=to_usd(theirs.billed_pico),
        value_usd=to_usd(theirs.value_pico),
        difference_usd=to_usd(charged - (ours.value_pico or 0)) if charged is not None and complete else None,
        open=is_open,
    )


def _state(ours: Side, theirs: Side, difference: dict[str, int]) -> str:
    if not ours.statuses:
        return "theirs_only"
    if not theirs.statuses:
        return "ours_only"
    return "differs" if any(difference.values()) else "matched"


def _plus(one: int | None, other: int | None) -> int | None:
    return one if other is None else other + (one or 0)
