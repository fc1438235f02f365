"""``--workers N``: N processes of the shim on one port, and one that watches over them.

Every worker has its own sockets (SO_REUSEPORT: the kernel spreads connections), its own boot and in-flight file, and
appends to the same log. The supervisor passes signals on, starts a worker again that died, and stops with the last one.
It tells systemd that the shim is ready once every worker is, and alive for as long as every worker's event loop turns.
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
from shim.notify import Heartbeats, Notify, WorkerNotify
from shim.server import listen, serve
from shim.settings import Settings

# A worker that dies this soon after its start is started again only after a pause.
SHORT_LIFE: Final = 1.0
# A worker is taken for dead when its loop has not turned for this long.
SILENT: Final = 10.0
LOOK_SECONDS: Final = 0.1
PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """Runs the workers. ``inherited``: sockets from systemd, empty where each worker binds its own."""

    def __init__(
        self, settings: Settings, environ: MutableMapping[str, str], inherited: Sequence[socket.socket]
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._inherited = inherited
        self._notify = Notify(environ)
        self._beats = Heartbeats(settings.workers)
        self._started: dict[int, tuple[int, float]] = {}
        self._stopping = False
        self._code = 0

    def run(self) -> int:
        """Start the workers and wait for them; the exit code."""
        # Held while workers run, so that the port is ours even in the moment when a worker is started again.
        reserved = [] if self._inherited else [_reserve(self._settings)]
        for number in PASSED_ON:
            signal.signal(number, self._pass_on)
        for worker in range(self._settings.workers):
            self._start(worker)
        self._until_ready()
        while self._started:
            pid, status = self._next_end()
            self._ended(pid, os.waitstatus_to_exitcode(status))
        for holder in reserved:
            holder.close()
        return self._code

    def _until_ready(self) -> None:
        """Wait until every worker serves, or one ends before."""
        while not self._beats.all_within(SILENT):
            time.sleep(LOOK_SECONDS)
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
        self._notify.ready(f"{self._settings.workers} workers")

    def _next_end(self) -> tuple[int, int]:
        """The next worker that ends and its status; until then systemd is told that all are alive, while they are."""
        seconds = self._notify.watchdog_seconds
        if seconds is None:
            return os.wait()
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                return pid, status
            if self._beats.all_within(SILENT):
                self._notify.alive()
            time.sleep(min(seconds, 1.0))

    def _start(self, worker: int) -> None:
        self._beats.forget(worker)
        pid = os.fork()
        if pid == 0:
            self._work(worker)
        self._started[pid] = worker, time.monotonic()

    def _work(self, worker: int) -> NoReturn:
        code = 1
        try:
            for number in PASSED_ON:
                signal.signal(number, signal.SIG_DFL)
            listeners = self._inherited or [listen(self._settings, shared=True)]
            serve(self._settings, self._environ, listeners, WorkerNotify(self._beats, worker))
            code = 0
        except ConfigError as error:
            print(f"usage-shim: {error}", file=sys.stderr)
            code = 2
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _ended(self, pid: int, code: int) -> None:
        worker, began = self._started.pop(pid)
        if self._stopping:
            return
        if code == 2:  # configuration: another try would end the same way
            self._code = code
            self._pass_on(signal.SIGTERM, None)
            return
        if time.monotonic() - began < SHORT_LIFE:
            time.sleep(SHORT_LIFE)
        self._start(worker)

    def _pass_on(self, number: int, frame: object) -> None:
        if number != signal.SIGHUP and not self._stopping:
            self._stopping = True
            self._notify.stopping()
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
