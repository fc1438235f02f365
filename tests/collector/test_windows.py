"""Days and windows in one zone, through changes of the clock."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from collector import windows
from collector.windows import Calendar, Window
from shim.names import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")


def at(text, zone=BERLIN):
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


@pytest.mark.parametrize(
    ("name", "since", "until"),
    [
        ("today", date(2026, 11, 30), date(2026, 11, 30)),
        ("week", date(2026, 11, 30), date(2026, 12, 6)),
        ("month", date(2026, 11, 1), date(2026, 11, 30)),
        ("7d", date(2026, 11, 24), date(2026, 11, 30)),
        ("30d", date(2026, 11, 1), date(2026, 11, 30)),
        ("all", None, None),
    ],
)
def test_each_window_is_a_run_of_whole_days(name, since, until):
    assert windows.window(name, date(2026, 11, 30)) == Window(since, until)


def test_the_week_begins_on_monday_and_the_month_ends_in_december_too():
    assert windows.window("week", date(2026, 11, 29)) == Window(date(2026, 11, 23), date(2026, 11, 29))
    assert windows.window("month", date(2026, 12, 31)) == Window(date(2026, 12, 1), date(2026, 12, 31))


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)])
def test_a_day_has_the_hours_that_its_clocks_say(day, hours):
    chosen = date.fromisoformat(day)
    start, end = Calendar(BERLIN).bounds(Window(chosen, chosen))
    assert (start, end - start) == (at(day), hours * 3600)


def test_a_call_belongs_to_the_local_day():
    calendar = Calendar(BERLIN)
    assert windows.day(calendar.day(at("2026-03-28T23:59:59"))) == date(2026, 3, 28)
    assert windows.day(calendar.day(at("2026-03-29T00:00:00"))) == date(2026, 3, 29)
    assert Calendar(UTC).today(at("2026-03-29T00:30:00")) == date(2026, 3, 28)


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/Santiago", "Pacific/Apia", "Africa/Cairo", "UTC"])
def test_bounds_and_days_agree_in_every_kind_of_zone(zone):
    calendar = Calendar(windows.named_zone(zone))
    for number in range(windows.number(date(2026, 1, 1)), windows.number(date(2027, 1, 1))):
        chosen = windows.day(number)
        start, end = calendar.bounds(Window(chosen, chosen))
        assert calendar.day(start) == calendar.day(end - 1) == number
        assert calendar.day(start - 1) == number - 1


@pytest.mark.parametrize(
    ("since", "until"), [("yesterday", None), ("2026-02-30", None), ("2026-03-02", "2026-03-01"), (None, "2026-3-1")]
)
def test_what_is_no_window_is_refused_with_a_sentence(since, until):
    with pytest.raises(ValueError, match=r"since|until"):
        windows.between(since, until)


def test_an_unknown_zone_is_refused_and_the_machines_used_where_none_is_given():
    with pytest.raises(ConfigError, match="VM_USAGE_TZ"):
        windows.zone_from({"VM_USAGE_TZ": "Mars/Olympus"})
    assert windows.zone_name(windows.zone_from({"VM_USAGE_TZ": "Europe/Berlin"})) == "Europe/Berlin"
    assert windows.zone_name(windows.zone_from({"TZ": ":Europe/Oslo"})) == "Europe/Oslo"
    assert windows.zone_from({"TZ": "UTC"}) is UTC
