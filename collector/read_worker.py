"""A process that reads sources for another one: orders on standard input, what was found on standard output.

Started by ``collector.read_pool`` as ``python -m collector.read_worker``. Each message is its length (4 bytes) and
msgpack. The worker opens stores and nothing else; it ends when its input does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from collector import memory
from collector.record import Record, Session
from collector.runtimes import Batch, Reader, Source, SourceError

LENGTH: Final = 4


class Order(msgspec.Struct, array_like=True):
    """One source to read from ``state`` on. Paths as the system has them: they need not be text."""

    runtime: str
    path: bytes
    parts: list[bytes]
    state: dict[str, Any] | None


class Found(msgspec.Struct, array_like=True, tag=0):
    """One batch of the source."""

    records: list[Record]
    sessions: list[Session]
    skipped: dict[str, int]
    state: dict[str, Any] | None
    unfinished: bool


class End(msgspec.Struct, array_like=True, tag=1):
    """The source is read, but for ``reason``; ``unsent``: what comes next cannot be told in a message."""

    reason: str | None = None
    unsent: bool = False


_encode: Final = msgspec.msgpack.Encoder().encode
_order: Final = msgspec.msgpack.Decoder(Order).decode
answer: Final = msgspec.msgpack.Decoder(Found | End).decode


def framed(message: object) -> bytes:
    """A message as it is sent."""
    data = _encode(message)
    return len(data).to_bytes(LENGTH, "big") + data


def order(source: Source, state: dict[str, Any] | None) -> bytes:
    """The order for a source, as it is sent."""
    parts = [os.fsencode(part) for part in source.parts]
    return framed(Order(source.runtime, os.fsencode(source.path), parts, state))


def reader_of(runtime: str) -> Reader:
    """The runtime's reader: in the module of its name."""
    reader: Reader = import_module(f"collector.runtimes.{runtime}").READER
    return reader


def why(error: Exception) -> str:
    """For a person: why a source could not be read. Nothing that a store holds is in it."""
    return error.reason if isinstance(error, SourceError) else f"cannot be read ({type(error).__name__})"


def answers(given: Order) -> Iterator[bytes]:
    """What a source holds, message by message."""
    source = Source(
        given.runtime, Path(os.fsdecode(given.path)), tuple(Path(os.fsdecode(part)) for part in given.parts)
    )
    try:
        for batch in reader_of(given.runtime).read(source, given.state):
            try:
                message = framed(_found(batch))
            except (UnicodeError, OverflowError, TypeError):
                yield framed(End(unsent=True))
                return
            yield message
    except Exception as error:
        yield framed(End(why(error)))
    else:
        yield framed(End())


def _found(batch: Batch) -> Found:
    return Found(batch.records, batch.sessions, dict(batch.skipped), batch.state, batch.unfinished)


def serve(orders: BinaryIO, out: BinaryIO) -> None:
    """Answer orders until there are no more."""
    while head := orders.read(LENGTH):
        for message in answers(_order(orders.read(int.from_bytes(head, "big")))):
            out.write(message)
        out.flush()


if __name__ == "__main__":
    memory.collect_rarely()
    # Whatever a library prints must not stand among the answers.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, out)
