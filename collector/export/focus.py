"""FOCUS-shaped rows: what the ledger knows, in the columns of the FinOps cost and usage specification.

Not a conforming dataset, and it does not claim to be one: BilledCost must match an invoice, which nobody here has seen,
so BilledCost, EffectiveCost and ContractedCost are left out. ``ListCost`` is ``ListUnitPrice`` × ``PricingQuantity``,
to the last digit, and null where no list price is known. Dollars that a vendor stated are no list price: they stand in
``x_Cost``, which adds up to the ledger's total, with their basis beside them. One row per hour, meter, price and who
used it; columns of our own begin with ``x_``. https://focus.finops.org/focus-specification/v1-2/
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple, TextIO

import orjson

from collector.export.csv import cell
from collector.ledger import Entry
from collector.money import MILLION, plain
from collector.providers import provider_of
from collector.rates import Card, disjoint, from_data

METERS: Final = {
    "input": "Input tokens",
    "cache_read": "Input tokens (cache read)",
    "cache_write": "Input tokens (cache write)",
    "cache_write_1h": "Input tokens (cache write, 1 hour)",
    "output": "Output tokens",
    "reasoning": "Output tokens (reasoning)",
    "request": "Requests",
    "charge": "Charge stated by the vendor",
    "unknown": "Unknown usage",
}
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class FocusRow:
    """One row; the fields are the columns, in order. Quantities and amounts are exact decimals as text."""

    BillingCurrency: str
    BillingPeriodStart: str
    BillingPeriodEnd: str
    ChargeCategory: str
    ChargeFrequency: str
    ChargePeriodStart: str
    ChargePeriodEnd: str
    ChargeDescription: str
    ConsumedQuantity: str
    ConsumedUnit: str
    InvoiceIssuerName: str
    ListCost: str
    ListUnitPrice: str
    PricingCategory: str
    PricingQuantity: str
    PricingUnit: str
    ProviderName: str
    PublisherName: str
    ResourceId: str
    ResourceType: str
    ServiceCategory: str
    ServiceName: str
    SkuId: str
    SkuMeter: str
    SkuPriceId: str
    SubAccountId: str
    Tags: str
    x_Calls: str
    x_Cost: str
    x_CostBasis: str
    x_CostCaveat: str
    x_CostSource: str
    x_HonestyState: str
    x_PriceBook: str
    x_Runtime: str


COLUMNS: Final = tuple(FocusRow.__dataclass_fields__)


class Sku(NamedTuple):
    """What a row is about. ``rate`` is in pico-USD each, ``None`` without a list price."""

    vm: str
    runtime: str
    provider: str
    model: str
    meter: str
    rate: int | None
    price_id: str
    book: str
    status: str
    source: str
    basis: str
    caveat: str


@dataclass(slots=True)
class Sum:
    """Quantity, money (pico-USD, ``None`` while unknown) and records of one SKU in one hour."""

    quantity: int = 0
    pico: int | None = None
    calls: int = 0


def write(entries: Iterable[Entry], out: TextIO) -> int:
    """Write FOCUS-shaped CSV of records in order of time; how many rows there were."""
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    count = 0
    for row in rows(entries):
        table.writerow([cell("text", value) for value in astuple(row)])
        count += 1
    return count


def rows(entries: Iterable[Entry]) -> Iterator[FocusRow]:
    """The rows of records that come in order of time, hour by hour."""
    counted = (entry for entry in entries if entry.kind.counted)
    for hour, group in groupby(counted, key=lambda entry: None if entry.ts_ms is None else entry.ts_ms // HOUR_MS):
        sums: dict[Sku, Sum] = {}
        for entry in group:
            for number, (sku, quantity, pico) in enumerate(parts(entry)):
                total = sums.setdefault(sku, Sum())
                total.quantity += quantity
                total.calls += number == 0  # a call is counted in its first meter, so that calls add up too
                if pico is not None:
                    total.pico = (total.pico or 0) + pico
        for sku in sorted(sums, key=str):
            yield _row(hour, sku, sums[sku])


def parts(entry: Entry) -> Iterator[tuple[Sku, int, int | None]]:
    """A record cut by meter: (sku, quantity, pico-USD). The money of all parts is the record's cost."""
    found = list(_metered(entry, _card(entry.rates)) if entry.rates else _unmetered(entry))
    yield from found or [(_sku(entry, "unknown"), 0, entry.cost_pico)]


def _metered(entry: Entry, card: Card) -> Iterator[tuple[Sku, int, int | None]]:
    for meter, quantity, rate in card.meters(entry.tokens, entry.grain):
        yield _sku(entry, meter, rate, card), quantity, None if rate is None else quantity * rate


def _unmetered(entry: Entry) -> Iterator[tuple[Sku, int, int | None]]:
    """Money that is not made of unit prices stands in a row of its own, before the tokens."""
    if entry.cost_pico is not None:
        yield _sku(entry, "charge"), 0, entry.cost_pico
    for meter, quantity in disjoint(entry.tokens):
        yield _sku(entry, meter), quantity, None


@lru_cache(maxsize=4096)
def _card(rates: str) -> Card:
    return from_data(rates)


def _provider(entry: Entry) -> str:
    """Who sells what was used; not always the one whose list gave the price."""
    lists = provider_of(entry.runtime, None, entry.upstream, entry.model or "")
    return lists[0].provider if lists else entry.upstream or "unknown"


def _sku(entry: Entry, meter: str, rate: int | None = None, card: Card | None = None) -> Sku:
    kind = entry.kind
    return Sku(
        vm=entry.vm,
        runtime=entry.runtime,
        provider=_provider(entry),
        model=entry.model or "unknown",
        meter=meter,
        rate=rate,
        price_id=card.id if card else "",
        book=card.book if card else "",
        status=kind.cost_status,
        source=kind.cost_source or "",
        basis=kind.cost_basis or "",
        caveat=kind.cost_caveat or "",
    )


def _row(hour: int | None, sku: Sku, total: Sum) -> FocusRow:
    start, end, month, next_month = _period(hour)
    per, unit = (1, "Requests") if sku.meter == "request" else (MILLION, "1000000 Tokens")
    measured = sku.meter not in ("charge", "unknown")
    priced = sku.rate is not None
    return FocusRow(
        BillingCurrency="USD",
        BillingPeriodStart=month,
        BillingPeriodEnd=next_month,
        ChargeCategory="Usage",
        ChargeFrequency="Usage-Based",
        ChargePeriodStart=start,
        ChargePeriodEnd=end,
        ChargeDescription=f"{METERS[sku.meter]} of {sku.model} at {sku.provider}",
        ConsumedQuantity=str(total.quantity) if measured else "",
        ConsumedUnit=("Requests" if per == 1 else "Tokens") if measured else "",
        InvoiceIssuerName=sku.provider,
        ListCost=plain(total.pico) if priced else "",
        ListUnitPrice=plain(sku.rate * per) if sku.rate is not None else "",
        PricingCategory="Standard" if priced else "",
        PricingQuantity=format(Decimal(total.quantity) / per, "f") if measured else "",
        PricingUnit=unit if measured else "",
        ProviderName=sku.provider,
        PublisherName=sku.provider,
        ResourceId=sku.vm,
        ResourceType="Virtual machine",
        ServiceCategory="AI and Machine Learning",
        ServiceName=f"{sku.provider} API",
        SkuId=f"{sku.provider}:{sku.model}",
        SkuMeter=METERS[sku.meter],
        SkuPriceId=sku.price_id,
        SubAccountId=sku.vm,
        Tags=orjson.dumps({"runtime": sku.runtime, "honesty": sku.status}).decode(),
        x_Calls=str(total.calls),
        x_Cost=plain(total.pico),
        x_CostBasis=sku.basis,
        x_CostCaveat=sku.caveat,
        x_CostSource=sku.source,
        x_HonestyState=sku.status,
        x_PriceBook=sku.book,
        x_Runtime=sku.runtime,
    )


def _period(hour: int | None) -> tuple[str, str, str, str]:
    """Charge period and billing period of an hour since the epoch; empty where a record has no time."""
    if hour is None:
        return "", "", "", ""
    start = datetime.fromtimestamp(hour * 3600, UTC)
    month = start.replace(day=1, hour=0)
    next_month = (month + timedelta(days=32)).replace(day=1)
    return _utc(start), _utc(start + timedelta(hours=1)), _utc(month), _utc(next_month)


def _utc(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
