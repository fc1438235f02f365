"""Put a price on a record, once, at the record's own time, and say what the figure is worth (PRICING, CONTRACTS 6).

The order: dollars that the vendor or the wire states; the operator's own prices; zero for a local server; the price
book; else no price, with a reason. Nothing here reads a clock, a file or the network; the book is loaded when first
needed. A cost that cannot be known is ``None`` and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Protocol

from collector.honesty import UNBILLED_OUTCOMES, join_caveats, judge
from collector.money import to_pico
from collector.providers import Candidate, is_cloud, is_local, maker_of, provider_of
from collector.rates import Card, bad
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


# A vendor's figure above a million dollars for one record is a broken source, and sums must stay inside 64 bits.
MAX_PLAUSIBLE_PICO: Final = 10**18
# Where a record has no time: a moment after every dated price and in no daily window.
LATEST: Final = 4_102_444_800.0  # 2100-01-01 00:00 UTC
# Distinct (runtime, provider, upstream, model, tier) that are remembered; a log with random model names cannot grow it.
MAX_REMEMBERED: Final = 10_000


class Row(Protocol):
    """One model of one price list in one tier."""

    def at(self, ts: float) -> Card | None:
        """The rates in force at ``ts`` (epoch seconds), ``None`` where the list has no price then."""


class PriceList(Protocol):
    """The price book."""

    @property
    def version(self) -> str:
        """Name and version, kept with every record priced by it."""

    def find(self, provider: str, model: str, tier: str | None) -> Row | None:
        """The row of a model at a provider (ids of the book) in a served tier, ``None`` if there is none."""


class OperatorPrices(Protocol):
    """The operator's own prices, which come before the book."""

    def find(self, names: tuple[str, ...], runtime: str, model: str, tier: str | None) -> Row | None:
        """The row for a model; ``names``: the upstream, the provider as stores and book name it."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """Where to look for the price of one kind of call: rows in order, each with the caveat that using it implies."""

    own: Row | None
    listed: tuple[tuple[Row, str | None], ...]
    reason: str


class Pricer:
    """Prices records. One per process: it remembers what it has looked up, hits and misses alike.

    ``acu_usd``: USD of one Devin ACU by the operator's contract. ``upstream_urls``: configured base URLs by upstream.
    """

    def __init__(
        self,
        book: PriceList,
        overrides: OperatorPrices | None = None,
        acu_usd: Decimal | str | None = None,
        upstream_urls: Mapping[str, str] | None = None,
    ) -> None:
        self.book: Final = book
        self._overrides: Final = overrides
        self.has_own_prices: Final = overrides is not None
        self._acu_pico: Final = None if acu_usd is None else to_pico(acu_usd)
        self._urls: Final = dict(upstream_urls or {})
        self._choices: dict[tuple[str | None, ...], _Choice] = {}

    def price(self, record: Record, upstream: str | None = None) -> Priced:
        """The cost of a record. ``upstream`` is that of a usage line, ``None`` for a store's record."""
        if record.vendor_pico is not None:
            return _by_vendor(record, record.vendor_pico, record.vendor_basis or "billed", record.caveat)
        if record.acu_micro is not None:
            return self._by_acu(record, record.acu_micro)
        if record.outcome in UNBILLED_OUTCOMES and not record.tokens.known:
            return _unpriced(record, "not_billed", counted=False)
        choice = self._choice(record, upstream)
        ts = record.ts if 0 < record.ts < LATEST else LATEST
        if choice.own is not None and (card := choice.own.at(ts)) is not None:
            return _by_card(record, card, None)
        if self._local(record, upstream):
            return Priced(0, judge(0, tokens_known=record.tokens.known), "derived")
        for row, caveat in choice.listed:
            if (card := row.at(ts)) is not None:
                return _by_card(record, card, caveat)
        return _unpriced(record, choice.reason if record.tokens.known else "no_usage")

    def _by_acu(self, record: Record, micro: int) -> Priced:
        if self._acu_pico is None:
            return _unpriced(record, "no_acu_rate")
        pico = (self._acu_pico * micro + 500_000) // 10**6
        return _by_vendor(record, pico, "billed", join_caveats((record.caveat, "configured_rate")))

    def _local(self, record: Record, upstream: str | None) -> bool:
        if record.local:
            return not is_cloud(record.model)
        return is_local(upstream, record.model, self._urls)

    def _choice(self, record: Record, upstream: str | None) -> _Choice:
        key = (record.runtime, record.provider, upstream, record.model, record.service_tier)
        found = self._choices.get(key)
        if found is None:
            if len(self._choices) >= MAX_REMEMBERED:
                self._choices.clear()
            found = self._choices[key] = self._look_up(record, upstream)
        return found

    def _look_up(self, record: Record, upstream: str | None) -> _Choice:
        if record.model is None:
            return _Choice(None, (), "no_model")
        lists = provider_of(record.runtime, record.provider, upstream, record.model)
        rows = [(self.book.find(one.provider, one.model, record.service_tier), one.caveat) for one in lists]
        listed = tuple((row, caveat) for row, caveat in rows if row is not None)
        return _Choice(self._own(record, upstream, lists), listed, "no_price" if lists else "no_provider")

    def _own(self, record: Record, upstream: str | None, lists: tuple[Candidate, ...]) -> Row | None:
        if self._overrides is None or record.model is None:
            return None
        # Whoever serves a model, its maker is another provider: a price there says nothing of a price elsewhere.
        maker = None if upstream or record.provider else maker_of(record.model)
        names = (upstream, record.provider, *(one.provider for one in lists), maker)
        known = tuple(name for name in names if name is not None)
        return self._overrides.find(known, record.runtime, record.model, record.service_tier)


def _by_vendor(record: Record, pico: int, basis: str, caveat: str | None) -> Priced:
    if not 0 <= pico <= MAX_PLAUSIBLE_PICO:
        return _unpriced(record, "bad_usage")
    return Priced(pico, judge(pico, tokens_known=record.tokens.known, caveat=caveat), "vendor", basis, caveat)


def _by_card(record: Record, card: Card, caveat: str | None) -> Priced:
    if record.usage == "missing":  # zeros that a store writes where it was told nothing are no price
        return _unpriced(record, "no_usage")
    if bad(record.tokens):
        return _unpriced(record, "bad_usage")
    charge = card.charge(record.tokens, record.grain, record.usage)
    if charge.pico is None:
        return _unpriced(record, "no_usage" if not record.tokens.total else "no_price")
    timed = 0 < record.ts < LATEST
    if caveat or charge.caveat or record.caveat or record.model_source == "config" or not timed:
        config = "model_from_config" if record.model_source == "config" else None
        caveat = join_caveats((config, record.caveat, caveat, charge.caveat, None if timed else "time_unknown"))
    status = judge(charge.pico, tokens_known=True, complete=charge.complete, caveat=caveat)
    return Priced(charge.pico, status, "derived", card.basis, caveat, card=card)


def _unpriced(record: Record, reason: str, *, counted: bool = True) -> Priced:
    """No figure. Tokens that are all zero or unknown are none: ``unavailable``."""
    return Priced(None, judge(None, tokens_known=bool(record.tokens.total)), reason=reason, counted=counted)
