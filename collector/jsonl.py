"""Files that other programs append to, read from where the last pass ended, in bounded memory.

What is true here: a store belongs to someone else and may hold anything. A file is opened without following a link and
without waiting (a FIFO, a device and a link are refused), read in blocks of whole lines, and a last line without its
newline waits for the next pass. A line longer than ``MAX_LINE`` is dropped and counted, never held. The position names
the inode and a checksum of what stands before it, so a file that was replaced, cut or written anew is read from its
start. Nothing here keeps a line's text.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final
from zlib import crc32

import orjson
import stringzilla
import zstandard

from collector.runtimes import SourceError

# Several times as fast as ``bytes.find``, and finding the few lines that matter is most of reading a store.
find: Final[Callable[..., int]] = stringzilla.find

BLOCK: Final = 1 << 22
CHECKED: Final = 64
PIECE: Final = 1 << 20
MAX_LINE: Final = 32 << 20
MAX_DOCUMENT: Final = 256 << 20
# Bytes of an archive that are unpacked at once: four of them can hold 128 KiB of text.
PACKED_PIECE: Final = 128
MAX_UNPACKED: Final = 8 << 30
MAX_WINDOW: Final = 1 << 27
# Some editors and copies put one before the text; it is no part of the first line.
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# Half of a character beyond 16 bits as an escape, or (the group) a run of what is none, as are both halves together.
_HEX: Final = rb"[0-9a-fA-F]{2}"
_PAIR, _HALF = rb"\\u[dD][89abAB]%b\\u[dD][c-fC-F]%b" % (_HEX, _HEX), rb"\\u[dD][89a-fA-F]%b" % _HEX
_HALVES: Final = re.compile(rb"((?:%b|(?!%b)\\.|[^\\]++)++)|%b" % (_PAIR, _HALF, _HALF), re.DOTALL)


def open_file(path: Path) -> int:
    """A read-only descriptor of a regular file.

    Raises ``SourceError`` for anything else (link, FIFO, device, folder) and for what the system refuses.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SourceError(path, error.strerror or "cannot be opened") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise SourceError(path, "not a regular file")
    return fd


def document(path: Path) -> bytes:
    """The whole of a file of at most ``MAX_DOCUMENT`` bytes. Raises ``SourceError``."""
    fd = open_file(path)
    try:
        if os.fstat(fd).st_size > MAX_DOCUMENT:
            raise SourceError(path, "larger than a document can be")
        with os.fdopen(os.dup(fd), "rb") as file:
            return file.read(MAX_DOCUMENT).removeprefix(BYTE_ORDER_MARK)
    except OSError as error:
        raise SourceError(path, error.strerror or "cannot be read") from error
    finally:
        os.close(fd)


def tail(path: Path, size: int) -> bytes:
    """The last ``size`` bytes of a file, which may begin within a line. Raises ``SourceError``."""
    fd = open_file(path)
    try:
        return os.pread(fd, size, max(0, os.fstat(fd).st_size - size))
    except OSError as error:
        raise SourceError(path, error.strerror or "cannot be read") from error
    finally:
        os.close(fd)


def loads(data: bytes) -> Any:
    """What a JSON text says. Raises ``orjson.JSONDecodeError``.

    JavaScript and Python write half an emoji as the escape of that half, where a text was cut or a model wrote it;
    that is no reason to lose a call (https://github.com/anthropics/claude-code/issues/61301). Zeros, which no JSON has,
    stand where a machine lost power before a text was on its disk (https://github.com/github/copilot-cli/issues/2927).
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if b"\0" in data:
            return loads(data.rpartition(b"\0")[2] or data.partition(b"\0")[0])
        if b"\\ud" not in data and b"\\uD" not in data:
            raise
        return orjson.loads(_HALVES.sub(lambda found: found[1] or rb"\ufffd", data))


def parse(data: bytes) -> dict[str, Any] | None:
    """A JSON object, or ``None`` for text that is not one (too deep, not UTF-8, torn, another type)."""
    try:
        value = loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def json_document(path: Path) -> dict[str, Any] | None:
    """A file that is one JSON object; ``None`` where it is absent, refused or something else."""
    try:
        return parse(document(path))
    except SourceError:
        return None


class LineFile:
    """The lines of one growing file from a saved position on.

    ``blocks`` yields bytes that end with a newline; between two of them ``position`` is what the next pass starts from
    (JSON-able). ``skipped`` counts lines that were too long.
    """

    def __init__(self, path: Path, position: object = None) -> None:
        self.path = path
        self.skipped: Counter[str] = Counter()
        self.inode = 0
        self.offset = 0
        self._check: int | None = None
        if isinstance(position, list) and len(position) in (2, 3) and all(type(n) is int for n in position):
            self.inode, self.offset = position[:2]
            self._check = position[2] if len(position) == 3 else None

    @property
    def position(self) -> list[int]:
        """Inode, offset in bytes of the first line that was not read, checksum of the bytes before it."""
        return [self.inode, self.offset, *([] if self._check is None else [self._check])]

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """Blocks of whole lines, about ``size`` bytes each. Raises ``SourceError``."""
        fd = open_file(self.path)
        try:
            status = os.fstat(fd)
            self._rewind_if_replaced(fd, status)
            # One byte more than there is: the read that finds nothing is as large as the first.
            yield from self._whole_lines(fd, min(size, max(4096, status.st_size - self.offset + 1)))
        except OSError as error:
            raise SourceError(self.path, error.strerror or "cannot be read") from error
        finally:
            os.close(fd)

    def _rewind_if_replaced(self, fd: int, status: os.stat_result) -> None:
        found = self._checksum(fd)
        if status.st_ino != self.inode or status.st_size < self.offset or self._check not in (None, found):
            self.inode, self.offset, found = status.st_ino, 0, 0
        self._check = found

    def _checksum(self, fd: int) -> int:
        start = max(0, self.offset - CHECKED)
        return crc32(os.pread(fd, self.offset - start, start))

    def _whole_lines(self, fd: int, size: int) -> Iterator[bytes]:
        # Grows in place: a line that comes in many small reads is not copied once for each.
        held = bytearray()
        at = self.offset
        too_long = False
        while data := os.pread(fd, size, at):
            at += len(data)
            cut = data.rfind(b"\n") + 1
            if not cut:
                if not too_long:
                    held += data
                if len(held) > MAX_LINE:
                    held, too_long = bytearray(), True
                continue
            if too_long:
                # The rest of a line that was given up: what follows its newline is sound again.
                end = data.find(b"\n") + 1
                data, cut, too_long = data[end:], cut - end, False
                self.skipped["too_long"] += 1
            block, held = bytes(held) + data[:cut], bytearray(data[cut:])
            if self.offset == 0:
                block = block.removeprefix(BYTE_ORDER_MARK)
            self.offset = at - len(held)
            self._check = self._checksum(fd)
            if block:
                yield block


def unpacked(path: Path) -> Iterator[bytes]:
    """As ``LineFile.blocks``, of a file that was packed with zstd and does not change any more.

    Raises ``SourceError``, also for one that is damaged, cut off or holds more than any store does.
    """
    fd = open_file(path)
    with os.fdopen(fd, "rb") as file:
        held, read = bytearray(), 0
        for data in _unpacked(path, file):
            read += len(data)
            # Before a line that goes on there is less than a piece of whole ones.
            if read > MAX_UNPACKED or len(held) > PIECE + MAX_LINE:
                raise SourceError(path, "larger than an archive can be")
            held += data
            if len(held) >= PIECE and b"\n" in data:
                cut = held.rfind(b"\n") + 1
                yield bytes(held[:cut])
                del held[:cut]
        if cut := held.rfind(b"\n") + 1:
            yield bytes(held[:cut])


def _unpacked(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The text of an archive, frame after frame, in pieces that are no more than a few megabytes."""
    packed = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    frame: zstandard.ZstdDecompressionObj | None = packed.decompressobj()  # there is at least one
    try:
        while data := file.read(PACKED_PIECE):
            while data:
                frame = frame or packed.decompressobj()
                yield frame.decompress(data)
                data, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    except (zstandard.ZstdError, MemoryError, OSError) as error:
        raise SourceError(path, "damaged archive") from error
    if frame is not None:
        raise SourceError(path, "archive is cut off")


def lines(block: bytes) -> Iterator[bytes]:
    """Every line of a block, without its newline. A piece at a time: a list of empty lines is larger than they are."""
    start, size = 0, len(block)
    while start < size:
        end = block.find(b"\n", min(start + PIECE, size - 1)) + 1 or size
        yield from (block if end - start == size else block[start:end]).splitlines()
        start = end


def first_lines(block: bytes) -> Iterator[bytes]:
    """As ``lines``, for a caller that stops early: the rest of the block is not cut up."""
    start = 0
    while (end := block.find(b"\n", start)) >= 0:
        yield block[start:end]
        start = end + 1


def lines_with(block: bytes, needle: bytes) -> Iterator[bytes]:
    """The lines of a block in which ``needle`` occurs; the others are never touched one by one."""
    end = 0
    at = find(block, needle)
    while at >= 0:
        start = block.rfind(b"\n", end, at) + 1 or end
        end = block.find(b"\n", at)
        yield block[start:end]
        at = find(block, needle, end)
