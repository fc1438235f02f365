"""Following: pass after pass over the sources in a thread of its own, until told to stop.

A pass that fails is logged and tried again; the API goes on serving what the ledger has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from collector.commands.opening import open_ingest, open_ledger
from collector.hub.settings import PushSettings
from collector.ledger import LedgerError
from collector.memory import give_back
from collector.push_state import oldest_waiting
from collector.retention import Retention
from collector.settings import Settings

log = structlog.get_logger()


class Follower:
    """Reads sources every ``settings.interval`` seconds. ``start`` returns when the ledger stands and is migrated."""

    def __init__(self, settings: Settings, after_pass: Callable[[], None] = lambda: None) -> None:
        self._settings = settings
        self._after_pass = after_pass
        self._stopping = threading.Event()
        self._opened = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="ingest", daemon=True)

    def start(self) -> None:
        """Begin. Raises what keeps the ledger or the configuration from being used."""
        self._thread.start()
        self._opened.wait()
        if self._failure is not None:
            raise self._failure

    def alive(self) -> bool:
        """Whether passes go on."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop after the source being read."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            ledger = open_ledger(self._settings)
            ingest = open_ingest(self._settings, ledger, follow=True)
        except Exception as error:  # handed to start(), which raises it
            self._failure = error
            self._opened.set()
            return
        self._opened.set()
        retention, push = Retention(self._settings.retention_days), PushSettings.from_env(self._settings.environ)
        while not self._stopping.is_set():
            try:
                report = ingest.once(stop=self._stopping.is_set)
                retention.turn(ledger, lambda: oldest_waiting(ledger, push))
            except LedgerError as error:
                log.error("pass_failed", reason=str(error))
            else:
                if report.changed:
                    log.info("pass_done", lines=report.new_lines, seconds=round(report.seconds, 3))
                self._after_pass()
            ledger.rest()
            give_back()
            self._stopping.wait(self._settings.interval)
        ingest.close()
        ledger.close()
