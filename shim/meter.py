"""What the meters of a process share: key, sessions, the way to the log, background responses that wait for a poll."""

from __future__ import annotations

from shim.background import Background, Record
from shim.metering import Metering
from shim.session import Sessions
from shim.session_store import SessionStore


class Meter:
    """What the taps of one process share. ``key``: the VM's key, ``sessions``: the sessions seen so far."""

    def __init__(self, metering: Metering, key: bytes, *, fingerprint: bool, store: SessionStore | None = None) -> None:
        self.metering = metering
        self.key = key
        self.sessions = Sessions(key, fingerprint, store=store)
        self.background = Background(self.sessions, metering.inflight, self.write)
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

    def close(self) -> None:
        """Leave the background responses that nobody read to their end to the next start."""
        self.background.close()
