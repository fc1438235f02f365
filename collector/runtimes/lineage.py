"""Which of several files with shared lines is the copy, where the copy itself does not say so.

Some runtimes fork a session by writing its lines, with their old times, into a new file without a word about it. Then
both files hold the same lines, and neither alone tells who paid. Side by side they do; what tells is looked for behind
the first line that they share, for before it one of them may have been cut:

- copies are written in one go. Where one file has lines without an identity (a running total, a snapshot) between the
  shared ones and the other has none, the other is the copy.
- else the file whose own lines (those that the other lacks) begin later was forked.

The copy's session starts with the first of its own lines. What stands before them was written by the session that the
file was copied from, or, where that had not begun yet, by the one that it in turn was copied from; this holds for lines
that only the copy still has because the original was cut at its beginning. Of lines that an original lost at its
**end** no file tells who wrote them: they count, once, for the copy that still has them, as if it had gone on from
there, and where several have them, for the one of these whose other lines begin first.

The answer depends on the files alone, not on the order in which they are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Final

from collector.runtimes import SourceError
from collector.runtimes.kin import Folder, Head, Search, Stamp, stamp_of

# Lines and files that are kept for the next comparison.
MAX_KEPT: Final = 20_000
MAX_FILES: Final = 64

# Identity and time of a line; ``None`` for a line that has no identity. Lines that a file calls copies are left out.
Mark = tuple[str, float] | None


@dataclass(frozen=True, slots=True)
class Origin:
    """When the own part of a copy begins (epoch seconds; infinite while it has none) and which file it was copied from.

    ``likeness``: of several such files the one with the most lines in common, then one that is no such copy itself.
    """

    start: float
    parent: Path
    likeness: tuple[int, bool] = (0, False)


@dataclass(slots=True)
class _Lines:
    """The lines of a file in their order; ``parted``: those before which lines without an identity stand."""

    when: dict[str, float] = field(default_factory=dict)
    parted: set[str] = field(default_factory=set)


class Lineage:
    """Compares the files of a folder by their ``marks``: identity and time of each line, the same in every copy of it.

    ``head`` reads the beginning of a file, ``marks`` all of it, ``files`` lists what lies in a folder; ``search`` is
    for files that may be cut.
    """

    def __init__(
        self,
        head: Callable[[Path], Head | None],
        marks: Callable[[Path], Iterator[Mark]],
        files: Callable[[Path], Iterable[str]],
        search: Search | None = None,
    ) -> None:
        self._read_head = head
        self._read_marks = marks
        self._list_files = files
        self._search = search
        self._folders: dict[str, Folder] = {}
        self._origins: dict[str, list[Origin]] = {}
        self._kept: dict[Path, tuple[Stamp, _Lines]] = {}

    def origin(self, path: Path, folder: Path, but: Callable[[Path], bool] = lambda _: False) -> Origin | None:
        """Where ``path`` was copied from, or ``None`` if it is nobody's copy among the files of ``folder``.

        ``None``, too, where it names the session or says when its own part begins, unless that part is a copy itself.
        ``but``: files that it cannot have been copied from.
        """
        self._origins.pop(str(path), None)
        origins = [origin for origin in self._all_origins(path, folder) if not but(origin.parent)]
        return max(origins, key=lambda origin: (origin.start, origin.likeness), default=None)

    def original(self, path: Path, folder: Path) -> Path | None:
        """The file that a copy which says so has lines of; where it names one, that need not exist."""
        files = self._folder(folder)
        head = files.head(str(path))
        if head is None or not head.says_copy:
            return None
        if head.named is not None:
            return head.named
        return next((Path(other) for other in files.kin(str(path)) if not files.heads[other].says_copy), None)

    def writers(self, path: Path, folder: Path) -> list[tuple[float, Path]]:
        """Who wrote the lines that stand in ``path`` before its own: until when (epoch seconds), which file, in order.

        Of several files that it holds lines of, the lines before its first line that one of them lacks are of that one,
        or of those that it was copied from in turn.
        """
        parents: dict[Path, list[Origin]] = {}
        waiting = [path]
        while waiting:
            one = waiting.pop()
            if one not in parents:
                parents[one] = self._parents(one, folder)
                waiting += [origin.parent for origin in parents[one]]
        starts = sorted({origin.start for origins in parents.values() for origin in origins})
        found = []
        for since, until in pairwise([-inf, *starts]):
            writer = _writer(parents, path, since)
            if writer != path:
                found.append((until, writer))
        return found

    def _parents(self, path: Path, folder: Path) -> list[Origin]:
        origins = self._all_origins(path, folder)
        if origins or (original := self.original(path, folder)) is None:
            return origins
        began = self._folder(folder).heads[str(path)].began
        start = began if began is not None else min(self._lines(path).when.values(), default=inf)
        return [Origin(start, original)]

    def _all_origins(self, path: Path, folder: Path) -> list[Origin]:
        """What each of its kin says; kept until the folder changes."""
        files = self._folder(folder)
        known = self._origins.get(str(path))
        if known is not None:
            return known
        head = files.head(str(path))
        if head is None or head.began is not None:
            return []
        kin = [other for other in files.kin(str(path)) if head.named is None or files.heads[other].says_copy]
        if not kin:
            return []
        compared = (_compared(self._lines(path), Path(other), self._lines(Path(other))) for other in kin)
        found = self._origins[str(path)] = [origin for origin in compared if origin is not None]
        return found

    def _folder(self, folder: Path) -> Folder:
        files = self._folders.get(str(folder))
        if files is None:
            files = self._folders[str(folder)] = Folder(self._read_head, self._search)
        try:
            changed = os.stat(folder).st_mtime_ns
        except OSError:
            return files
        if files.changed != changed:
            files.listed(changed, self._list_files(folder))
            self._origins.clear()
        return files

    def _lines(self, path: Path) -> _Lines:
        """The lines of a file; those of the last few are kept, for a family is compared each with each."""
        stamp = stamp_of(str(path))
        known = self._kept.pop(path, None)
        lines = known[1] if known is not None and known[0] == stamp else self._read(path)
        self._kept[path] = (stamp, lines)
        while len(self._kept) > MAX_FILES or sum(len(kept.when) for _, kept in self._kept.values()) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return lines

    def _read(self, path: Path) -> _Lines:
        lines, parted = _Lines(), False
        try:
            for mark in self._read_marks(path):
                if mark is None:
                    parted = True
                    continue
                if parted and mark[0] not in lines.when:
                    lines.parted.add(mark[0])
                lines.when.setdefault(*mark)
                parted = False
        except SourceError:
            return _Lines()
        return lines


def _writer(parents: dict[Path, list[Origin]], path: Path, ts: float) -> Path:
    """Whose a line of time ``ts`` in ``path`` is."""
    seen = {path}
    while True:
        later = [origin for origin in parents[path] if origin.start > ts and origin.parent not in seen]
        if not later:
            return path
        path = min(later, key=lambda origin: origin.start).parent
        seen.add(path)


def _compared(mine: _Lines, other: Path, theirs: _Lines) -> Origin | None:
    """What the lines of two files say of the first: that it was copied from the other, or nothing."""
    own, parted, shared = _own(mine, theirs)
    rest, parted_there, _ = _own(theirs, mine)
    copied = parted_there if parted != parted_there else rest is None or own is None or rest < own
    if own is None:
        # What is being copied in one go was seen before its end: nothing in it is its own yet.
        return Origin(inf, other, (shared, parted_there)) if parted_there and not parted else None
    return Origin(own, other, (shared, parted_there)) if copied else None


def _own(mine: _Lines, theirs: _Lines) -> tuple[float | None, bool, int]:
    """When the own lines behind the first shared one begin; whether lines without identity part the shared ones, and
    how many those are."""
    own: float | None = None
    parted = held = False
    shared = 0
    for mark, when in mine.when.items():
        held = held or (shared > 0 and mark in mine.parted)
        if mark in theirs.when:
            parted, held, shared = parted or held, False, shared + 1
        elif shared and (own is None or when < own):
            own = when
    return own, parted, shared
