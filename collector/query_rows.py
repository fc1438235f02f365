"""A ledger's totals, sessions and records as rows: the one place where sums get their worth (``collector.honesty``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from collector.honesty import Counts, agree, combine, join_caveats
from collector.ledger import Entry, Group, Kind, SecondPrice, SessionHead, Total, totals
from collector.money import to_usd
from collector.rows import CallRow, SessionRow, iso
from shim.line import TOKEN_CLASSES

# Fields that an entry and the row made of it have in common.
SHARED: Final = (
    "model",
    "model_source",
    "upstream",
    "wire",
    "service_tier",
    "grain",
    "source",
    "http_status",
    "stream",
    "duration_ms",
    "ttft_ms",
    "cost_pico",
)
TOTAL_CLASSES: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
TOTAL_PLACES: Final = tuple(TOKEN_CLASSES.index(name) for name in TOTAL_CLASSES)


def sums(total: Total) -> dict[str, Any]:
    """The numbers of a row (the fields of ``rows.Sums``) from its total: the one place where sums get their worth."""
    known, cost = total.known, total.cost_pico if total.priced else None
    tokens = [count if some else None for count, some in zip(total.sums, known, strict=True)]
    status, source, basis, caveat = _worth(total.counted, total.priced)
    return {
        "calls": total.calls,
        "unknown_calls": total.unknown,
        "calls_without_tokens": total.without_tokens,
        **dict(zip(TOKEN_CLASSES, tokens, strict=True)),
        "total_tokens": sum(filter(None, map(tokens.__getitem__, TOTAL_PLACES))) if any(known) else None,
        "cost_usd": to_usd(cost),
        "cost_pico": cost,
        "cost_status": status,
        "cost_source": source,
        "cost_basis": basis,
        "cost_caveat": caveat,
        "acu": total.acu_micro / 10**6 if total.acu_known else None,
    }


@lru_cache(1024)  # a ledger has few kinds, and many sums are of the same ones
def _worth(counted: frozenset[Kind], priced: frozenset[Kind]) -> tuple[str, str | None, str | None, str | None]:
    """Status, source, basis and caveat of a sum by the kinds of its parts, and those of them that have a cost."""
    return (
        combine(Counts.of(kind.cost_status for kind in counted)),
        agree(kind.cost_source for kind in priced),
        agree(kind.cost_basis for kind in priced),
        join_caveats(kind.cost_caveat for kind in priced),
    )


def session_row(head: SessionHead, groups: Sequence[Group], second: Sequence[SecondPrice]) -> SessionRow:
    """A session with the sum of its groups and what was priced of it a second time."""
    models = sorted({group.key[1] for group in groups if group.key[1] is not None})
    return SessionRow(
        session_id=head.session_id,
        session_ref=head.session_ref,
        vm=head.vm,
        runtime=head.runtime,
        model=head.model,
        models=tuple(models),
        model_source=head.model_source,
        started_at=iso(head.started_ms),
        ended_at=iso(head.ended_ms),
        parent_session_id=head.parent_session_id,
        source=head.source,
        ambiguous_calls=head.ambiguous,
        **_second_of(second),
        **sums(totals.total((), groups)),
    )


def _second_of(prices: Sequence[SecondPrice]) -> dict[str, Any]:
    """Second prices of a session as the fields of ``SessionRow``."""
    if not prices:
        return {}
    counts = Counts.of(price.estimate.kind.cost_status for price in prices)
    costs = [price.estimate.cost_pico for price in prices if price.estimate.cost_pico is not None]
    firsts = [price.first_pico for price in prices if price.first_pico is not None]
    return {
        "second_estimate_calls": len(prices),
        "second_estimate_at": iso(max(price.estimate.made_ms for price in prices)),
        "second_estimate_usd": to_usd(sum(costs)) if costs else None,
        "second_estimate_status": counts.status,
        "second_estimate_first_usd": to_usd(sum(firsts)) if firsts else None,
    }


def call_row(entry: Entry, second: SecondPrice | None) -> CallRow:
    """A record as it is shown."""
    rates = orjson.loads(entry.rates) if entry.rates else None
    kind = entry.kind
    return CallRow(
        id=entry.id,
        at=iso(entry.ts_ms),
        session_ref=entry.session_ref,
        usage=kind.usage,
        outcome=kind.outcome,
        cost_usd=to_usd(entry.cost_pico),
        cost_status=kind.cost_status,
        cost_source=kind.cost_source,
        cost_basis=kind.cost_basis,
        cost_caveat=kind.cost_caveat,
        rates=rates,
        book=rates.get("book") if rates else None,
        **_second_price(second),
        **{name: getattr(entry.tokens, name) for name in TOKEN_CLASSES},
        **{name: getattr(entry, name) for name in SHARED},
    )


def _second_price(second: SecondPrice | None) -> dict[str, Any]:
    """A record's second price as the fields of ``CallRow``."""
    if second is None:
        return {}
    estimate = second.estimate
    return {
        "second_estimate_at": iso(estimate.made_ms),
        "second_estimate_usd": to_usd(estimate.cost_pico),
        "second_estimate_status": estimate.kind.cost_status,
        "second_estimate_caveat": estimate.kind.cost_caveat,
        "second_estimate_rates": orjson.loads(estimate.rates) if estimate.rates else None,
    }
