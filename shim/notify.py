"""systemd's two small protocols, without a dependency: sd_notify (one datagram) and LISTEN_FDS (inherited sockets).

https://www.freedesktop.org/software/systemd/man/sd_notify.html and sd_listen_fds.html. Outside systemd both do
nothing. A state that cannot be sent is dropped: the watchdog then tells systemd so by its silence.

systemd listens to the main process alone. Where that is a supervisor, its workers beat in memory they share with it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import struct
import time
from collections.abc import Mapping, MutableMapping
from typing import Final

FIRST_FD: Final = 3
BEAT_SECONDS: Final = 1.0
BEAT: Final = struct.Struct("<d")


class Notify:
    """Tells systemd the state of this process. ``environ``: where ``NOTIFY_SOCKET`` and ``WATCHDOG_USEC`` are found."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds: float | None = _watchdog_seconds(environ)

    def ready(self, status: str = "") -> None:
        """The sockets accept."""
        self._send("READY=1", status)

    def reloading(self) -> None:
        """A reload began; ``ready`` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str = "") -> None:
        """Draining has begun."""
        self._send("STOPPING=1", status)

    def alive(self, status: str = "") -> None:
        """A watchdog ping, to be sent from the event loop every ``watchdog_seconds``."""
        self._send("WATCHDOG=1", status)

    def _send(self, state: str, extra: str = "") -> None:
        if not self._address:
            return
        fields = [state, extra if "=" in extra or not extra else f"STATUS={extra}"]
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(filter(None, fields)).encode(), self._address)


class Heartbeats:
    """When each of several workers was last seen alive, in memory that a fork shares."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._map = mmap.mmap(-1, workers * BEAT.size)

    def beat(self, worker: int) -> None:
        """``worker`` (0 and up) is alive now."""
        BEAT.pack_into(self._map, worker * BEAT.size, time.monotonic())

    def forget(self, worker: int) -> None:
        """``worker`` is being started: it has not been seen."""
        BEAT.pack_into(self._map, worker * BEAT.size, 0.0)

    def all_within(self, seconds: float) -> bool:
        """Whether every worker was seen in the last ``seconds``."""
        since = time.monotonic() - seconds
        return all(at and at >= since for (at,) in BEAT.iter_unpack(self._map))


class WorkerNotify(Notify):
    """What a worker has instead: it beats, says nothing to systemd, and drains when its supervisor is gone."""

    def __init__(self, beats: Heartbeats, worker: int) -> None:
        super().__init__({})
        self._beats = beats
        self._worker = worker
        self._supervisor = os.getppid()
        self.watchdog_seconds = BEAT_SECONDS

    def ready(self, status: str = "") -> None:
        self._beats.beat(self._worker)

    def alive(self, status: str = "") -> None:
        self._beats.beat(self._worker)
        if os.getppid() != self._supervisor:
            os.kill(os.getpid(), signal.SIGTERM)


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Half of ``WATCHDOG_USEC`` in seconds, ``None`` where no watchdog watches this process."""
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdigit() or int(usec) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 2e6


def listen_sockets(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """Sockets that systemd opened for this process, non-blocking; empty where it opened none.

    Takes the variables out of ``environ``, so that a child does not believe them to be its own.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    found = []
    for fd in range(FIRST_FD, FIRST_FD + int(count)):
        os.set_inheritable(fd, False)
        listener = socket.socket(fileno=fd)
        listener.setblocking(False)
        found.append(listener)
    return found
