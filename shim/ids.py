"""Line ids: ``<boot>-<seq>``, unique over a fleet, in order within one start of the shim.

``boot`` is the start time in UTC to the millisecond and 48 random bits, so boots sort as text by start time and two
processes never share one. ``seq`` counts from 1 and is consumed only when a line gets its id, so a number that is
missing from the log is a line that was lost, and a reader can say so.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

# A clock that moves this far against the machine's uptime was set, or the VM was restored from a snapshot.
JUMP_SECONDS: Final = 5.0


def boot_name(now: float) -> str:
    """A new boot for the epoch second ``now``, such as ``20261130T200501123Z5d0c6f2a91be``."""
    start = datetime.fromtimestamp(now, UTC)
    return f"{start:%Y%m%dT%H%M%S}{start.microsecond // 1000:03d}Z{secrets.token_hex(6)}"


def uptime() -> float:
    """Seconds since the machine started, time asleep included; never set back."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Boot:
    """The ids of one process.

    A VM restored from a snapshot resumes with the memory, and so the next ids, of one that went on: ``renew`` sees the
    wall clock jump against the uptime and begins a new boot, so both copies' lines stay apart.
    """

    __slots__ = ("_clock", "_offset", "_uptime", "issued", "name")

    def __init__(self, clock: Callable[[], float] = time.time, uptime: Callable[[], float] = uptime) -> None:
        self._clock = clock
        self._uptime = uptime
        self._begin()

    def next(self) -> str:
        """The next id; its number is consumed whether or not the line can be written."""
        self.issued += 1
        return f"{self.name}-{self.issued}"

    def renew(self) -> bool:
        """Begin a new boot where the clock was set or the VM was restored; whether it did."""
        if abs(self._clock() - self._uptime() - self._offset) < JUMP_SECONDS:
            return False
        self._begin()
        return True

    def _begin(self) -> None:
        now = self._clock()
        self._offset = now - self._uptime()
        self.name = boot_name(now)
        self.issued = 0
