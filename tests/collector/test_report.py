"""What the commands print for people: tables that fit a terminal and never show an unknown as zero."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from collector import honesty
from collector.commands.table import PIPE_WIDTH, count, missing, print_sums
from collector.rows import TotalRow


def row(**values: object) -> TotalRow:
    empty = dict.fromkeys(TotalRow.__dataclass_fields__)
    return TotalRow(**(empty | {"calls": 1, "unknown_calls": 0, "cost_status": honesty.EXACT} | values))  # type: ignore[arg-type]


BIG = row(
    calls=12_345_678,
    unknown_calls=1,
    input_tokens=987_654_321_987,
    cache_read_tokens=10**12,
    cache_write_tokens=123_456,
    output_tokens=9_999,
    cost_pico=1_234 * 10**12,
    cost_status=honesty.TOKENS_ONLY,
)


def printed(rows: list[TotalRow], width: int, title: str = "session|runtime", total: TotalRow | None = None) -> str:
    out = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    names = ["a-very-long-session-name-that-nobody-will-ever-type"] * (title.count("|") + 1)
    print_sums(out, title, [(names, one) for one in rows], total)
    return out.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("width", [80, 100, 132])
def test_a_table_fits_the_terminal_and_cuts_no_number(width: int) -> None:
    text = printed([BIG, row(calls=7)], width, total=BIG)
    assert max(map(len, text.splitlines())) <= width
    for number in ("12.35M", "987.7G", "1,000G", "123.5k", "9,999", "≥ $1,234.00", "tokens_only"):
        assert number in text


def test_nothing_is_cut_off_in_a_pipe() -> None:
    assert "a-very-long-session-name-that-nobody-will-ever-type" in printed([BIG], PIPE_WIDTH)


def test_a_name_moves_no_cursor_and_changes_no_colour() -> None:
    out = Console(file=io.StringIO(), width=PIPE_WIDTH, highlight=False, color_system=None)
    print_sums(out, "session", [(["a\x1b[2J\rb\n[red]c"], row())])
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert text.splitlines()[2].startswith("a\ufffd[2J\ufffdb\ufffd[red]c ")
    assert len(text.splitlines()) == 3


def test_an_unknown_cost_reads_unknown_and_an_unknown_count_is_no_zero() -> None:
    text = printed([row(unknown_calls=1, cost_status=honesty.UNAVAILABLE)], 80, "day")
    assert "unknown" in text
    assert "$" not in text
    assert " 0 " not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (9999, "9,999"), (10_000, "10k"), (12_440, "12.44k"), (1_234_567, "1,234k")],
)
def test_counts_are_short(value: int | None, text: str) -> None:
    assert count(value) == text


def test_a_total_says_what_it_leaves_out() -> None:
    assert missing(row(calls=6, unknown_calls=1)) == "1 of 6 calls is missing from the cost: it is not known."
    assert missing(row()) is None
