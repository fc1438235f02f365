"""Which of several files with one beginning is the copy, where the copy itself does not say so.

Some runtimes fork a session by writing its lines, with their old times, into a new file without a word about it. Then
both files begin at the same moment, and neither alone tells who paid. Side by side they do: the file whose own lines
(those that the other lacks) begin later was forked, and its session starts with the first of them. The answer depends
on the files alone, not on the order in which they are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class _Family:
    """The files of one folder by their first line, as of a change of the folder; ``unread`` had none yet."""

    changed: int
    by_first: dict[str, list[str]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


class Lineage:
    """Compares the files of a folder by their ``marks``: identity and time of each line, the same in every copy of it.

    ``head`` reads the beginning of a file, ``marks`` all of it, ``files`` lists what lies in a folder.
    """

    def __init__(
        self,
        head: Callable[[Path], Head | None],
        marks: Callable[[Path], Iterator[Mark]],
        files: Callable[[Path], Iterable[str]],
    ) -> None:
        self._read_head = head
        self._read_marks = marks
        self._list_files = files
        self._heads: dict[str, Head] = {}
        self._families: dict[str, _Family] = {}

    def origin(self, path: Path, folder: Path) -> Origin | None:
        """Where ``path`` was copied from, or ``None`` if it is nobody's copy among the files of ``folder``."""
        head = self._head(str(path))
        if head is None or head.says_copy:
            return None
        family = self._family(folder, head.first)
        kin = [other for other in family if other != str(path) and not self._heads[other].says_copy]
        mine = self._marks(path) if kin else {}
        found: Origin | None = None
        for other in kin:
            start = _starts_later(mine, self._marks(Path(other)))
            if start is not None and (found is None or start > found.start):
                found = Origin(start, Path(other))
        return found

    def original(self, path: Path, folder: Path) -> Path | None:
        """The file that a copy which says so begins like."""
        head = self._head(str(path))
        if head is None or not head.says_copy:
            return None
        family = self._family(folder, head.first)
        return next((Path(other) for other in family if not self._heads[other].says_copy), None)

    def _family(self, folder: Path, first: str) -> list[str]:
        try:
            changed = os.stat(folder).st_mtime_ns
        except OSError:
            return []
        family = self._families.get(str(folder))
        if family is None or family.changed != changed:
            family = self._families[str(folder)] = _Family(changed, unread=list(self._list_files(folder)))
        waiting, family.unread = family.unread, []
        for path in waiting:
            head = self._head(path)
            if head is None:
                family.unread.append(path)
            else:
                family.by_first.setdefault(head.first, []).append(path)
        return family.by_first.get(first, [])

    def _head(self, path: str) -> Head | None:
        """The head of a file; a file that has one keeps it, for its first line never changes."""
        if (known := self._heads.get(path)) is not None:
            return known
        try:
            head = self._read_head(Path(path))
        except SourceError:
            return None
        if head is not None:
            self._heads[path] = head
        return head

    def _marks(self, path: Path) -> dict[str, float]:
        try:
            return dict(self._read_marks(path))
        except SourceError:
            return {}


def _starts_later(mine: dict[str, float], theirs: dict[str, float]) -> float | None:
    """When the own part of ``mine`` begins, if that is later than what only ``theirs`` has."""
    own = min((when for mark, when in mine.items() if mark not in theirs), default=None)
    rest = min((when for mark, when in theirs.items() if mark not in mine), default=None)
    return own if own is not None and (rest is None or rest < own) else None
