"""Windows of time: the only definition of a day, `today`, `week` and the rest, in the ledger's one time zone.

Every window is a run of whole local days, both ends included, so that rollups by day answer it exactly. The zone is
``VM_USAGE_TZ``, else the machine's (``TZ``, ``/etc/localtime``), else UTC. A local day may have 23 or 25 hours; nothing
here assumes 24. The page, CLI, API, MCP and exports all call this module.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from shim.names import ConfigError

WINDOWS: Final = ("today", "week", "month", "7d", "30d", "all")
EPOCH: Final = date(1970, 1, 1)
LOCALTIME: Final = Path("/etc/localtime")
# Offsets from UTC are multiples of 15 minutes in every zone in use since 1972, so a local day begins at such a mark.
QUARTER: Final = 900
DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Window:
    """Local days from ``since`` to ``until``, both included; ``None`` leaves that side open."""

    since: date | None = None
    until: date | None = None

    @property
    def first(self) -> int | None:
        """``since`` as a day number (days from 1970-01-01)."""
        return None if self.since is None else number(self.since)

    @property
    def last(self) -> int | None:
        """``until`` as a day number."""
        return None if self.until is None else number(self.until)


ALL: Final = Window()


def number(day: date) -> int:
    """A calendar day as days from 1970-01-01, as the ledger stores it."""
    return (day - EPOCH).days


def day(value: int) -> date:
    """The calendar day of a day number."""
    return EPOCH + timedelta(days=value)


def window(name: str, today: date) -> Window:
    """The window called ``name`` as seen on the local day ``today``. Raises ``ValueError`` naming the allowed ones."""
    if name == "today":
        return Window(today, today)
    if name == "week":
        monday = today - timedelta(days=today.weekday())
        return Window(monday, monday + timedelta(days=6))
    if name == "month":
        first = today.replace(day=1)
        return Window(first, (first + timedelta(days=31)).replace(day=1) - timedelta(days=1))
    if name in ("7d", "30d"):
        return Window(today - timedelta(days=int(name[:-1]) - 1), today)
    if name == "all":
        return ALL
    raise ValueError(f"window {name!r} is not one of {', '.join(WINDOWS)}")


def between(since: str | None, until: str | None) -> Window:
    """The window of two dates ``YYYY-MM-DD``, both included. Raises ``ValueError`` with a sentence."""
    found = Window(_date("since", since), _date("until", until))
    if found.since and found.until and found.since > found.until:
        raise ValueError(f"since {since} is after until {until}")
    return found


def _date(name: str, text: str | None) -> date | None:
    return None if text is None else date_of(name, text)


def date_of(name: str, text: str) -> date:
    """The date ``YYYY-MM-DD``. Raises ``ValueError`` with a sentence that calls it ``name``."""
    try:
        if not DATE.fullmatch(text):
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} {text!r} is not a date YYYY-MM-DD") from None


class Calendar:
    """Epoch seconds to local days of one zone, remembered by quarter of an hour: a million lines need few look-ups."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self.name = zone_name(zone)
        self._days: dict[int, int] = {}

    def day(self, ts: float) -> int:
        """The day number of an epoch time in seconds."""
        quarter = int(ts // QUARTER)
        found = self._days.get(quarter)
        if found is None:
            if len(self._days) > 100_000:  # bounds memory when hostile times are spread over millennia
                self._days.clear()
            local = datetime.fromtimestamp(quarter * QUARTER, UTC).astimezone(self.zone)
            found = self._days[quarter] = number(local.date())
        return found

    def today(self, now: float) -> date:
        """The local calendar day at ``now`` (epoch seconds)."""
        return day(self.day(now))

    def bounds(self, span: Window) -> tuple[float | None, float | None]:
        """A window as epoch seconds ``[start, end)``; ``None`` is open."""
        start = None if span.since is None else self._midnight(span.since)
        end = None if span.until is None else self._midnight(span.until + timedelta(days=1))
        return start, end

    def _midnight(self, start: date) -> float:
        """The first instant of a local day; where a zone skips midnight, the first instant after it."""
        guess = datetime(start.year, start.month, start.day, tzinfo=UTC).timestamp()
        mark = guess - 16 * 3600
        while self.day(mark) < number(start):
            mark += QUARTER
        return mark


def zone_from(environ: Mapping[str, str]) -> tzinfo:
    """The zone of days: ``VM_USAGE_TZ``, else the machine's. Raises ``ConfigError`` for an unknown ``VM_USAGE_TZ``."""
    if name := environ.get("VM_USAGE_TZ"):
        found = named_zone(name)
        if found is None:
            raise ConfigError(f"VM_USAGE_TZ {name!r} is not a time zone here: use an IANA name such as Europe/Berlin.")
        return found
    if name := environ.get("TZ", "").removeprefix(":"):
        return named_zone(name) or UTC
    return _machine_zone()


def named_zone(name: str) -> tzinfo | None:
    """The zone of an IANA name, ``None`` where there is none; UTC needs no zone files."""
    if name in ("UTC", "Etc/UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def zone_of(name: str) -> tzinfo:
    """The zone of a name that a ledger remembers; UTC where this machine no longer knows it."""
    return named_zone(name) or UTC


def zone_name(zone: tzinfo) -> str:
    """The name under which the ledger remembers a zone."""
    return zone.key if isinstance(zone, ZoneInfo) and zone.key else "UTC" if zone is UTC else str(zone)


def _machine_zone() -> tzinfo:
    """The zone that ``/etc/localtime`` links to; UTC where it is not a link into a zone folder."""
    try:
        target = os.path.realpath(LOCALTIME)
    except OSError:
        return UTC
    return named_zone(target.partition("zoneinfo/")[2]) or UTC
