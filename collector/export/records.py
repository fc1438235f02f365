"""The columns of a record in an export: one table, read by CSV, Parquet and the documentation.

Money stands in columns that cannot be mistaken for one another: ``cost_usd`` with every digit, its ``cost_status`` and
its ``cost_basis``. Whoever adds ``cost_usd`` up without looking at the status adds up a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import orjson

from collector.ledger import Entry
from collector.rows import iso
from shim.line import TOKEN_CLASSES

DayOf = Callable[[float], date]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: name, kind (``text``, ``count``, ``money``, ``flag``), where its value comes from, and what it is."""

    name: str
    kind: str
    value: Callable[[Entry, DayOf], Any]
    help: str


def _field(name: str) -> Callable[[Entry, DayOf], Any]:
    return lambda entry, day_of: getattr(entry, name)


def _kind(name: str) -> Callable[[Entry, DayOf], Any]:
    return lambda entry, day_of: getattr(entry.kind, name)


def _tokens(name: str) -> Callable[[Entry, DayOf], Any]:
    return lambda entry, day_of: getattr(entry.tokens, name)


def _day(entry: Entry, day_of: DayOf) -> str | None:
    return None if entry.ts_ms is None else day_of(entry.ts_ms / 1000).isoformat()


def _book(entry: Entry, day_of: DayOf) -> str | None:
    return None if entry.rates is None else orjson.loads(entry.rates).get("book")


COLUMNS: Final = (
    Column("id", "text", _field("id"), "Identity of the record over the fleet."),
    Column("at", "text", lambda entry, day_of: iso(entry.ts_ms), "When the call began, ISO 8601 UTC."),
    Column("day", "text", _day, "Its day in the ledger's time zone."),
    Column("vm", "text", _field("vm"), "The VM."),
    Column("runtime", "text", _field("runtime"), "The agent runtime."),
    Column("source", "text", _field("source"), "log (the shim's line) or vendor (the runtime's store)."),
    Column("session_id", "text", _field("session_id"), "The session, by the source's own id."),
    Column("session_ref", "text", _field("session_ref"), "The line's opaque reference."),
    Column("parent_session_id", "text", _field("parent_session_id"), "The session it was started from."),
    Column("model", "text", _field("model"), "The model."),
    Column("model_source", "text", _field("model_source"), "log, config, stream or none."),
    Column("upstream", "text", _field("upstream"), "The upstream of the shim's route, or the store's provider."),
    Column("wire", "text", _field("wire"), "The API spoken."),
    Column("service_tier", "text", _field("service_tier"), "The served tier."),
    Column("grain", "text", _field("grain"), "call, turn or session."),
    Column("usage", "text", _kind("usage"), "reported, partial or missing."),
    Column("outcome", "text", _kind("outcome"), "How the call ended."),
    Column("http_status", "count", _field("http_status"), "The upstream's status."),
    Column("duration_ms", "count", _field("duration_ms"), "Duration in ms."),
    Column("ttft_ms", "count", _field("ttft_ms"), "Time to the first token in ms."),
    *(Column(name, "count", _tokens(name), "Tokens of this class.") for name in TOKEN_CLASSES),
    Column("cost_usd", "money", _field("cost_pico"), "Cost in USD; empty where unknown."),
    Column("cost_status", "text", _kind("cost_status"), "What the cost is worth."),
    Column("cost_source", "text", _kind("cost_source"), "vendor or derived."),
    Column("cost_basis", "text", _kind("cost_basis"), "billed, runtime_price or list_price."),
    Column("cost_caveat", "text", _kind("cost_caveat"), "Why the cost is only estimated or partial."),
    Column("unpriced_reason", "text", _kind("reason"), "Why there is no cost."),
    Column("counted", "flag", _kind("counted"), "Whether it takes part in sums; a refused call does not."),
    Column("price_book", "text", _book, "The price list that was used."),
)
NAMES: Final = tuple(column.name for column in COLUMNS)


def values(entry: Entry, day_of: DayOf) -> list[Any]:
    """A record's values in the order of ``COLUMNS``; money still in pico-USD."""
    return [column.value(entry, day_of) for column in COLUMNS]
