"""Pushing while the collector runs: a thread of its own with its own connection, never faster than it may."""

from __future__ import annotations

import sqlite3
import threading
import time
from typing import Final

import structlog

from collector.commands.opening import open_ledger
from collector.hub.settings import PushSettings
from collector.ledger import LedgerError
from collector.push import Pusher, PushError, backoff, client
from collector.settings import Settings

log = structlog.get_logger()

# Looks at logs and stores between two pushes while nothing waits: a minute by default, so that ten thousand VMs with a
# call now and then are some hundred requests a second to their hub and not thousands.
PASSES: Final = 12


class PushLoop:
    """Pushes until told to stop. A hub that does not answer never stops the collector."""

    def __init__(self, settings: Settings, push: PushSettings) -> None:
        self._settings = settings
        self._push = push
        self._http = client(push)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the batch that is on its way."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        ledger = open_ledger(self._settings)
        pusher = Pusher(ledger, self._settings.vm, self._push, self._http)
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                pushed = pusher.step()
            except (PushError, LedgerError, sqlite3.Error) as error:
                failures += 1
                wait = backoff(failures, error.wait if isinstance(error, PushError) else 0.0)
                log.warning("push_failed", reason=str(error), wait=round(wait, 1))
            else:
                failures = 0
                spent = time.monotonic() - began
                pause = 0.0 if pushed.waiting else self._settings.interval * PASSES
                wait = max(pushed.sent / self._push.rate - spent, pause)
            self._stopping.wait(wait)
        self._http.close()
        ledger.close()
