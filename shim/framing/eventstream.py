"""AWS event stream frames, big-endian, each guarded by two CRC32.

Layout: u32 total length, u32 headers length, u32 CRC of those eight bytes, headers, payload, u32 CRC of all before
(https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html). A frame whose own CRC fails is dropped by its
length; where the prelude's CRC fails, the stream is searched for the next prelude that holds, within a budget.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from shim.framing import BOUND

PRELUDE: Final = struct.Struct(">III")
SHORT: Final = struct.Struct(">H")
SMALLEST: Final = PRELUDE.size + 4
STRING: Final = 7
# Bytes that may be searched for a frame in one body: searching costs more than reading.
SEARCH: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: its string headers by name, and its payload."""

    headers: dict[str, str]
    payload: bytes


class FrameSplitter:
    """Whole frames of a stream."""

    __slots__ = ("_bound", "_rest", "_search", "_skip", "dropped")

    def __init__(self, bound: int = BOUND) -> None:
        self._bound = bound
        self._rest = bytearray()
        self._skip = 0
        self._search = SEARCH
        self.dropped = 0

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete with ``data``."""
        rest = self._rest
        if self._search <= 0:
            return []
        rest += data
        frames: list[Frame] = []
        at = 0
        while True:
            if self._skip:
                step = min(self._skip, len(rest) - at)
                at += step
                self._skip -= step
            if len(rest) - at < PRELUDE.size or self._search <= 0:
                break
            total, headers = sizes(rest, at)
            if not total:
                self._search -= 1
                at += 1
            elif total > self._bound:
                self.dropped += 1
                self._skip = total
            elif len(rest) - at < total:
                break
            else:
                self._read(bytes(memoryview(rest)[at : at + total]), headers, frames)
                at += total
        del rest[:at]
        if self._search <= 0:
            rest.clear()
        return frames

    def _read(self, raw: bytes, headers: int, frames: list[Frame]) -> None:
        body = PRELUDE.size + headers
        if zlib.crc32(raw[:-4]) != int.from_bytes(raw[-4:], "big"):
            self.dropped += 1
            return
        frames.append(Frame(read_headers(raw[PRELUDE.size : body]), raw[body:-4]))


def sizes(data: bytes | bytearray, at: int = 0) -> tuple[int, int]:
    """Total and headers length of the frame whose prelude stands at ``at``; zeros where none does."""
    total, headers, crc = PRELUDE.unpack_from(data, at)
    if total < SMALLEST or headers > total - SMALLEST or zlib.crc32(data[at : at + 8]) != crc:
        return 0, 0
    return total, headers


def read_headers(data: bytes) -> dict[str, str]:
    """The string headers of a frame. Every header a meter needs is a string; the first other type ends the reading."""
    headers = {}
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        if len(data) < name_end + 3 or data[name_end] != STRING:
            break
        (length,) = SHORT.unpack_from(data, name_end + 1)
        start = name_end + 3
        headers[data[at + 1 : name_end].decode("utf-8", "replace")] = data[start : start + length].decode(
            "utf-8", "replace"
        )
        at = start + length
    return headers
