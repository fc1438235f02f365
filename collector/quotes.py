"""Prices of usage lines, fast: what a price depends on is looked up once, the rest is integer arithmetic.

The pricer decides (``collector.pricing``). Calls that agree on names, on the hour and on which token classes are
known and not zero get the same verdict and the same rates, as long as the whole input stays between two thresholds; so
the verdict is learned from the first of them. What is learned is used only if its arithmetic gave the pricer's figure.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Final

from collector.call import Call
from collector.ledger import Kind
from collector.money import to_pico
from collector.pricing import Priced, Pricer
from collector.rates import MAX_PLAUSIBLE_TOKENS, Card
from collector.record import Record

MAX_REMEMBERED: Final = 4_000
# The book's prices begin on days and at hours of UTC; an operator's may begin on any minute.
BOOK_EPOCH: Final = 3600
OWN_EPOCH: Final = 60
NO_LIMIT: Final = sys.maxsize
Known = tuple[int | None, ...]
Counts = tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Quote:
    """A verdict for calls whose whole input is above ``low`` and not above ``high`` tokens.

    ``per_token``: pico-USD per token of input, cache read, cache write, 1-hour cache write, output and reasoning, and
    per request; ``None`` where the cost is ``fixed`` (``None`` or 0). ``rates``: canonical JSON.
    """

    low: int
    high: int
    kind: Kind
    rates: str | None
    fixed: int | None
    per_token: tuple[int, int, int, int, int, int, int] | None


class Quotes:
    """Prices lines with one pricer; remembers verdicts."""

    def __init__(self, pricer: Pricer) -> None:
        self._pricer = pricer
        self._epoch = OWN_EPOCH if pricer.has_own_prices else BOOK_EPOCH
        self._quotes: dict[tuple[object, ...], list[Quote]] = {}

    def price(self, call: Call, known: Known, counts: Counts) -> tuple[int | None, Quote]:
        """The cost in pico-USD, and the verdict with kind and rates.

        ``known``: per token class ``None`` if unknown, else whether it is more than 0; ``counts``: the same with 0 for
        unknown.
        """
        if call.reported_cost_usd is not None:
            return self._price(call)[0]
        fresh, read, write, hour, output, reasoning = counts
        whole = fresh + read + write
        if hour > write or reasoning > output or whole > MAX_PLAUSIBLE_TOKENS or output > MAX_PLAUSIBLE_TOKENS:
            return self._price(call)[0]
        key = (call.form, int(call.ts) // self._epoch, known)
        for quote in self._quotes.get(key, ()):
            if quote.low < whole <= quote.high:
                if (rates := quote.per_token) is None:
                    return quote.fixed, quote
                a, b, c, d, e, f, request = rates  # as ``_cost``, of which a call would cost as much
                return (
                    fresh * a + read * b + (write - hour) * c + hour * d + (output - reasoning) * e + reasoning * f
                ) + request, quote
        return self._learn(key, call, counts)

    def _learn(self, key: tuple[object, ...], call: Call, counts: Counts) -> tuple[int | None, Quote]:
        (cost, quote), priced = self._price(call)
        if priced.card is not None:
            quote = _by_card(quote, priced.card, sum(counts[:3]))
            assert quote.per_token is not None
            if _cost(quote.per_token, counts) != cost:
                return cost, quote
        if len(self._quotes) >= MAX_REMEMBERED:
            self._quotes.clear()
        self._quotes.setdefault(key, []).append(quote)
        return cost, quote

    def _price(self, call: Call) -> tuple[tuple[int | None, Quote], Priced]:
        stated = call.reported_cost_usd
        record = Record(
            runtime=call.runtime,
            key=call.id,
            session_id=call.session,
            ts=call.ts,
            tokens=call.tokens,
            model=call.model,
            source="log",
            vendor_pico=None if stated is None else to_pico(stated),
            vendor_basis=None if stated is None else "billed",
            service_tier=call.service_tier,
            usage=call.usage,
            outcome=call.outcome,
        )
        priced = self._pricer.price(record, call.upstream)
        kind = kind_of(call.usage, call.outcome, priced)
        quote = Quote(-1, NO_LIMIT, kind, priced.card.data if priced.card else None, priced.cost_pico, None)
        return (priced.cost_pico, quote), priced


def kind_of(usage: str, outcome: str, priced: Priced) -> Kind:
    """What a record's numbers are worth."""
    return Kind(
        usage, outcome, priced.status, priced.source, priced.basis, priced.caveat, priced.reason, priced.counted
    )


def _by_card(quote: Quote, card: Card, whole: int) -> Quote:
    """The quote for every request of the size class of ``whole``, with its rates spelled out (as ``Card.charge``)."""
    rates = card.rates(whole)
    thresholds = [threshold for threshold, _ in card.steps[1:]]
    fresh, output = rates.input or 0, rates.output or 0
    return replace(
        quote,
        low=max((threshold for threshold in thresholds if threshold < whole), default=-1),
        high=min((threshold for threshold in thresholds if threshold >= whole), default=NO_LIMIT),
        per_token=(
            fresh,
            fresh if rates.cache_read is None else rates.cache_read,
            fresh if rates.cache_write is None else rates.cache_write,
            rates.cache_write_1h or 0,
            output,
            output if rates.reasoning is None else rates.reasoning,
            rates.request,
        ),
    )


def _cost(per_token: tuple[int, ...], counts: Counts) -> int:
    fresh, read, write, hour, output, reasoning = counts
    a, b, c, d, e, f, request = per_token
    return fresh * a + read * b + (write - hour) * c + hour * d + (output - reasoning) * e + reasoning * f + request
