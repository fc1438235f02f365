"""What the shim counts. One table of families, read by ``status``, ``/-/metrics``, the sum over workers and the tests.

Counting is one dictionary update. Labels come from closed vocabularies; a family that still grows past its bound
counts the rest under ``other``, so a client cannot grow the memory of the shim by inventing names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SERIES_LIMIT: Final = 512
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class Family:
    """One counter: its name here and in ``status``, its Prometheus name (``_total`` is added), labels and help."""

    name: str
    metric: str
    labels: tuple[str, ...]
    help: str


FAMILIES: Final = (
    Family("calls", "usage_shim_calls", ("runtime", "upstream", "outcome"), "Metered calls by how they ended."),
    Family("forwarded", "usage_shim_forwarded", ("upstream",), "Calls forwarded, metered or not."),
    Family("refused", "usage_shim_refused", ("reason",), "Calls forwarded and not metered, by reason."),
    Family("guarded", "usage_shim_guarded", ("reason",), "Requests refused before anything was forwarded."),
    Family("upstream_errors", "usage_shim_upstream_errors", ("upstream", "reason"), "Upstreams that failed."),
    Family("usage_option", "usage_shim_usage_option", ("upstream", "result"),
           "Streams whose upstream rejected the usage option (rejected), or had before (left_out)."),
    Family("relay_errors", "usage_shim_relay_errors", (), "Faults of the shim itself that ended a call."),
    Family("metering_errors", "usage_shim_metering_errors", ("where",), "Faults of the meter; the call went on."),
    Family("lines_written", "usage_shim_lines_written", (), "Usage lines appended to the log."),
    Family("lines_spooled", "usage_shim_lines_spooled", (), "Usage lines that had to wait in memory."),
    Family("lines_dropped", "usage_shim_lines_dropped", ("reason",), "Usage lines lost; their seq is missing."),
    Family("log_errors", "usage_shim_log_errors", ("error",), "Failed attempts to write the log, by errno."),
    Family("recovered", "usage_shim_recovered_lines", ("kind",), "Lines written for processes that died."),
    Family("untracked", "usage_shim_untracked_calls", (), "Calls that got no in-flight slot."),
    Family("reloads", "usage_shim_reloads", ("what", "result"), "Reloads of the allowlist and the tunnel secret."),
)  # fmt: skip

# How long metered calls took, as a histogram: upper bounds in seconds, and the tallies of calls per bound and of
# milliseconds in all that it is made of.
DURATION_BOUNDS: Final[tuple[float, ...]] = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
DURATION: Final = Family("durations", "usage_call_duration_seconds", ("bound",), "How long metered calls took.")
DURATION_SUM: Final = Family("duration_ms", "usage_call_duration_seconds_sum", (), "Milliseconds of all of them.")
KEPT: Final = (*FAMILIES, DURATION, DURATION_SUM)
_BOUND_NAMES: Final = (*map(str, DURATION_BOUNDS), "+Inf")


class Tally(dict[tuple[str, ...], int]):
    """Counts of one family by label values."""

    __slots__ = ()

    def add(self, *labels: str) -> None:
        """Count one."""
        try:
            self[labels] += 1
        except KeyError:
            self.plus(1, *labels)

    def plus(self, amount: int, *labels: str) -> None:
        """Count ``amount``."""
        if labels not in self and len(self) >= SERIES_LIMIT:
            labels = (OTHER,) * len(labels)
        self[labels] = self.get(labels, 0) + amount

    @property
    def total(self) -> int:
        """The sum over all labels."""
        return sum(self.values())


class Counters:
    """Every counter of one process, one ``Tally`` per family of ``KEPT``."""

    __slots__ = tuple(family.name for family in KEPT)

    calls: Tally
    forwarded: Tally
    refused: Tally
    guarded: Tally
    upstream_errors: Tally
    usage_option: Tally
    relay_errors: Tally
    metering_errors: Tally
    lines_written: Tally
    lines_spooled: Tally
    lines_dropped: Tally
    log_errors: Tally
    recovered: Tally
    untracked: Tally
    reloads: Tally
    durations: Tally
    duration_ms: Tally

    def __init__(self) -> None:
        for family in KEPT:
            setattr(self, family.name, Tally())

    def took(self, milliseconds: int) -> None:
        """Count how long one call took."""
        self.durations.add(_BOUND_NAMES[bisect_left(DURATION_BOUNDS, milliseconds / 1000)])
        self.duration_ms.plus(milliseconds)

    def duration_buckets(self) -> list[tuple[str, float]]:
        """Calls that took at most each bound, as a Prometheus histogram has them."""
        found, so_far = [], 0
        for name in _BOUND_NAMES:
            so_far += self.durations.get((name,), 0)
            found.append((name, float(so_far)))
        return found

    def snapshot(self) -> dict[str, list[list[object]]]:
        """Family name to ``[label values..., count]`` rows, as JSON holds them."""
        return {
            family.name: [[*labels, count] for labels, count in getattr(self, family.name).items()] for family in KEPT
        }

    def absorb(self, snapshot: Mapping[str, list[list[object]]]) -> None:
        """Add another process's ``snapshot``; families this release does not know are left out."""
        for family in KEPT:
            tally: Tally = getattr(self, family.name)
            for *labels, count in snapshot.get(family.name, ()):
                if isinstance(count, int):
                    tally.plus(count, *map(str, labels))
