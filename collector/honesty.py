"""What a cost may claim about itself: the five states, their source, basis and caveats, and how they add up.

The tables here are the only definition (CONTRACTS 6); README, page, API and tests quote them. Two pure functions use
them: ``judge`` for one record and ``combine`` for any sum. ``combine`` works from counts alone, so a rollup that keeps
one count per state gives the same answer as the records it stands for, for any way of cutting them up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

EXACT: Final = "exact"
ESTIMATED: Final = "estimated"
PARTIAL: Final = "partial"
TOKENS_ONLY: Final = "tokens_only"
UNAVAILABLE: Final = "unavailable"


@dataclass(frozen=True, slots=True)
class State:
    """One ``cost_status``: when it holds, what it promises a reader, and the text of its badge."""

    name: str
    when: str
    promise: str
    badge: str


# Best first. A sum is never better than its worst part.
STATES: Final = (
    State(
        EXACT, "The vendor's own dollars, or every call priced.", "Nothing is missing and nothing was guessed.", "exact"
    ),
    State(
        ESTIMATED,
        "As exact, with a caveat named in cost_caveat.",
        "Nothing is missing; the caveat says what could be off.",
        "estimated",
    ),
    State(
        PARTIAL,
        "Some calls are priced and some are not.",
        "The figure is a lower bound; unknown_calls says how many are missing.",
        "partial",
    ),
    State(
        TOKENS_ONLY,
        "Tokens are known, no call could be priced.",
        "The tokens are real; the cost is unknown.",
        "tokens only",
    ),
    State(
        UNAVAILABLE,
        "Neither tokens nor a cost are known.",
        "Something may have been spent; nobody recorded it.",
        "unavailable",
    ),
)
STATUSES: Final = tuple(state.name for state in STATES)
# A call in one of these is one of a sum's unknown_calls: its cost is not, or not wholly, in the figure.
INCOMPLETE: Final = frozenset({PARTIAL, TOKENS_ONLY, UNAVAILABLE})

SOURCES: Final = {
    "vendor": "The vendor or the wire stated the charge.",
    "derived": "Computed here from tokens and a rate.",
}
BASES: Final = {
    "billed": "Money that the vendor charged.",
    "runtime_price": "The runtime's own price list; nobody was billed this amount.",
    "list_price": "Our price book or the operator's prices, applied to the call's own time.",
}

# Why a figure is only estimated, or partial: one sentence a code. A record's cost_caveat joins its codes with commas.
CAVEATS: Final = {
    "model_from_config": "The record names no model; the one configured now was assumed.",
    "vendor_estimate": "The source calls its own figure an estimate.",
    "rounded": "The source rounds its numbers.",
    "configured_rate": "Dollars come from a rate that the operator configured.",
    "cache_split_unknown": "The source does not say how much of the input came from the cache.",
    "reasoning_split_unknown": "Reasoning has its own price and the source does not say how much of the output it was.",
    "other_basis": "The vendor bills this runtime on another basis than tokens at list price.",
    "provider_from_model": "The record names no provider; the list price of the model's maker was used.",
    "model_alias": "The model's display name was translated to a price key.",
    "prefix_match": "The price is that of a model whose name is only the beginning of this one's.",
    "time_unknown": "The record has no time; the newest price was used.",
    "before_first_price": "The call is older than the first dated price of its model.",
    "time_of_day": "The price depends on the hour and the weekday, which the price book knows only roughly.",
    "tier_not_priced": "The served tier has no price of its own in the book; the standard one was used.",
    "tier_unknown": "The price depends on the size of each request and the record sums several.",
    "no_cache_rate": "The book has no cache price for this model; cached tokens are priced as input.",
    "no_1h_rate": "The book has no price for one-hour cache writes of this model; those tokens are not in the figure.",
    "no_rate": "The book has no price for one of the token classes; those tokens are not in the figure.",
    "usage_partial": "Only a part of the call's usage was seen; the figure covers that part.",
    "cumulative_rest": "What a running total of the runtime has beyond its single records.",
}

_PLACES: Final = {code: place for place, code in enumerate(CAVEATS)}

# Why a call has no price. The keys are the label of the unpriced-calls metric.
REASONS: Final = {
    "no_usage": "No token counts were reported.",
    "no_model": "No model is known.",
    "no_provider": "The upstream or provider is none that the price book knows.",
    "no_price": "The price book has no price for this model at this provider.",
    "no_acu_rate": "The vendor counts ACU and no rate is configured (VM_USAGE_ACU_USD).",
    "bad_usage": "The numbers cannot be right, so no price was put on them.",
    "not_billed": "The call was refused or never reached the provider, and no usage was reported.",
}

# Outcomes that end before a provider has worked: without usage they are no billable call, neither free nor unknown.
# A call cut, failed or interrupted later may well have been billed, so without usage it stays an unknown.
UNBILLED_OUTCOMES: Final = frozenset({"rejected", "unreachable"})


def judge(cost_pico: int | None, *, tokens_known: bool, complete: bool = True, caveat: str | None = None) -> str:
    """The ``cost_status`` of one record.

    ``complete``: the cost covers everything the record stands for. Neither a caveat nor an incomplete cost is ever
    ``exact``, and no cost at all is never a figure.
    """
    if cost_pico is None:
        return TOKENS_ONLY if tokens_known else UNAVAILABLE
    if not complete:
        return PARTIAL
    return ESTIMATED if caveat else EXACT


@dataclass(frozen=True, slots=True)
class Counts:
    """How many records of a sum are in each state. Records that are no billable call are in none of them."""

    n_exact: int = 0
    n_estimated: int = 0
    n_partial: int = 0
    n_tokens_only: int = 0
    n_unavailable: int = 0

    @classmethod
    def of(cls, statuses: Iterable[str]) -> Counts:
        """Count states by name. Raises ``KeyError`` for a name that is none of ``STATUSES``."""
        counts = dict.fromkeys(STATUSES, 0)
        for status in statuses:
            counts[status] += 1
        return cls(*(counts[name] for name in STATUSES))

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def status(self) -> str:
        """The ``cost_status`` of the sum; ``unavailable`` where there is nothing at all."""
        return combine(self)

    @property
    def unknown_calls(self) -> int:
        """How many calls are missing from the sum, wholly or in part."""
        return self.n_partial + self.n_tokens_only + self.n_unavailable

    @property
    def priced(self) -> int:
        """How many calls have a cost in the sum."""
        return self.n_exact + self.n_estimated + self.n_partial


COUNT_NAMES: Final = tuple(f.name for f in fields(Counts))


def combine(counts: Counts) -> str:
    """The ``cost_status`` of a sum from the states of its parts.

    ``exact`` only if every part is; ``estimated`` if none is missing; ``partial`` if some are priced and some are not;
    ``tokens_only`` if tokens are known and nothing is priced; else ``unavailable``, also for a sum of nothing.
    """
    if counts.priced:
        if counts.unknown_calls:
            return PARTIAL
        return ESTIMATED if counts.n_estimated else EXACT
    return TOKENS_ONLY if counts.n_tokens_only else UNAVAILABLE


def agree(values: Iterable[str | None]) -> str | None:
    """The ``cost_source`` or ``cost_basis`` of a sum: what its priced parts agree on, ``None`` where they differ."""
    found = {value for value in values if value is not None}
    return found.pop() if len(found) == 1 else None


def join_caveats(codes: Iterable[str | None]) -> str | None:
    """Several caveats as one ``cost_caveat``: distinct codes in the order of ``CAVEATS``, joined with commas."""
    found = {code for joined in codes if joined for code in joined.split(",")}
    return ",".join(sorted(found, key=lambda code: (_PLACES.get(code, len(_PLACES)), code))) or None


def explain(caveat: str | None) -> str:
    """The sentences behind a ``cost_caveat``, one after the other; empty for ``None``."""
    return " ".join(CAVEATS.get(code, code) for code in (caveat or "").split(",") if code)
