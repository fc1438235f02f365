"""Runtime readers: one module per runtime, the same two methods, a table of them all in ``READERS``.

``sources`` lists what is on disk with ``stat`` alone; ``read`` turns one source into batches of records. Content is
never bound to a name: a reader picks keys from fixed tuples. Nothing is ever written to a store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from collector.record import Record, Session


@dataclass(frozen=True, slots=True)
class Source:
    """One thing on disk that is read as a unit.

    ``path`` is its identity; ``parts`` are other files (a -wal, a companion document, a config) whose change also
    means that it must be read again. Unchanged (device, inode, size, mtime) sources are not opened.
    """

    runtime: str
    path: Path
    parts: tuple[Path, ...] = ()


@dataclass(slots=True)
class Batch:
    """What one step of ``read`` found; the ledger commits records, sessions and ``state`` in one transaction.

    ``state`` is JSON-able and comes back as the ``state`` argument of the next ``read`` of the same source (an offset,
    a running total); ``None`` at the end of a document always read whole. ``skipped`` counts what was not taken,
    by a short reason in words of the domain (``no_usage``, ``bad_json``, ``copy``, ``synthetic`` ...). ``unfinished``:
    a file was met half-written whose completion ``stat`` of the source would not show, so it is read again next time.
    """

    records: list[Record] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    state: dict[str, Any] | None = None
    unfinished: bool = False


class SourceError(Exception):
    """A source that could not be read: ``path`` and a reason for a person. Other sources are not affected."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Reader(Protocol):
    """One runtime's stores."""

    runtime: str

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """The stores of one home, by ``stat`` alone. ``environ`` holds overriding variables of that home's user."""

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """Read a source from ``state`` on (``None``: from the start), in batches bounded in memory.

        Raises ``SourceError``.
        """


@dataclass(frozen=True, slots=True)
class Facts:
    """What README's support table says of a runtime, one row; the source of each fact is in its module's docstring."""

    runtime: str
    paths: str
    variables: str
    aggregation: str
    input_includes_cache: str
    reasoning_in_output: str
    dedupe_key: str
    cost_field: str
    cost_unit: str
    cost_basis: str
