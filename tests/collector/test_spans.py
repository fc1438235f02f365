"""Which rollups answer a question: runs of spans are a window's days, each once, and a level has what is asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collector.ledger.schema import UNDATED
from collector.ledger.spans import FIRST, GRAINS, LAST, LEVELS, cover, days, level


@given(st.integers(-1000, 30_000), st.integers(-2, 3000))
def test_runs_of_spans_are_every_day_of_the_window_once(first, length):
    last = first + length
    found = [day for grain, low, high in cover(first, last) for day in range(low << grain, (high + 1) << grain)]
    assert sorted(found) == list(range(first, last + 1))


@given(st.integers(-1000, 30_000), st.integers(0, 3000), st.integers(-600, 600))
def test_a_window_that_reaches_the_last_day_of_all_goes_on_over_days_of_nothing_alone(first, length, beyond):
    last = first + length
    end = last - beyond
    runs = cover(first, last, end)
    found = sorted(day for grain, low, high in runs for day in range(low << grain, (high + 1) << grain))
    assert found == list(range(first, first + len(found)))
    assert [day for day in found if day <= end] == [day for day in range(first, last + 1) if day <= end]


@given(st.integers(0, 30_000), st.integers(0, 3000))
def test_a_window_of_years_takes_few_spans(first, length):
    spans = sum(high - low + 1 for _, low, high in cover(first, first + length))
    assert spans <= 2 * 7 * (len(GRAINS) - 1) + length // 512 + 1


def test_an_open_side_reaches_every_day_and_what_has_no_time_is_in_all_time_alone():
    def holds(first, last, day):
        return sum(low <= day >> grain <= high for grain, low, high in cover(*days(first, last)))

    for day in (-1, 0, 20_000, 700_000):
        assert holds(None, None, day) == 1
        assert holds(None, day, day) == 1
        assert holds(day, None, day) == 1
        assert holds(None, day - 1, day) == 0
        assert holds(day + 1, None, day) == 0
    assert holds(None, None, UNDATED) == 1
    assert holds(None, LAST, UNDATED) == 0
    assert holds(FIRST, None, UNDATED) == 0


@given(st.sets(st.sampled_from(("day", "vm", "runtime", "source", "model", "upstream"))))
def test_the_level_has_every_dimension_and_none_with_fewer_rows_has(wanted):
    found = level(wanted)
    assert wanted - {"day"} <= set(LEVELS[found])
    assert not any(wanted - {"day"} <= set(has) for has in LEVELS[:found])
