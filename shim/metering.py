"""The durable half of the shim in one object: ids, in-flight slots, counters and the sink of one worker process.

The relay takes a slot before a call goes upstream (``inflight.begin``) and appends a line when it ends
(``sink.append(line, slot)``). Everything else happens in ``tick``, once a second, off the path of any call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from shim.background import Background
from shim.counters import Counters
from shim.ids import Boot
from shim.inflight import Inflight, boards
from shim.log import EventLog
from shim.notify import Notify
from shim.recovery import recover
from shim.reload import Watched
from shim.sink import LOOK_SECONDS, Sink

INFLIGHT_FOLDER: Final = "inflight"
TICK_SECONDS: Final = 1.0
DRAIN_TICK_SECONDS: Final = 0.01


class Metering:
    """``log_path``: the usage log, ``None`` where nothing is metered. ``state``: the state folder.

    ``shared``: other workers serve the same port, so counters are summed over them. ``vm``: as in ``Line``.
    """

    def __init__(self, log_path: Path | None, state: Path, vm: str, log: EventLog, *, shared: bool = False) -> None:
        self.vm = vm
        self.log = log
        self.shared = shared
        self.started = time.time()
        self._began = time.monotonic()
        self.counters = Counters()
        self.boot = Boot()
        self._folder = state / INFLIGHT_FOLDER
        self.inflight = Inflight(self._folder if log_path else None, self.boot, self.counters)
        self.sink: Sink | None = None
        if log_path is not None:
            self.sink = Sink(log_path, self.boot, self.inflight, self.counters, log, look_seconds=LOOK_SECONDS)
        if self.inflight.trouble:
            log.warning("inflight_not_durable", folder=str(self._folder), error=self.inflight.trouble)

    @property
    def uptime(self) -> float:
        """Seconds since this process started."""
        return time.monotonic() - self._began

    def recover(self, background: Background) -> int:
        """Write the lines that dead processes owe; how many. To be called once, before the first call.

        ``background``: waits for the responses that they waited for.
        """
        if self.sink is None:
            return 0
        return recover(self._folder, self.sink, self.vm, self.counters, self.log, background)

    def tick(self) -> None:
        """Retry what could not be written, notice a clock that was set, show the counters to the other workers."""
        if self.boot.renew():
            self.inflight.name_boot()
            self.log.warning("boot_renewed", boot=self.boot.name)
        if self.inflight.make_durable():
            self.log.warning("inflight_durable_again", folder=str(self._folder))
        if self.sink is not None:
            self.sink.flush()
        if self.shared:
            self.inflight.post(orjson.dumps(self._board()))

    def census(self) -> tuple[Counters, dict[str, int]]:
        """Counters and gauges (``workers``, ``in_flight``, ``waiting``) summed over the live workers."""
        total = Counters()
        gauges = {"workers": 0, "in_flight": 0, "waiting": 0}
        siblings = boards(self._folder, self.inflight.path) if self.shared else iter(())
        for board in (self._board(), *map(orjson.loads, siblings)):
            total.absorb(board["counters"])
            for name in gauges:
                gauges[name] += board.get(name, 0)
        return total, gauges

    def close(self) -> int:
        """Write what waits and let go of the files; how many lines wait for the next start in their slots."""
        left = self.sink.close() if self.sink is not None else 0
        if left:
            self.log.warning("lines_left_waiting", lines=left)
        self.inflight.close()
        return left

    def _board(self) -> dict[str, Any]:
        return {
            "workers": 1,
            "in_flight": self.inflight.calls,
            "waiting": self.sink.waiting if self.sink is not None else 0,
            "counters": self.counters.snapshot(),
        }


async def upkeep(
    metering: Metering,
    watched: Sequence[Watched[Any]],
    notify: Notify,
    *,
    also: Callable[[], None] | None = None,
) -> None:
    """Tick, look at the watched files and ping the watchdog, until cancelled. Run one per worker, on the event loop.

    The ping says that the loop turns; a fault in a tick is counted and said once, and the next tick goes on.
    """
    pause = min(TICK_SECONDS, notify.watchdog_seconds or TICK_SECONDS)
    said = False
    while True:
        try:
            metering.tick()
            for file in watched:
                file.poll()
            if also is not None:
                also()
        except Exception as error:
            metering.counters.metering_errors.add("upkeep")
            if not said:
                metering.log.error("upkeep_failed", error=type(error).__name__)
            said = True
        if notify.watchdog_seconds is not None:
            notify.alive(status_line(metering))
        sink = metering.sink
        draining = sink is not None and sink.waiting and sink.trouble is None
        await asyncio.sleep(DRAIN_TICK_SECONDS if draining else pause)


def status_line(metering: Metering) -> str:
    """One line for ``systemctl status``: counts only."""
    counters = metering.counters
    return (
        f"{metering.inflight.calls} in flight, {counters.lines_written.total} lines written, "
        f"{metering.sink.waiting if metering.sink else 0} waiting, {counters.lines_dropped.total} lost"
    )
