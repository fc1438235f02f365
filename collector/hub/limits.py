"""How much one VM may send: a bucket per VM in this hub's memory, refilled steadily, emptied by records."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

# A VM pushes at most 2,000 records a second unless told otherwise (VM_USAGE_HUB_RATE), so ten times that is a fault.
RATE: Final = 20_000.0
BURST: Final = 100_000.0
# Every request costs as much as this many records, so that empty ones are bounded too.
REQUEST: Final = 100.0
MAX_BUCKETS: Final = 100_000


class Rates:
    """Buckets by VM. ``clock``: seconds that only grow."""

    def __init__(self, clock: Callable[[], float], rate: float = RATE, burst: float = BURST) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait(self, vm: str) -> int:
        """Whole seconds that a VM must wait before it may send; 0 if it may."""
        level, _ = self._level(vm)
        return 0 if level > 0 else max(1, math.ceil(-level / self._rate))

    def spend(self, vm: str, records: int) -> None:
        """Take a request with so many records out of the VM's bucket; it may go below empty once."""
        level, now = self._level(vm)
        if len(self._buckets) >= MAX_BUCKETS:
            self._buckets.clear()
        self._buckets[vm] = (level - REQUEST - records, now)

    def _level(self, vm: str) -> tuple[float, float]:
        now = self._clock()
        level, then = self._buckets.get(vm, (self._burst, now))
        return min(self._burst, level + (now - then) * self._rate), now
