"""Query parameters: each mistake is named with what is allowed."""

from datetime import date

import pytest

from collector.api.parameters import PARAMETERS, ParameterError, filter_of, page_of, read
from collector.windows import Window

ALL = tuple(PARAMETERS)


def named(name: str) -> Window:
    return Window(date(2026, 8, 1), date(2026, 8, 31))


@pytest.mark.parametrize(
    ("query", "name", "allowed"),
    [
        ([("widow", "today")], "widow", "allowed: window"),
        ([("window", "fortnight")], "window", "one of today, week"),
        ([("since", "last week")], "since", "YYYY-MM-DD"),
        ([("since", "2026-02-30")], "since", "YYYY-MM-DD"),
        ([("limit", "0")], "limit", "1 to 1000"),
        ([("limit", "1e3")], "limit", "1 to 1000"),
        ([("sort", "name")], "sort", "recent, cost, tokens, calls"),
        ([("runtime", "")], "runtime", "printable"),
        ([("model", "a\nb")], "model", "printable"),
        ([("cursor", "<x>")], "cursor", "next_cursor"),
        ([("vm", "a"), ("vm", "b")], "vm", "twice"),
    ],
)
def test_a_wrong_parameter_is_named_with_what_is_allowed(query: list[tuple[str, str]], name: str, allowed: str) -> None:
    with pytest.raises(ParameterError) as error:
        read(query, ALL)
    assert error.value.name == name
    assert allowed in str(error.value)


@pytest.mark.parametrize(
    "query", [{"window": "month", "since": "2026-08-01"}, {"since": "2026-08-02", "until": "2026-08-01"}]
)
def test_windows_that_contradict_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ParameterError):
        filter_of(read(query.items(), ALL), named)


def test_a_filter_holds_what_was_asked() -> None:
    where = filter_of(read([("since", "2026-08-01"), ("runtime", "picoclaw"), ("vm", "vm-7")], ALL), named)
    assert (where.window, where.runtime, where.vm, where.model) == (Window(date(2026, 8, 1)), "picoclaw", "vm-7", None)


def test_a_page_holds_what_was_asked() -> None:
    page = page_of(read([("limit", "5"), ("sort", "cost"), ("cursor", "abc")], ALL))
    assert (page.limit, page.sort, page.cursor) == (5, "cost", "abc")
