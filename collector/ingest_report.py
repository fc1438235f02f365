"""What an ingest did: counted by reason, per runtime, for people and scripts. Holds no content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# Called with the bytes of log or the stores that were read since the last call.
Progress = Callable[[int], None]


def silent(amount: int) -> None:
    """A progress callback that shows nothing."""


@dataclass(slots=True)
class RuntimeReport:
    """One runtime's stores in one pass. ``records`` are new or replaced, ``known`` were read before."""

    files: int = 0
    unchanged: int = 0
    sessions: int = 0
    records: int = 0
    known: int = 0
    evidence: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class IngestReport:
    """One pass. ``refused`` and ``quarantined`` count by reason; ``errors``: path and reason of what cannot be read.

    ``lost_workers``: processes that ended before they had told all that they read; the rest was read in this one.
    """

    files: int = 0
    unchanged: int = 0
    lines: int = 0
    new_lines: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    runtimes: dict[str, RuntimeReport] = field(default_factory=dict)
    errors: list[tuple[str, str]] = field(default_factory=list)
    missing_lines: int = 0
    lost_workers: int = 0
    seconds: float = 0.0

    @property
    def changed(self) -> bool:
        """Whether anything new was read."""
        return bool(self.lines) or any(one.records or one.sessions for one in self.runtimes.values())

    def runtime(self, name: str) -> RuntimeReport:
        """The part of one runtime."""
        return self.runtimes.setdefault(name, RuntimeReport())

    def failed(self, path: Path, reason: str) -> None:
        """Note a source that could not be read; the others are not affected."""
        self.errors.append((str(path), reason))

    def add(self, step: IngestReport) -> None:
        """Add what one step did to the lines; called once its transaction is committed."""
        self.lines += step.lines
        self.new_lines += step.new_lines
        self.refused.update(step.refused)
        self.quarantined.update(step.quarantined)
