"""Files that are read again while the shim runs: the allowlist and the tunnel secret.

A changed file is loaded on the next look (or at SIGHUP). What loads replaces the value in one assignment; what does not
leaves the old one in force, is counted, and is said once per change.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from shim.counters import Counters
from shim.log import EventLog

T = TypeVar("T")
Stamp = tuple[int, int, int, int] | None


class Watched(Generic[T]):
    """The value of a file as last loaded whole.

    ``what``: ``allowlist`` or ``tunnel_secret``, as counted. ``load``: makes the value of the file at ``path``; what it
    raises at the first load is the caller's to show.
    """

    def __init__(self, what: str, path: Path, load: Callable[[Path], T], counters: Counters, log: EventLog) -> None:
        self.what = what
        self.path = path
        self._load = load
        self._counters = counters
        self._log = log
        self._stamp = stamp_of(path)
        self.refused: str | None = None
        self.value = load(path)

    def poll(self) -> None:
        """Load the file again if it changed."""
        if stamp_of(self.path) != self._stamp:
            self.reload()

    def reload(self) -> bool:
        """Load the file again; whether the new value is in force."""
        self._stamp = stamp_of(self.path)
        try:
            self.value = self._load(self.path)
        except (OSError, ValueError) as error:
            self.refused = str(error)
            self._counters.reloads.add(self.what, "kept_old")
            self._log.warning("reload_refused", what=self.what, reason=self.refused)
            return False
        self.refused = None
        self._counters.reloads.add(self.what, "applied")
        self._log.info("reload_applied", what=self.what)
        return True


def stamp_of(path: Path) -> Stamp:
    """What tells two versions of a file apart; ``None`` where it cannot be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
