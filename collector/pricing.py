"""Put a price on a record, once, at the record's own time, and say what the figure is worth (PRICING, CONTRACTS 6).

The order: dollars that the vendor or the wire states; the operator's own prices; zero for a local server; the price
book; else no price, with a reason. Nothing here reads a clock, a file or the network; the book is loaded when first
needed. A cost that cannot be known is ``None`` and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from collector.rates import Card
from collector.record import Record


@dataclass(frozen=True, slots=True)
class Priced:
    """The money side of a record.

    ``cost_pico``: pico-USD or ``None``. ``status``, ``source``, ``basis``, ``caveat``: as in ``collector.honesty``.
    ``reason``: why there is no cost (a key of ``honesty.REASONS``), ``None`` where there is one.
    ``counted``: whether the record takes part in sums and counts of states; a refused call without usage does not, it
    is neither free nor unknown.
    ``card``: the rates used, with ``card.id`` (hash), ``card.data`` (canonical JSON), ``card.book`` (version),
    ``card.provider`` and ``card.matched_model``; ``None`` where no list price was applied.
    """

    cost_pico: int | None
    status: str
    source: str | None = None
    basis: str | None = None
    caveat: str | None = None
    reason: str | None = None
    counted: bool = True
    card: Card | None = None


class PriceList(Protocol):
    """A book of prices or the operator's file."""

    version: str

    def card(self, provider: str, model: str, ts: float, tier: str | None) -> Card | None:
        """The rates of a model at ``ts`` (epoch seconds) in a served tier, ``None`` if the list has no price."""


class Pricer:
    """Prices records. One per process: it remembers what it has looked up."""

    def __init__(
        self,
        book: PriceList,
        overrides: PriceList | None = None,
        acu_usd: str | None = None,
        upstream_urls: Mapping[str, str] | None = None,
    ) -> None:
        self.book = book
        self.overrides = overrides
        self.acu_usd = acu_usd
        self.upstream_urls = dict(upstream_urls or {})

    def price(self, record: Record, upstream: str | None = None, wire: str | None = None) -> Priced:
        """The cost of a record. ``upstream`` and ``wire`` are those of a usage line, ``None`` for a store's record."""
        raise NotImplementedError
