"""A record of the ledger as flat names and values: what is pushed to a hub and what ClickHouse's columns hold.

One list of names, made of the dataclasses themselves. ``None`` is left out on the wire and stays ``None``; a zero is
always written, so neither turns into the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from collector.ledger import Entry, Kind
from shim.line import TOKEN_CLASSES, Tokens

OWN: Final = tuple(f.name for f in fields(Entry) if f.name not in ("tokens", "kind"))
NAMES: Final = (*OWN, *TOKEN_CLASSES, *Kind._fields)


def flat(entry: Entry) -> dict[str, Any]:
    """Every value of an entry by name, in the order of ``NAMES``."""
    tokens, kind = entry.tokens, entry.kind
    values = {name: getattr(entry, name) for name in OWN}
    for name in TOKEN_CLASSES:
        values[name] = getattr(tokens, name)
    values.update(kind._asdict())
    return values


def entry_of(values: Mapping[str, Any]) -> Entry:
    """The entry of flat values; every name of ``NAMES`` is there."""
    return Entry(
        tokens=Tokens(*(values[name] for name in TOKEN_CLASSES)),
        kind=Kind(*(values[name] for name in Kind._fields)),
        **{name: values[name] for name in OWN},
    )
