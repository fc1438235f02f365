"""What the meters of a process share: key, sessions, the way to the log, background responses that wait for a poll."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from shim.metering import Metering
from shim.session import Sessions
from shim.session_store import SessionStore

BACKGROUND_KEPT: Final = 1024
# The JSON object of a line, in the order and with the values of ``shim.line.as_object``; the sink gives the id.
Record = dict[str, Any]


class Meter:
    """What the taps of one process share. ``key``: the VM's key, ``sessions``: the sessions seen so far."""

    def __init__(self, metering: Metering, key: bytes, *, fingerprint: bool, store: SessionStore | None = None) -> None:
        self.metering = metering
        self.key = key
        self.sessions = Sessions(key, fingerprint, store=store)
        self.background: OrderedDict[str, tuple[Record, int]] = OrderedDict()
        self._said: set[str] = set()

    def fault(self, where: str, error: Exception) -> None:
        """Count a fault of ours; say each kind once, without what was being read."""
        self.metering.counters.metering_errors.add(where)
        if where not in self._said:
            self._said.add(where)
            self.metering.log.error("metering_failed", where=where, error=type(error).__name__)

    def write(self, record: Record, slot: int) -> None:
        """Append a line and count its call."""
        sink = self.metering.sink
        if sink is not None:
            sink.append_object(record, slot)
            self.metering.counters.calls.add(record["runtime"], record["upstream"], record["outcome"])
            self.metering.counters.took(record["duration_ms"])

    def keep_background(self, response: str, record: Record, slot: int) -> None:
        """A response that is made in the background: its line waits for the poll that brings usage."""
        self.background[response] = (record, slot)
        if len(self.background) > BACKGROUND_KEPT:
            self._write_background()

    def close(self) -> None:
        """Write the lines of background responses that nobody polled to their end."""
        while self.background:
            self._write_background()

    def _write_background(self) -> None:
        """Write the line kept longest, unless another worker was asked for that response and wrote it.

        A later read of it may still bring its usage, so it does not count as written.
        """
        response, (record, slot) = self.background.popitem(last=False)
        if self.sessions.was_written(response):
            self.metering.inflight.end(slot)
        else:
            self.write(record, slot)
