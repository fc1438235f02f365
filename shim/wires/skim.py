"""Which messages of a block can matter to a meter, found without cutting or parsing the rest.

A stream is mostly messages that hold a few characters of text. ``marks`` is a pattern of the keys and values that
make a message worth parsing. It only ever decides to parse: a mark inside model text costs a parse and counts nothing.

Searching every byte is still the largest cost of metering a stream, and messages in a row differ in a few bytes only.
So from two neighbours that matter to nobody the *seam* is learnt: what ends the one and begins the next, from the
first quote of their common end to the last ``:"`` of their common beginning. With each seam in a block reduced to two
quotes, an order of magnitude less is left to search, and no mark is lost: a mark is a quoted word or holds no quote at
all, so it lies wholly in what is left, quotes included, or wholly in the seam, where the two neighbours already showed
that there is none. (Therefore a mark may say what must *not* follow the word, never what must.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

# A letter written as an escape could hide a key. No serializer does it, so looking costs a search and nothing more.
HIDDEN: Final = re.compile(rb"\\u00[4-7]")
SEAM_LEFT: Final = b'"\n"'
# A seam shorter than this saves too little.
WORTH: Final = 64


@dataclass(frozen=True, slots=True)
class Marks:
    """What makes a message worth parsing: one of ``words`` (a pattern of quoted words) or of ``literals``.

    The words' pattern begins with a plain quote: so it is searched by ``memchr``, and a set of first bytes would make
    it five times slower. That is why everything else stands beside it.
    """

    words: re.Pattern[bytes]
    literals: tuple[bytes, ...] = ()

    def within(self, data: bytes) -> bool:
        """Whether there is a mark in ``data``."""
        if self.words.search(data) or any(literal in data for literal in self.literals):
            return True
        return b"\\" in data and HIDDEN.search(data) is not None

    def places(self, data: bytes) -> list[int]:
        """Where the marks stand, in order."""
        found = [mark.start() for mark in self.words.finditer(data)]
        if b"\\" in data:
            found += [mark.start() for mark in HIDDEN.finditer(data)]
        for literal in self.literals:
            found += occurrences(literal, data)
        return sorted(found)


def marks(*keys: str, unless: dict[str, str] | None = None, literals: tuple[bytes, ...] = ()) -> Marks:
    """Marks: any of ``keys`` with a value other than null, keys of ``unless`` with another value than theirs there."""
    words = [rf'(?:{"|".join(keys)})"(?!\s*+:\s*+null)'] if keys else []
    words += [rf'{key}"(?!\s*+:\s*+{value})' for key, value in (unless or {}).items()]
    return Marks(re.compile(f'"(?:{"|".join(words)})'.encode()), literals)


def occurrences(literal: bytes, data: bytes) -> Iterator[int]:
    """Where a literal stands."""
    at = data.find(literal)
    while at >= 0:
        yield at
        at = data.find(literal, at + 1)


class Skim:
    """Finds marked messages in blocks of one stream. ``gap`` ends a message, ``bound`` is the longest one read."""

    __slots__ = ("_bound", "_gap", "_marks", "_seam", "dropped")

    def __init__(self, gap: bytes, marks: Marks, bound: int) -> None:
        self._gap = gap
        self._marks = marks
        self._bound = bound
        self._seam = b""
        self.dropped = 0

    def pick(self, block: bytes) -> list[bytes]:
        """The marked messages of a block, in order, without their gaps."""
        rest = block.replace(self._seam, SEAM_LEFT) if self._seam else block
        if self._marks.within(rest):
            return self._marked(block)
        if len(rest) * 2 > len(block):
            self._learn(block)
        return []

    def _marked(self, block: bytes) -> list[bytes]:
        gap, found, after = self._gap, [], 0
        for place in self._marks.places(block):
            if place < after:
                continue
            start = block.rfind(gap, after, place)
            start = after if start < 0 else start + len(gap)
            end = block.find(gap, place)
            end = len(block) if end < 0 else end
            if end - start <= self._bound:
                found.append(block[start:end])
            else:
                self.dropped += 1
            after = end + len(gap)
        return found

    def _learn(self, block: bytes) -> None:
        """Take the seam of the last two messages of a block that has no mark."""
        gap = self._gap
        end = len(block) - len(gap)
        middle = block.rfind(gap, 0, end)
        start = block.rfind(gap, 0, max(middle, 0))
        if start < 0:
            return
        one, two = block[start + len(gap) : middle], block[middle + len(gap) : end]
        seam = seam_of(one, two, gap)
        self._seam = seam if len(seam) >= WORTH else b""


def seam_of(one: bytes, two: bytes, gap: bytes) -> bytes:
    """What ends ``one`` and begins ``two`` and the other way round, cut at quotes; empty where there is nothing."""
    cut = one.rfind(b':"', 0, common(one, two)) + 2
    if cut < 2:
        return b""
    tail = common(one[: cut - 1 : -1], two[: cut - 1 : -1])
    quote = one.find(b'"', len(one) - tail)
    return one[quote:] + gap + one[:cut] if quote >= 0 else b""


def common(one: bytes, two: bytes) -> int:
    """Length of the common beginning."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if two.startswith(one[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low
