"""Usage logs on disk: a log and its rotated siblings, whole lines from where reading ended.

A file is recognised by what it says, not by where it lies: the hash of its first line (every line's id is unique) and,
before reading goes on, the hash of the bytes before the position. So a log that was renamed, compressed, copied, moved
to another disk or shipped twice goes on where it ended, and one that was truncated, rewritten or restored from a
snapshot is read from its start; the ledger knows which lines it has. A last line without its newline waits. Offsets
count bytes of text, decompressed. Nothing here decodes a line.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import zstandard

BLOCK: Final = 4 << 20
# A line may have 1,024 bytes; what has no newline within this many is thrown away up to the next one.
MAX_PENDING: Final = 1 << 20
HEAD_LIMIT: Final = 64 << 10
# Long enough to hold a whole line with its id: the ends of two lines may well be alike.
TAIL: Final = 2048
UNPACK: Final = 64 << 10
DIGEST: Final = 16


class Unpacked(Protocol):
    """The text of a compressed file."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes of text, none at the end."""


OPENERS: Final[dict[str, Callable[[Any], Unpacked]]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".zst": lambda file: zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
# What a half-written or damaged compressed file raises.
BROKEN: Final = (EOFError, gzip.BadGzipFile, zstandard.ZstdError, lzma.LZMAError, OSError, ValueError)
# Files beside a log that are not parts of it.
STRANGERS: Final = re.compile(r"\.(lock|tmp|temp|swp|part|pid|spool|state|key|db|db-wal|db-shm)$|~$")


@dataclass(frozen=True, slots=True)
class Stamp:
    """What ``stat`` says of a file: while it is the same, the file need not be opened."""

    dev: int
    ino: int
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file was read: ``offset`` in its text, the hash of what stands before it, whether a line is skipped."""

    offset: int = 0
    tail: bytes = b""
    skipping: bool = False


START: Final = Position()


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines without their newlines, and where reading ended. ``start``: offset of the first.

    ``overlong``: offsets of lines that were thrown away because they have no end.
    """

    lines: list[bytes]
    start: int
    overlong: list[int]
    position: Position

    def offset(self, place: int) -> int:
        """Where the line at a place in ``lines`` begins."""
        return self.start + sum(len(line) + 1 for line in self.lines[:place])


class LogError(Exception):
    """A log that cannot be read; a reason for a person."""


def family(log: Path) -> list[Path]:
    """A log and its rotated siblings (``.1``, ``.2.gz``, ``-20261130``, ``-20261130.jsonl.zst`` ...), oldest first."""
    rotated = re.compile(
        rf"{re.escape(log.name)}([.-].+)?|{re.escape(log.stem)}[.-]\d.*{re.escape(log.suffix)}(\.(gz|zst|bz2|xz))?"
    )
    found: list[tuple[bool, int, Path]] = []
    try:
        entries = list(os.scandir(log.parent))
    except OSError:
        return []
    for entry in entries:
        if rotated.fullmatch(entry.name) and not STRANGERS.search(entry.name):
            try:
                found.append((entry.name == log.name, entry.stat().st_mtime_ns, Path(entry.path)))
            except OSError:
                continue
    return [path for _, _, path in sorted(found)]


def stamp(path: Path) -> Stamp | None:
    """The stamp of a path, ``None`` if there is nothing (any more)."""
    try:
        return _stamp(os.stat(path))
    except OSError:
        return None


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class LogFile:
    """One open file of a log. It stays readable when it is renamed or deleted."""

    def __init__(self, path: Path) -> None:
        """Open it. Raises ``LogError`` for what is not a regular file or cannot be read."""
        self.path = path
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise LogError(error.strerror or "cannot be opened") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise LogError("not a regular file")
        self._raw: Final = os.fdopen(fd, "rb", buffering=0)
        self._opener: Final = OPENERS.get(path.suffix)
        self._text: Unpacked | None = None
        self._at = 0
        self.damage: str | None = None

    @property
    def compressed(self) -> bool:
        """Whether the text has to be unpacked."""
        return self._opener is not None

    def stamp(self) -> Stamp:
        """What ``stat`` says of the open file."""
        return _stamp(os.fstat(self._raw.fileno()))

    def head(self) -> bytes | None:
        """The hash of the first line, ``None`` while that has no newline yet. Raises ``LogError``."""
        start = self._read(0, HEAD_LIMIT)
        line, newline, _ = start.partition(b"\n")
        if not newline and len(start) < HEAD_LIMIT:
            return None
        return _digest(line)

    def verified(self, position: Position) -> bool:
        """Whether what stands before a position is still there. Raises ``LogError``."""
        start = max(position.offset - TAIL, 0)
        before = self._read(start, position.offset - start)
        return len(before) == position.offset - start and _digest(before) == position.tail

    def blocks(self, position: Position, size: int = BLOCK) -> Iterator[Block]:
        """Whole lines from a position to the end, in blocks of about ``size`` bytes. Raises ``LogError``."""
        while True:
            data = self._read(position.offset, size)
            block = self._block(data, position)
            if block.position == position:
                return
            yield block
            position = block.position
            if len(data) < size:
                return

    def _block(self, data: bytes, position: Position) -> Block:
        start = data.find(b"\n") + 1 if position.skipping else 0
        first = position.offset + start
        if position.skipping and not start:
            return Block([], first, [], self._moved(position.offset, data, skipping=True))
        end = data.rfind(b"\n") + 1
        if end == start and len(data) - start > MAX_PENDING:
            return Block([], first, [first], self._moved(position.offset, data, skipping=True))
        lines = data[start : end - 1].split(b"\n") if end > start else []
        return Block(lines, first, [], self._moved(position.offset, data[:end], skipping=False))

    def _moved(self, offset: int, data: bytes, *, skipping: bool) -> Position:
        end = offset + len(data)
        start = max(end - TAIL, 0)
        before = data[-TAIL:] if start >= offset else self._read(start, end - start)
        return Position(end, _digest(before), skipping)

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _read(self, offset: int, size: int) -> bytes:
        if self._opener is None:
            try:
                return os.pread(self._raw.fileno(), size, offset)
            except OSError as error:
                raise LogError(error.strerror or "cannot be read") from error
        return self._unpack(self._opener, offset, size)

    def _unpack(self, opener: Callable[[Any], Unpacked], offset: int, size: int) -> bytes:
        """Text of a compressed file; where it is cut or damaged the text ends, and ``damage`` says so."""
        if self._text is None or offset < self._at:
            self._raw.seek(0)
            self._text, self._at, self.damage = opener(self._raw), 0, None
        pieces = []
        wanted = offset + size
        while self._at < wanted:
            try:
                piece = self._text.read(min(wanted - self._at, UNPACK))
            except BROKEN:
                self.damage = "the compressed file is cut or damaged"
                break
            if not piece:
                break
            if self._at + len(piece) > offset:
                pieces.append(piece[max(offset - self._at, 0) :])
            self._at += len(piece)
        return b"".join(pieces)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()
