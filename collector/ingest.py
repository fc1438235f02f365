"""One pass over all sources: usage logs, captured lines, runtimes' stores. The only place that knows them all.

A pass can be stopped at any point and started again: each step commits what it learned together with where it stood.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from collector.ingest_log import LogIngest
from collector.ingest_report import IngestReport, Progress, silent
from collector.ingest_store import StoreIngest
from collector.ledger.sqlite import SqliteLedger
from collector.pricing import Pricer
from collector.runtimes import Reader
from collector.runtimes.table import READERS
from collector.settings import Settings
from collector.tail import family
from shim.allowlist import Allowlist
from shim.identity import existing_key
from shim.places import USER_STATE, capture_logs


class Ingest:
    """Passes over the sources of one VM into one ledger.

    ``logs`` and ``homes``: what to read, else what the settings name. ``follow``: live logs stay open between passes.
    """

    def __init__(
        self,
        ledger: SqliteLedger,
        settings: Settings,
        allowlist: Allowlist,
        pricer: Pricer,
        *,
        logs: Sequence[Path] | None = None,
        homes: Sequence[Path] | None = None,
        readers: Sequence[Reader] = READERS,
        follow: bool = False,
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._allowlist = allowlist
        self._pricer = pricer
        self._named = list(logs or ())
        self._logs = list(logs) if logs is not None else [settings.log] if settings.log else []
        self._homes = list(homes) if homes is not None else list(settings.homes)
        self._readers = readers
        self._log_ingest = LogIngest(ledger, allowlist, pricer, hold=follow)

    def once(self, progress: Progress = silent, stop: Callable[[], bool] = lambda: False) -> IngestReport:
        """One pass. ``stop`` is asked between sources."""
        began = time.monotonic()
        report = IngestReport()
        for log in self._named:
            if not log.exists() and not family(log):
                report.failed(log, "there is no such file")
        for log, captured in self._all_logs():
            if not stop():
                self._log_ingest.read(log, report, progress, captured=captured)
        for home in self._homes:
            if not os.path.isdir(home):
                report.failed(home, "there is no such folder, or it may not be entered")
            elif not stop():
                keys = self._keys(home)
                stores = StoreIngest(self._ledger, self._settings.vm, self._allowlist, self._pricer, keys)
                stores.read(home, self._readers, self._environ(home), report, progress)
        report.missing_lines = sum(gap.lines for gap in self._ledger.gaps())
        report.seconds = time.monotonic() - began
        self._note_pass()
        return report

    def close(self) -> None:
        """Close what is open between passes."""
        self._log_ingest.close()

    def _all_logs(self) -> list[tuple[Path, bool]]:
        captured = capture_logs(self._homes, self._settings.environ) if self._homes else []
        named = [log.absolute() for log in self._logs]
        return [(log, False) for log in named] + [(log, True) for log in captured if log.absolute() not in named]

    def _keys(self, home: Path) -> list[bytes]:
        """The keys by which sessions of a home may be referenced: the VM's and, for captured lines, the user's own."""
        found = (existing_key(folder) for folder in (self._settings.state, home / USER_STATE))
        return list(dict.fromkeys(key for key in found if key is not None))

    def _environ(self, home: Path) -> dict[str, str]:
        """Variables that move a runtime's stores hold for the home of the user who set them."""
        own = self._settings.environ.get("HOME")
        return dict(self._settings.environ) if own and Path(own) == home else {}

    def _note_pass(self) -> None:
        with self._ledger.transaction() as tx:
            tx.db.execute("INSERT OR REPLACE INTO setting VALUES ('last_pass', ?)", (str(int(time.time() * 1000)),))
