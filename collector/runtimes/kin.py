"""Which files of a folder may hold the same lines, by their beginnings alone wherever those tell.

A copy begins with the line that its original begins with, so files are found by their first line. A file that was cut
at its beginning, or a copy that starts at a compaction, does not begin like its kin; its head says so (``probes``).
Its kin are the files that hold one of its first lines. They are searched for, for all such files of the folder
together, each other file once, and only where its time covers the beginning of one of them. A folder without such
files costs nothing; a new file costs one search.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collector.runtimes import SourceError

# Lines of a file are nearly in the order of their times; seconds.
SLACK: Final = 3600.0

Stamp = tuple[int, int]  # inode and size
NEVER: Final[Stamp] = (0, -1)


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file: the identity and the time of its first line, and what it says of being a copy.

    ``named``: the file that its first line says it was copied from; it need not exist. ``began``: it is a copy whose
    own part begins at this time (epoch seconds), before the copied lines. ``probes``: identities of lines at its
    beginning, where lines may be missing before them.
    """

    first: str
    when: float | None = None
    named: Path | None = None
    began: float | None = None
    probes: tuple[str, ...] = ()

    @property
    def says_copy(self) -> bool:
        """Whether the file says itself that it is a copy."""
        return self.named is not None or self.began is not None


@dataclass(frozen=True, slots=True)
class Search:
    """How files are searched: which of some identities a file holds, and about when its last line was written."""

    holds: Callable[[Path, Collection[str]], set[str]]
    ended: Callable[[Path], float | None]


class Folder:
    """The files of one folder and their heads, as of the folder's last change; ``search``: none for files never cut."""

    def __init__(self, read_head: Callable[[Path], Head | None], search: Search | None) -> None:
        self.changed = -1
        self.heads: dict[str, Head] = {}
        self._read_head = read_head
        self._stamps: dict[str, Stamp] = {}
        self._by_first: dict[str, list[str]] = {}
        self._unread: dict[str, Stamp] = {}
        self._cut = Cut(search, self.heads) if search else None

    def listed(self, changed: int, files: Iterable[str]) -> None:
        """Take in the files that are there now. A file that was replaced or has shrunk is another one."""
        self.changed = changed
        found = {path: stamp_of(path) for path in files}
        for path, (inode, size) in self._stamps.items():
            if path not in found or found[path][0] != inode or found[path][1] < size:
                self._drop(path)
        for path in found:
            if path not in self.heads:
                self._unread.setdefault(path, NEVER)
        self._stamps = found

    def head(self, path: str) -> Head | None:
        """The head of a file; ``None`` while it has none, or where there is no such file."""
        if (known := self.heads.get(path)) is not None:
            return known
        # What is not there is not kept in mind: lines may name any number of files.
        stamp = stamp_of(path)
        return None if stamp == NEVER else self._take(path, stamp)

    def kin(self, path: str) -> list[str]:
        """The other files that may hold lines of this one, in the order of their names."""
        for other, stamp in list(self._unread.items()):
            if (now := stamp_of(other)) != stamp:
                self._take(other, now)
        head = self.head(path)
        if head is None:
            return []
        found = set(self._by_first[head.first])
        if self._cut is not None:
            found |= self._cut.kin(path, head)
        found.discard(path)
        return sorted(found)

    def _take(self, path: str, stamp: Stamp) -> Head | None:
        try:
            head = self._read_head(Path(path))
        except SourceError:
            head = None
        if head is None:
            self._unread[path] = stamp
            return None
        self._unread.pop(path, None)
        self.heads[path] = head
        self._by_first.setdefault(head.first, []).append(path)
        if self._cut is not None:
            self._cut.add(path, head)
        return head

    def _drop(self, path: str) -> None:
        self._unread.pop(path, None)
        head = self.heads.pop(path, None)
        if head is not None:
            self._by_first[head.first].remove(path)
            if self._cut is not None:
                self._cut.drop(path, head)


class Cut:
    """The files of a folder that may have been cut, by their probes, and which files hold those."""

    def __init__(self, search: Search, heads: dict[str, Head]) -> None:
        self._search = search
        self._heads = heads
        self._probes: dict[str, set[str]] = {}
        self._begins: list[float] = []
        self._undated = 0
        # Every probe in the order in which it came; of each file that was looked into, how many of them it was for.
        self._asked: list[str] = []
        self._searched: dict[str, tuple[Stamp, int]] = {}
        self._holders: dict[str, set[str]] = {}
        self._all_searched = False

    def add(self, path: str, head: Head) -> None:
        """A file of the folder, cut or not."""
        self._all_searched = False
        for probe in head.probes:
            if probe not in self._probes:
                self._probes[probe] = set()
                self._asked.append(probe)
            self._probes[probe].add(path)
        if head.probes and head.when is not None:
            insort(self._begins, head.when)
        elif head.probes:
            self._undated += 1

    def drop(self, path: str, head: Head) -> None:
        """A file is gone, or is another one now."""
        self._searched.pop(path, None)
        for holders in self._holders.values():
            holders.discard(path)
        for probe in head.probes:
            self._probes[probe].discard(path)
        if head.probes and head.when is not None:
            del self._begins[bisect_left(self._begins, head.when)]
        elif head.probes:
            self._undated -= 1

    def kin(self, path: str, head: Head) -> set[str]:
        """The files that hold a line of the beginning of this one, and those of whose beginning this one holds one."""
        found: set[str] = set()
        if not self._asked:
            return found
        if head.probes and not self._all_searched:
            for other in self._heads:
                self._look_into(other)
            self._all_searched = True
        else:
            self._look_into(path)
        for probe in head.probes:
            found |= self._probes[probe] | self._holders.get(probe, set())
        for probe, holders in self._holders.items():
            if path in holders:
                found |= self._probes[probe]
        return found

    def _look_into(self, path: str) -> None:
        """Note which probes a file holds. What was looked for is not looked for again while the file is as it was."""
        stamp = stamp_of(path)
        before, since = self._searched.get(path, (NEVER, 0))
        since = since if before == stamp else 0
        self._searched[path] = (stamp, len(self._asked))
        if since == len(self._asked) or not self._may_hold(path):
            return
        wanted = frozenset(self._asked[since:]) if since else self._probes.keys()
        try:
            held = self._search.holds(Path(path), wanted)
        except SourceError:
            return
        for probe in held:
            if path not in self._probes[probe]:
                self._holders.setdefault(probe, set()).add(path)

    def _may_hold(self, path: str) -> bool:
        """Whether a cut file, this one aside, begins while this one was written."""
        head = self._heads[path]
        if self._undated or head.when is None:
            return True
        start = bisect_left(self._begins, head.when - SLACK)
        mine = 1 if head.probes else 0
        if len(self._begins) - start <= mine:
            return False
        try:
            ended = self._search.ended(Path(path))
        except SourceError:
            return False
        return ended is None or bisect_right(self._begins, ended + SLACK) - start > mine


def stamp_of(path: str) -> Stamp:
    """What ``stat`` says of a file; ``NEVER`` where there is none."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return NEVER
    return found.st_ino, found.st_size
