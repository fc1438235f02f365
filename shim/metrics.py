"""What ``/-/status`` and ``/-/metrics`` say. Both read counters only: no work here grows with the calls made.

prometheus-client is imported when the first scrape comes, so an idle shim does not hold it in memory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shim import __version__
from shim.counters import DURATION, FAMILIES, Counters
from shim.metering import Metering

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

# Whether the modules that every call passes are C extensions here (deploy/compile_hook.py).
COMPILED: Final = not str(sys.modules[Counters.__module__].__file__).endswith(".py")
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# Gauges: name in the census, Prometheus name, help.
GAUGES: Final = (
    ("workers", "usage_shim_workers", "Live shim processes on this port."),
    ("in_flight", "usage_shim_in_flight_calls", "Calls in flight."),
    ("waiting", "usage_shim_waiting_lines", "Usage lines that wait in memory for the log."),
)


def status(metering: Metering, reloads: dict[str, str | None] | None = None) -> dict[str, Any]:
    """The shim's state as JSON holds it. ``reloads``: watched file to why its last reload was refused, if it was."""
    counters, gauges = metering.census()
    sink = metering.sink
    return {
        "version": __version__,
        "compiled": COMPILED,
        "pid": os.getpid(),
        "boot": metering.boot.name,
        "vm": metering.vm,
        "uptime_seconds": round(metering.uptime, 1),
        "metering": sink is not None,
        "log": str(sink.path) if sink is not None else None,
        "log_error": sink.trouble if sink is not None else None,
        "inflight_durable": metering.inflight.durable,
        "inflight_error": metering.inflight.trouble,
        "reload_refused": {name: why for name, why in (reloads or {}).items() if why},
        **gauges,
        **{family.name: _rows(family.labels, getattr(counters, family.name)) for family in FAMILIES},
    }


def exposition(metering: Metering) -> bytes:
    """The counters in Prometheus's text format (``CONTENT_TYPE``)."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(metering))
    return generate_latest(registry)


class _Scrape:
    """One scrape's families, made from one census."""

    def __init__(self, metering: Metering) -> None:
        self._metering = metering

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            InfoMetricFamily,
        )

        counters, gauges = self._metering.census()
        for family in FAMILIES:
            metric = CounterMetricFamily(family.metric, family.help, labels=family.labels)
            tally = getattr(counters, family.name)
            for labels, count in tally.items() or ([((), 0)] if not family.labels else []):
                metric.add_metric(labels, count)
            yield metric
        seconds = counters.duration_ms.total / 1000
        buckets = counters.duration_buckets()
        yield HistogramMetricFamily(DURATION.metric, DURATION.help, buckets=buckets, sum_value=seconds)
        for name, shown, about in GAUGES:
            yield GaugeMetricFamily(shown, about, value=gauges[name])
        info = {"version": __version__, "boot": self._metering.boot.name}
        yield InfoMetricFamily("usage_shim", "Release and boot of the shim.", value=info)
        yield GaugeMetricFamily(
            "usage_shim_start_time_seconds", "Epoch second this process started.", self._metering.started
        )
        yield GaugeMetricFamily(
            "usage_shim_resident_memory_bytes", "Resident memory of this process.", resident_bytes()
        )


def resident_bytes() -> int:
    """Resident memory of this process in bytes, 0 where /proc does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _rows(labels: tuple[str, ...], tally: dict[tuple[str, ...], int]) -> Any:
    """A family in ``status``: a number where it has no labels, else rows of labels and ``count``, largest first."""
    if not labels:
        return tally.get((), 0)
    rows = sorted(tally.items(), key=lambda item: (-item[1], item[0]))
    return [{**dict(zip(labels, values, strict=True)), "count": count} for values, count in rows]
