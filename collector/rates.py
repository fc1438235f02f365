"""A price as integers: rates in pico-USD per token, chosen by the size of the whole request, and what a call costs.

Pure arithmetic (PRICING): the four disjoint classes at their own rates, a class without a rate at its parent's (cache
reads and writes at the input rate, reasoning at the output rate). A threshold moves *all* tokens of the request to the
higher rate. The price library is the oracle of this file in the tests.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from shim.line import Tokens

CLASSES: Final = ("input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning")
# More tokens than this in one record is a broken source, not a call; it also keeps every cost far inside 64 bits.
MAX_PLAUSIBLE_TOKENS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Rates:
    """Pico-USD per token of each class, ``None`` where the list has no such price; ``request``: per request."""

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    output: int | None = None
    reasoning: int | None = None
    request: int = 0


@dataclass(frozen=True)
class Card:
    """The rates of one model at one time in one tier of service.

    ``steps``: (threshold in input tokens, rates), ascending from 0; the last step whose threshold is *below* the
    request's whole input applies to all its tokens. ``caveat``: what is approximate about this card.
    """

    steps: tuple[tuple[int, Rates], ...]
    provider: str
    matched_model: str
    book: str
    caveat: str | None = None
    basis: str = field(default="list_price")

    def rates(self, whole_input: int) -> Rates:
        """The rates for a request with this many input tokens, cache included."""
        found = self.steps[0][1]
        for threshold, rates in self.steps[1:]:
            if whole_input > threshold:
                found = rates
        return found

    @cached_property
    def data(self) -> str:
        """The rates as canonical JSON, to be kept beside the records that were priced with them."""
        steps = [
            {"above_input_tokens": threshold}
            | {name: getattr(rates, name) for name in (*CLASSES, "request") if getattr(rates, name)}
            for threshold, rates in self.steps
        ]
        body = {"book": self.book, "provider": self.provider, "model": self.matched_model, "pico_usd": steps}
        return json.dumps(body, sort_keys=True, separators=(",", ":"))

    @cached_property
    def id(self) -> str:
        """A short hash of ``data``: the same rates of the same book have the same id everywhere."""
        return hashlib.sha256(self.data.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Charge:
    """What a card makes of a call: pico-USD or ``None``, whether that covers all of it, and the caveat."""

    pico: int | None
    complete: bool
    caveat: str | None


def bad(tokens: Tokens) -> bool:
    """Whether the counts cannot be those of one record: a subset above its whole, or an absurd number."""
    for part, whole in (
        (tokens.cache_write_1h_tokens, tokens.cache_write_tokens),
        (tokens.reasoning_tokens, tokens.output_tokens),
    ):
        if part and (whole is None or part > whole):
            return True
    return any(
        count is not None and not 0 <= count <= MAX_PLAUSIBLE_TOKENS
        for count in (tokens.input_tokens, tokens.cache_read_tokens, tokens.cache_write_tokens, tokens.output_tokens)
    )
