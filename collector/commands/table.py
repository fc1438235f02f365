"""Rows as a table for people: fits 80 columns on a terminal, nothing cut off in a pipe, totals with their honesty.

Colour only where a terminal takes it (rich honours NO_COLOR). Exact numbers are in ``--format json`` and ``csv``; here
token counts have four digits.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

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


def print_sums(out: Console, title: str, rows: Sequence[tuple[Sequence[str], Sums]], total: Sums | None = None) -> None:
    """Print rows, each under the names that identify it; ``title`` names those columns, separated by ``|``.

    On a terminal the names give way to the numbers; in a pipe nothing is cut off. The lines are made here and not by
    rich's tables, which take ten times as long over thousands of rows.
    """
    titles = title.split("|")
    lines = [(list(names), _cells(row)) for names, row in rows]
    if total is not None and len(rows) != 1:
        lines.append((["total", *[""] * (len(titles) - 1)], _cells(total)))
    widest = _name_width(out.width, len(titles), [numbers for _, numbers in lines])
    names = [[_cut(name, widest) for name in row] for row in (titles, *(names for names, _ in lines))]
    numbers = [list(NUMBERS), *(numbers for _, numbers in lines)]
    name_widths = [max(map(cell_len, column)) for column in zip(*names, strict=True)]
    number_widths = [max(map(len, column)) for column in zip(*numbers, strict=True)]
    segments: list[Segment] = []
    for place, (name, number) in enumerate(zip(names, numbers, strict=True)):
        if place == len(rows) + 1:
            segments.append(Segment.line())
        padded = [set_cell_size(text, width) for text, width in zip(name, name_widths, strict=True)]
        padded += [text.rjust(width) for text, width in zip(number[:-1], number_widths, strict=False)]
        line = "  ".join(padded)
        if place:
            style = Style.parse(STYLES.get(number[-1], ""))
            segments += [Segment(f"{line}  "), Segment(number[-1], style), Segment.line()]
        else:
            rule = "─" * (cell_len(line) + 2 + number_widths[-1])
            segments += [Segment(f"{line}  {number[-1]}", Style(bold=True)), Segment(f"\n{rule}\n")]
    out.print(Segments(segments), crop=False, end="")


def missing(total: Sums) -> str | None:
    """What a total leaves out, as a sentence; ``None`` where it is whole."""
    if not total.unknown_calls:
        return None
    verb = "is" if total.unknown_calls == 1 else "are"
    return f"{total.unknown_calls:,} of {total.calls:,} calls {verb} missing from the cost: it is not known."


def _name_width(width: int, names: int, rows: Sequence[Sequence[str]]) -> int:
    """How wide a name may be so that a line fits ``width`` beside its numbers."""
    columns = zip(NUMBERS, *rows, strict=True)
    numbers = sum(max(map(len, column)) + 2 for column in columns)
    return max(MIN_NAME, (width - numbers) // names - 2)


def _cut(name: str, widest: int) -> str:
    """A name in at most ``widest`` cells; what would move the cursor or change colours is shown as a mark."""
    if not name.isprintable():  # session ids come from stores that an agent can write
        name = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    return name if cell_len(name) <= widest else f"{set_cell_size(name, widest - 1)}…"


def _cells(row: Sums) -> list[str]:
    return [count(row.calls), *(count(getattr(row, key)) for _, key in TOKENS), cost(row), row.cost_status]


def cost(row: Sums) -> str:
    """The cost as it may be shown: a lower bound where calls are missing from it, never a zero for an unknown."""
    text = money.show(row.cost_pico)
    return f"≥ {text}" if row.cost_pico is not None and row.unknown_calls else text
