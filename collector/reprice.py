"""What another price book, another price file or another ACU rate would make of records that have their price.

A record is priced once, when it comes in, and keeps that price: a new book changes no history. This module prices it
again and tells what differs; applied, the new figure is written beside the first with its date, as a correction is
entered in a ledger. What a vendor stated, and a zero that rests on evidence, is not ours to price again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from collector.honesty import Counts
from collector.ledger import Entry, Kind
from collector.money import to_usd
from collector.pricing import Priced, Pricer
from collector.record import Record

# Caveats that say something of the record; all others say something of a price and are found anew.
OF_THE_RECORD: Final = frozenset(
    {"model_from_config", "vendor_estimate", "rounded", "cache_split_unknown", "cumulative_rest"}
)


@dataclass(frozen=True, slots=True)
class Change:
    """A record whose price would be another: the record with its first price, and the second."""

    entry: Entry
    priced: Priced

    @property
    def kind(self) -> Kind:
        """The record's kind with the second price."""
        priced = self.priced
        worth = (priced.status, priced.source, priced.basis, priced.caveat, priced.reason, priced.counted)
        return Kind(self.entry.kind.usage, self.entry.kind.outcome, *worth)

    @property
    def rates(self) -> str | None:
        """The rates of the second price as they are kept."""
        return self.priced.card.data if self.priced.card else None


def changes(entries: Iterable[Entry], pricer: Pricer) -> Iterator[Change]:
    """The records that ``pricer`` prices otherwise than they are priced."""
    for entry in entries:
        if not _is_ours(entry):
            continue
        priced = pricer.price(record_of(entry), entry.upstream if entry.source == "log" else None)
        change = Change(entry, priced)
        if (priced.cost_pico, change.kind, change.rates) != (entry.cost_pico, entry.kind, entry.rates):
            yield change


def record_of(entry: Entry) -> Record:
    """A record of the ledger as it was when it came in, as far as its price goes."""
    caveats = [code for code in (entry.kind.cost_caveat or "").split(",") if code in OF_THE_RECORD]
    return Record(
        runtime=entry.runtime,
        key=entry.id,
        session_id=entry.session_id,
        ts=(entry.ts_ms or 0) / 1000,
        tokens=entry.tokens,
        model=entry.model,
        model_source=entry.model_source,
        provider=None if entry.source == "log" else entry.upstream,
        source=entry.source,
        grain=entry.grain,
        caveat=",".join(caveats) or None,
        acu_micro=entry.acu_micro,
        service_tier=entry.service_tier,
        usage=entry.kind.usage,
        outcome=entry.kind.outcome,
    )


def _is_ours(entry: Entry) -> bool:
    kind = entry.kind
    if not kind.counted:
        return False
    if entry.acu_micro is not None:
        return True
    evident_zero = kind.cost_source == "derived" and entry.rates is None
    return kind.cost_source != "vendor" and not evident_zero


@dataclass(slots=True)
class Difference:
    """All changes of one runtime and model: how many records, what they cost by the first and by the second price."""

    runtime: str
    model: str | None
    records: int = 0
    old_pico: int = 0
    new_pico: int = 0
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    books: set[str] = field(default_factory=set)

    def add(self, change: Change) -> None:
        """Take one change in."""
        self.records += 1
        self.old_pico += change.entry.cost_pico or 0
        self.new_pico += change.priced.cost_pico or 0
        self.old.append(change.entry.kind.cost_status)
        self.new.append(change.priced.status)
        if change.priced.card:
            self.books.add(change.priced.card.book)

    def row(self) -> dict[str, object]:
        """As JSON; a sum of which nothing is known is ``None``."""
        old, new = Counts.of(self.old), Counts.of(self.new)
        return {
            "runtime": self.runtime,
            "model": self.model,
            "records": self.records,
            "cost_usd": to_usd(self.old_pico) if old.priced else None,
            "cost_status": old.status,
            "repriced_usd": to_usd(self.new_pico) if new.priced else None,
            "repriced_status": new.status,
            "books": sorted(self.books),
        }


def differences(found: Iterable[Change]) -> list[Difference]:
    """Changes by runtime and model."""
    sums: dict[tuple[str, str | None], Difference] = {}
    for change in found:
        key = (change.entry.runtime, change.entry.model)
        sums.setdefault(key, Difference(*key)).add(change)
    return [sums[key] for key in sorted(sums, key=str)]
