"""CSV: one row per record, UTF-8, a header, every digit of the money, an empty cell for what is not known.

A text that a spreadsheet would run as a formula gets an apostrophe in front (CWE-1236): model names and session ids
come from stores that an agent can write.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Any, Final, TextIO

from collector.export.records import COLUMNS, NAMES, DayOf, values
from collector.ledger import Entry
from collector.money import plain

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def write(entries: Iterable[Entry], day_of: DayOf, out: TextIO) -> int:
    """Write records to ``out``; how many there were. ``day_of`` gives the local day of an epoch time in seconds."""
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(NAMES)
    count = 0
    for entry in entries:
        rows.writerow([cell(column.kind, value) for column, value in zip(COLUMNS, values(entry, day_of), strict=True)])
        count += 1
    return count


def cell(kind: str, value: Any) -> str:
    """A value as the text of its cell."""
    if kind == "money":
        return plain(value)
    if value is None:
        return ""
    if kind == "flag":
        return "true" if value else "false"
    text = str(value)
    return f"'{text}" if kind == "text" and text.startswith(FORMULA) else text
