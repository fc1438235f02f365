"""Which of several files with one beginning is the copy, where the copy itself does not say so.

Some runtimes fork a session by writing its lines, with their old times, into a new file without a word about it. Then
both files begin at the same moment, and neither alone tells who paid. Side by side they do: the file whose own lines
(those that the other lacks) begin later was forked, and its session starts with the first of them. The answer depends
on the files alone, not on the order in which they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from collector.runtimes import SourceError

Mark = tuple[str, float]


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file: what its first line is, and whether it says itself that it is a copy."""

    first: str
    says_copy: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """When the own part of a copy begins (epoch seconds) and which file it was copied from."""

    start: float
    parent: Path


class Lineage:
    """Compares files by their ``marks``: the identity and time of each line, the same in every copy of the line."""

    def __init__(self, head: Callable[[Path], Head | None], marks: Callable[[Path], Iterator[Mark]]) -> None:
        self._read_head = head
        self._read_marks = marks
        self._heads: dict[Path, Head] = {}

    def origin(self, path: Path, others: Iterable[Path]) -> Origin | None:
        """Where ``path`` was copied from, or ``None`` if it is nobody's copy among ``others``."""
        head = self.head(path)
        if head is None or head.says_copy:
            return None
        found: Origin | None = None
        for other in others:
            if other == path or self.head(other) != head:
                continue
            start = self._starts_later(path, other)
            if start is not None and (found is None or start > found.start):
                found = Origin(start, other)
        return found

    def head(self, path: Path) -> Head | None:
        """The head of a file; a file that has one keeps it, for its first line never changes."""
        if (known := self._heads.get(path)) is not None:
            return known
        try:
            head = self._read_head(path)
        except SourceError:
            return None
        if head is not None:
            self._heads[path] = head
        return head

    def _starts_later(self, path: Path, other: Path) -> float | None:
        try:
            mine, theirs = dict(self._read_marks(path)), dict(self._read_marks(other))
        except SourceError:
            return None
        own = min((when for mark, when in mine.items() if mark not in theirs), default=None)
        rest = min((when for mark, when in theirs.items() if mark not in mine), default=None)
        return own if own is not None and (rest is None or rest < own) else None
