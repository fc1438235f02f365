"""Which messages of a block can matter to a meter, found without cutting or parsing the rest.

A stream is mostly messages that hold a few characters of text, and searching its bytes is the largest cost of metering
it. A mark only ever decides to parse: one inside model text costs a parse and counts nothing. A message without a mark
holds none of the keys that count, however its white space, line breaks or escapes are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

# A letter written as an escape could hide a key. No serializer does it, so looking costs a search and nothing more.
HIDDEN: Final = re.compile(rb"\\u00[4-7]")


@dataclass(frozen=True, slots=True)
class Marks:
    """What makes a message worth parsing: ``words``, a pattern of quoted words, and plain ``literals``.

    The pattern begins with literal bytes, the more the faster; an alternative in front of them would make the search
    five times slower. That is why everything else stands beside it.
    """

    words: re.Pattern[bytes]
    literals: tuple[bytes, ...] = ()

    def places(self, data: bytes) -> list[int]:
        """Where the marks stand, in order."""
        found = [mark.start() for mark in self.words.finditer(data)]
        if b"\\" in data:
            found += [mark.start() for mark in HIDDEN.finditer(data)]
        for literal in self.literals:
            found += occurrences(literal, data)
        found.sort()
        return found


def marks(*keys: str, unless: dict[str, str] | None = None, literals: tuple[bytes, ...] = ()) -> Marks:
    """Marks: any of ``keys`` with a value other than null, keys of ``unless`` with another value than theirs there."""
    words = [f"{key}{other_than('null')}" for key in keys]
    words += [f"{key}{other_than(value)}" for key, value in (unless or {}).items()]
    either = words[0] if len(words) == 1 else f"(?:{'|'.join(words)})"
    return Marks(re.compile(f'"{either}'.encode()), literals)


def other_than(value: str) -> str:
    """Pattern of a key's closing quote with anything but ``value`` behind it; doubt counts as something else."""
    return rf'"(?!\s*+:\s*+{value})'


def occurrences(literal: bytes, data: bytes) -> Iterator[int]:
    """Where a literal stands."""
    at = data.find(literal)
    while at >= 0:
        yield at
        at = data.find(literal, at + 1)


def message_at(block: bytes, gap: bytes, place: int) -> tuple[int, int]:
    """Start and end of the message around ``place`` in a block of messages with a gap behind each."""
    start = block.rfind(gap, 0, place)
    end = block.find(gap, place)
    return (0 if start < 0 else start + len(gap)), (len(block) if end < 0 else end)


def messages_at(block: bytes, gap: bytes, places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Start and end of each message around one of ``places``, which are in order."""
    after = 0
    for place in places:
        if place >= after:
            start, after = message_at(block, gap, place)
            yield start, after
