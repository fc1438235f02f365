"""Rows as a table for people: fits 80 columns on a terminal, nothing cut off in a pipe, totals with their honesty.

Colour only where a terminal takes it (rich honours NO_COLOR). Exact numbers are in ``--format json`` and ``csv``; here
token counts have four digits.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from collector import honesty, money
from collector.rows import Sums

PIPE_WIDTH: Final = 1000
MIN_NAME: Final = 4
TOKENS: Final = (
    ("input", "input_tokens"),
    ("read", "cache_read_tokens"),
    ("write", "cache_write_tokens"),
    ("output", "output_tokens"),
)
NUMBERS: Final = ("calls", *(name for name, _ in TOKENS), "cost", "status")
STYLES: Final = {
    honesty.EXACT: "green",
    honesty.ESTIMATED: "yellow",
    honesty.PARTIAL: "dark_orange",
    honesty.TOKENS_ONLY: "cyan",
    honesty.UNAVAILABLE: "red",
}
UNITS: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def console() -> Console:
    """Standard output: as wide as the terminal, or as wide as the text where it is a pipe."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=PIPE_WIDTH)


def count(value: int | None) -> str:
    """A token count in at most six characters; ``unknown`` where there is none."""
    if value is None:
        return "–"
    for unit, letter in UNITS:
        if value >= unit * 10:
            return f"{value / unit:.4g}{letter}" if value < unit * 1000 else f"{value // unit:,}{letter}"
    return f"{value:,}"


def cost(row: Sums) -> Text:
    """The cost as it may be shown: a lower bound where calls are missing from it, never a zero for an unknown."""
    text = money.show(row.cost_pico)
    if row.cost_pico is not None and row.unknown_calls:
        text = "≥ " + text
    return Text(text, style="" if row.cost_pico is not None else "italic")


def status(row: Sums) -> Text:
    """The state of a cost in its colour."""
    return Text(row.cost_status, style=STYLES.get(row.cost_status, ""))


def print_sums(out: Console, title: str, rows: Sequence[tuple[Sequence[str], Sums]], total: Sums | None = None) -> None:
    """Print rows, each under the names that identify it; ``title`` names those columns, separated by ``|``.

    On a terminal the names give way to the numbers; in a pipe nothing is cut off.
    """
    titles = title.split("|")
    cells = [[*map(plain, names), *_cells(row)] for names, row in rows]
    last = [plain(name) for name in ("total", *[""] * (len(titles) - 1))]
    sums = [] if total is None else [[*last, *_cells(total)]]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    widest = _name_width(out.width, len(titles), [row[len(titles) :] for row in cells + sums])
    for name in titles:
        table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=widest)
    for name in NUMBERS:
        table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True)
    for section in (cells, sums):
        if section:
            # A row of tall cells: rich draws those several times as fast as as many rows.
            table.add_row(*(Text("\n").join(column) for column in zip(*section, strict=True)))
            table.add_section()
    out.print(table)


def plain(text: str) -> Text:
    """A text as it is: no markup, and a mark for what would move the cursor or change colours.

    Paths and ids of sessions come from stores that an agent can write.
    """
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return Text(text)


def missing(total: Sums) -> str | None:
    """What a total leaves out, as a sentence; ``None`` where it is whole."""
    if not total.unknown_calls:
        return None
    verb = "is" if total.unknown_calls == 1 else "are"
    return f"{total.unknown_calls:,} of {total.calls:,} calls {verb} missing from the cost: it is not known."


def _name_width(width: int, names: int, rows: Sequence[Sequence[Text]]) -> int:
    """How wide a name may be so that a line fits ``width`` beside its numbers."""
    columns = zip(NUMBERS, *rows, strict=True)
    numbers = sum(max(len(cell) for cell in column) + 2 for column in columns)
    return max(MIN_NAME, (width - numbers) // names - 2)


def _cells(row: Sums) -> list[Text]:
    counts = (row.calls, *(getattr(row, key) for _, key in TOKENS))
    return [*(Text(count(value)) for value in counts), cost(row), status(row)]
