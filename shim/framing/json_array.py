"""The elements of one top-level JSON array, as they complete.

Gemini without ``alt=sse`` streams one array in pieces (https://ai.google.dev/api/generate-content). A cut array is not
JSON as a whole, but its complete elements are.
"""

from __future__ import annotations

import re
from typing import Final

from shim.framing import BOUND, DEPTH

# What can change the depth, and what can stand inside a string before its closing quote.
STRUCTURE: Final = re.compile(rb'["{}\[\]]')
IN_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
OPENING: Final = b"{["


class ArraySplitter:
    """Objects and arrays that are direct elements of the array; scalars between them are passed over."""

    __slots__ = ("_at", "_bound", "_depth", "_dropping", "_in_string", "_rest", "_start", "dropped", "ended")

    def __init__(self, bound: int = BOUND) -> None:
        self._bound = bound
        self._rest = bytearray()
        self._at = 0  # how far ``_rest`` was read
        self._start = -1  # where the element in progress begins in ``_rest``
        self._depth = 0
        self._in_string = False
        self._dropping = False
        self.dropped = 0
        self.ended = False

    def feed(self, data: bytes) -> list[bytes]:
        """The elements that are complete with ``data``. Past ``DEPTH`` the body is given up."""
        if self.ended or self._depth > DEPTH:
            return []
        self._rest += data
        elements: list[bytes] = []
        while not self.ended and self._depth <= DEPTH and self._step(elements):
            pass
        self._trim()
        return elements

    def _step(self, elements: list[bytes]) -> bool:
        """Read up to the next structural byte; false when the bytes are used up."""
        rest = self._rest
        if self._in_string:
            end = IN_STRING.match(rest, self._at).end()  # type: ignore[union-attr]  # the pattern matches anywhere
            self._at = end
            if end == len(rest) or rest[end] != 0x22:  # a lone backslash waits for what it escapes
                return False
            self._in_string = False
            self._at = end + 1
            return True
        found = STRUCTURE.search(rest, self._at)
        if found is None:
            self._at = len(rest)
            return False
        self._at = found.end()
        self._structure(rest[found.start()], elements)
        return True

    def _structure(self, byte: int, elements: list[bytes]) -> None:
        if byte == 0x22:
            self._in_string = True
        elif byte in OPENING:
            if self._depth == 1:
                self._start = self._at - 1
            self._depth += 1
        else:
            self._depth -= 1
            if self._depth == 1 and self._start >= 0:
                self._complete(elements)
            self.ended = self._depth <= 0

    def _complete(self, elements: list[bytes]) -> None:
        if self._dropping or self._at - self._start > self._bound:
            self.dropped += 1
        else:
            elements.append(bytes(memoryview(self._rest)[self._start : self._at]))
        self._dropping = False
        self._start = -1

    def _trim(self) -> None:
        """Forget what no element needs any more."""
        keep = self._at if self._start < 0 else self._start
        if self._at - keep > self._bound:
            self._dropping = True
            keep = self._at
        del self._rest[:keep]
        self._at -= keep
        if self._start >= 0:
            self._start = 0
