"""``--workers N``: N processes of the shim on one port, and one that watches over them.

Every worker has its own sockets (SO_REUSEPORT: the kernel spreads connections), its own boot and in-flight file, and
appends to the same log. The supervisor passes signals on, starts a worker again that died, and stops with the last one.
Where systemd hands over the sockets, all workers accept from those.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import MutableMapping, Sequence
from typing import Final, NoReturn

from shim.names import ConfigError
from shim.notify import Notify
from shim.server import listen, serve
from shim.settings import Settings

# A worker that dies this soon after its start is started again only after a pause.
SHORT_LIFE: Final = 1.0
SYSTEMD: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC")
PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """Runs the workers. ``inherited``: sockets from systemd, empty where each worker binds its own."""

    def __init__(
        self, settings: Settings, environ: MutableMapping[str, str], inherited: Sequence[socket.socket]
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._inherited = inherited
        self._started: dict[int, float] = {}
        self._stopping = False

    def run(self) -> int:
        """Start the workers and wait for them; the exit code."""
        # Held while workers run, so that the port is ours even in the moment when a worker is started again.
        reserved = [] if self._inherited else [_reserve(self._settings)]
        for number in PASSED_ON:
            signal.signal(number, self._pass_on)
        for _ in range(self._settings.workers):
            self._start()
        Notify(self._environ).ready(f"{self._settings.workers} workers")
        while self._started:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                break
            self._ended(pid, os.waitstatus_to_exitcode(status))
        for holder in reserved:
            holder.close()
        return 0 if self._stopping else 1

    def _start(self) -> None:
        pid = os.fork()
        if pid == 0:
            self._work()
        self._started[pid] = time.monotonic()

    def _work(self) -> NoReturn:
        code = 1
        try:
            for number in PASSED_ON:
                signal.signal(number, signal.SIG_DFL)
            # The supervisor answers to systemd; a worker that did too would be taken for the main process.
            environ = {name: value for name, value in self._environ.items() if name not in SYSTEMD}
            listeners = self._inherited or [listen(self._settings, shared=True)]
            serve(self._settings, environ, listeners, shared=True)
            code = 0
        except ConfigError as error:
            print(f"usage-shim: {error}", file=sys.stderr)
            code = 2
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _ended(self, pid: int, code: int) -> None:
        began = self._started.pop(pid, 0.0)
        if self._stopping:
            return
        if code == 2:  # configuration: another try would end the same way
            self._pass_on(signal.SIGTERM, None)
            self._stopping = False
            return
        if time.monotonic() - began < SHORT_LIFE:
            time.sleep(SHORT_LIFE)
        self._start()

    def _pass_on(self, number: int, frame: object) -> None:
        if number != signal.SIGHUP:
            self._stopping = True
        for pid in self._started:
            os.kill(pid, number)


def _reserve(settings: Settings) -> socket.socket:
    """A bound socket that never listens: it holds the port and is given no connection."""
    probe = listen(settings)  # without SO_REUSEPORT: fails where any other program has the port
    probe.close()
    holder = socket.socket(socket.AF_INET6 if ":" in settings.bind else socket.AF_INET, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind((settings.bind, settings.port))
    return holder
