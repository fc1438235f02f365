"""What is wrong on this VM and how to mend it: one table of checks, each giving findings with a command.

A check looks at one thing, never changes anything and never raises: what it cannot see is a finding too.
``shim_checks`` look at opt-in and the shim, ``machine_checks`` at files, clock and disk, ``ledger_checks`` at what was
ingested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from collector.query import Query
from collector.settings import Settings

OK: Final = "ok"
NOTE: Final = "note"
WRONG: Final = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer of one check: ``level`` is ``ok``, ``note`` (worth knowing) or ``wrong``; ``mend`` is a command."""

    check: str
    level: str
    text: str
    mend: str | None = None


@dataclass(frozen=True, slots=True)
class Ward:
    """What checks look at. ``query`` is ``None`` where the ledger cannot be opened; ``shim`` is its status, if it runs.

    ``environ`` is the environment as it is, ``now`` epoch seconds.
    """

    settings: Settings
    query: Query | None
    shim: dict[str, Any] | None
    now: float
    ledger_error: str | None = None
    environ: dict[str, str] = field(default_factory=dict)


Check = Callable[[Ward], Iterable[Finding]]


def examine(ward: Ward, checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """The findings of every check in order; a check that fails is itself a finding."""
    for name, check in checks:
        try:
            yield from check(ward)
        except Exception as error:
            yield Finding(name, WRONG, f"the check itself failed: {type(error).__name__}: {error}")
