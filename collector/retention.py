"""Records expire after VM_USAGE_RETENTION_DAYS; the sums that hold them stay, so no window's total changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date, timedelta
from typing import Final, Protocol

import structlog

from collector.windows import Calendar

log = structlog.get_logger()

EVERY_SECONDS: Final = 3600.0


class Expiring(Protocol):
    """A ledger whose records expire."""

    calendar: Calendar

    def expire(self, before: date) -> int:
        """Delete the records of days before ``before``; how many."""


class Retention:
    """Looks once an hour. ``days``: how long a record is kept, ``None`` for ever; ``clock``: epoch seconds."""

    def __init__(self, days: int | None, clock: Callable[[], float] = time.time) -> None:
        self._days = days
        self._clock = clock
        self._next = float("-inf")

    def turn(self, ledger: Expiring, keep_from: Callable[[], date | None] = lambda: None) -> int:
        """Let records expire if it is time; how many did. ``keep_from``: the first day that is still needed."""
        now = self._clock()
        if self._days is None or now < self._next:
            return 0
        self._next = now + EVERY_SECONDS
        before = ledger.calendar.today(now) - timedelta(days=self._days)
        needed = keep_from()
        count = ledger.expire(before if needed is None else min(before, needed))
        if count:
            log.info("records_expired", count=count, before=before.isoformat())
        return count
