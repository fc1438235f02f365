"""Bytes held back until the gap that ends a message has come.

The splitters of SSE and NDJSON hand out *blocks*: all complete messages of a read at once, uncut. Most messages of a
stream never matter to a meter, and finding that out for a block costs far less than cutting it first.
"""

from __future__ import annotations

from shim.framing import BOUND


class Held:
    """Cuts a byte stream behind the last ``gap`` seen and holds the rest, at most ``bound`` bytes of it.

    A message longer than ``bound`` may still be inside a block when it came in one read: whoever cuts the block
    applies the bound again, so that the answer does not depend on how the bytes were split.
    """

    __slots__ = ("_bound", "_dropping", "_gap", "_rest", "dropped")

    def __init__(self, gap: bytes, bound: int = BOUND) -> None:
        self._gap = gap
        self._bound = bound
        self._rest = bytearray()
        self._dropping = False
        self.dropped = 0

    def feed(self, data: bytes) -> bytes:
        """The messages that are complete with ``data``, each with its gap; empty when there is none yet."""
        if self._rest or self._dropping:
            return self._join(data)
        end = data.rfind(self._gap) + len(self._gap)
        if end < len(self._gap):
            end = 0
        self._rest += data[end:]
        self._check()
        return data[:end]

    def finish(self) -> bytes:
        """What is left without a gap behind it."""
        rest = b"" if self._dropping else bytes(self._rest)
        self._rest.clear()
        return rest

    def _join(self, data: bytes) -> bytes:
        rest, gap = self._rest, self._gap
        seen = max(0, len(rest) - len(gap) + 1)
        rest += data
        if self._dropping:
            end = rest.find(gap, seen)
            if end < 0:
                del rest[: -len(gap)]
                return b""
            del rest[: end + len(gap)]
            self._dropping = False
            seen = 0
        end = rest.rfind(gap, seen)
        if end < 0:
            self._check()
            return b""
        block = bytes(memoryview(rest)[: end + len(gap)])
        del rest[: end + len(gap)]
        self._check()
        return block

    def _check(self) -> None:
        # One byte more than the bound may be the first half of the gap.
        if len(self._rest) > self._bound + 1:
            self.dropped += 1
            self._dropping = True
            del self._rest[: -len(self._gap)]
