"""Content codings undone on a copy: gzip, deflate, br and zstd, stacked in any order, declared or not.

One decoder serves a whole body, since servers flush a coding per event (envoyproxy/ai-gateway#1927). A body that is
not what its header says is read as what it is; a body that cannot be decoded any further gives nothing more, and its
usage is partial or missing. Nothing here raises on input. Output comes in pieces of at most a few hundred KiB, and a
body that expands past ``LIMIT`` at a ratio past ``RATIO`` is a bomb: decoding stops.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import brotli
import zstandard

PIECE: Final = 256 * 1024
# zstd gives no way to bound its output, but one byte in is at most a block of 128 KiB per three bytes out.
ZSTD_STEP: Final = 64
ZSTD_WINDOW: Final = 8 * 1024 * 1024  # the most a web body may ask for (RFC 9659)
LIMIT: Final = 16 * 1024 * 1024
RATIO: Final = 250
DEPTH: Final = 4  # declared codings beyond this, and undeclared ones inside, are not undone

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
MAGIC: Final = {GZIP_MAGIC: "gzip", ZSTD_MAGIC: "zstd"}
# With the compression method behind it gzip's magic is no accident, whatever the header says.
SURE: Final = (GZIP_MAGIC + b"\x08", ZSTD_MAGIC)
ENOUGH: Final = 4
# How the bodies we read begin; no compressed body does by more than chance.
PLAIN: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:[\[{]\s*[\"\[{}\]]|data|event|id:|retry|: ?[A-Za-z\n])")
ALIASES: Final = {"x-gzip": "gzip", "x-zstd": "zstd", "zlib": "deflate"}
IGNORED: Final = ("", "identity", "aws-chunked", "none", "utf-8")


class Broken(Exception):
    """The bytes are not of this coding."""


class Stage(Protocol):
    """One coding undone."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces. Raises ``Broken``."""


class Plain:
    """No coding."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data


class Inflate:
    """gzip (any number of members), zlib or raw deflate."""

    def __init__(self, wbits: int, magic: bytes = b"") -> None:
        self._wbits = wbits
        self._magic = magic
        self._decoder = zlib.decompressobj(wbits)
        self._ended = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data and not self._ended:
            try:
                piece = self._decoder.decompress(data, PIECE)
            except zlib.error as error:
                raise Broken from error
            if piece:
                yield piece
            data = self._decoder.unconsumed_tail
            if self._decoder.eof:
                data = self._decoder.unused_data
                # Another member may follow a gzip member; anything else behind the end is padding.
                self._ended = bool(data) and not (self._magic and self._magic.startswith(data[: len(self._magic)]))
                self._decoder = zlib.decompressobj(self._wbits)


class Brotli:
    """br."""

    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            piece = self._decoder.process(data, output_buffer_limit=PIECE)
            while piece or not self._decoder.can_accept_more_data():
                yield piece
                if self._decoder.is_finished():
                    return
                piece = self._decoder.process(b"", output_buffer_limit=PIECE)
        except brotli.error as error:
            raise Broken from error


class Zstd:
    """zstd, any number of frames."""

    def __init__(self) -> None:
        self._context = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
        self._decoder = self._context.decompressobj()

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), ZSTD_STEP):
            yield from self._step(data[start : start + ZSTD_STEP])

    def _step(self, data: bytes) -> Iterator[bytes]:
        while data:
            try:
                piece = self._decoder.decompress(data)
            except zstandard.ZstdError as error:
                raise Broken from error
            if piece:
                yield piece
            if not self._decoder.eof:
                return
            data = self._decoder.unused_data
            self._decoder = self._context.decompressobj()


class Sniffed:
    """A coding that is only believed once its first bytes agree; ``name`` empty: none was declared."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first = b""
        self._stage: Stage | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._stage is None:
            self._first += data
            if len(self._first) < ENOUGH:
                return
            data, self._first = self._first, b""
            self._stage = open_stage(self._name, data)
        yield from self._stage.feed(data)

    def finish(self) -> bytes:
        """First bytes too few to tell anything: they are plain."""
        return self._first


STAGES: Final[dict[str, Callable[[bytes], Stage]]] = {
    "gzip": lambda first: Inflate(31, GZIP_MAGIC),
    "deflate": lambda first: Inflate(15 if is_zlib(first) else -15),
    "br": lambda first: Brotli(),
    "zstd": lambda first: Zstd(),
}
NEEDS_MAGIC: Final = {"gzip": GZIP_MAGIC, "zstd": ZSTD_MAGIC}


def open_stage(name: str, first: bytes) -> Stage:
    """The stage for a body that is declared as ``name`` and begins with ``first``: the bytes have the last word."""
    actual = next((coding for magic, coding in MAGIC.items() if first.startswith(magic)), None)
    if actual is not None and (name in ("", *NEEDS_MAGIC) or first.startswith(SURE)):
        return STAGES[actual](first)
    if not name or name in NEEDS_MAGIC or PLAIN.match(first):
        return Plain()
    return STAGES[name](first)


def is_zlib(first: bytes) -> bool:
    """Whether a deflate body has the zlib header that the standard asks for; many servers send it raw."""
    return first[0] & 0x0F == 8 and int.from_bytes(first[:2], "big") % 31 == 0


class ContentDecoder:
    """The decoded copy of one body.

    ``gave_up``: the rest cannot be read (an unknown coding, damage, a bomb); what came before was.
    """

    def __init__(self, content_encoding: str = "") -> None:
        declared = [name.strip().lower() for name in content_encoding.split(",")]
        names = [ALIASES.get(name, name) for name in declared if name not in IGNORED]
        self.gave_up = len(names) > DEPTH or any(name not in STAGES for name in names)
        # Codings are listed in the order they were applied; one more stage finds an undeclared one.
        self._stages = [] if self.gave_up else [Sniffed(name) for name in (*reversed(names), "")]
        self._taken = 0
        self._given = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces of the body so far. To be run to its end before the next call."""
        self._taken += len(data)
        yield from self._guarded(self._through(0, data))

    def finish(self) -> Iterator[bytes]:
        """What was held back to tell the coding."""
        for index, stage in enumerate(self._stages):
            yield from self._guarded(self._through(index + 1, stage.finish()))

    def _guarded(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        if self.gave_up:
            return
        try:
            for piece in pieces:
                self._given += len(piece)
                if self._given > LIMIT and self._given > RATIO * self._taken:
                    self.gave_up = True
                    return
                yield piece
        except Broken:
            self.gave_up = True

    def _through(self, index: int, data: bytes) -> Iterator[bytes]:
        """Pass data through the stages from ``index`` on."""
        if not data:
            return
        if index == len(self._stages):
            yield data
            return
        for piece in self._stages[index].feed(data):
            yield from self._through(index + 1, piece)
