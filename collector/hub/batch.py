"""What a VM sends to a hub: JSON lines, compressed with zstd. The first line says who and where, the rest are records.

A record is its entry by name (``collector.entries``) with ``v``; what is ``None`` is left out. Numbers, closed
vocabularies and opaque references only, as in a usage line. ``before`` and ``after`` are places in the journal of the
VM's ledger, ``born`` says which ledger that is, so that a hub knows a batch it has, and one that skips something.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
import orjson
import zstandard

from collector.entries import flat
from collector.ledger import Entry

VERSION: Final = 1
PATH: Final = "/api/hub/v1/records"
CONTENT_TYPE: Final = "application/x-ndjson+zstd"
MAX_BODY: Final = 2 * 1024 * 1024
MAX_PLAIN: Final = 16 * 1024 * 1024
MAX_RECORDS: Final = 5_000
# A decompressor keeps a window of this many bytes at most; zstd's levels up to 9 need no more for such bodies.
MAX_WINDOW: Final = 8 * 1024 * 1024
LEVEL: Final = 3

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")]


class Gap(msgspec.Struct, frozen=True):
    """Usage lines ``first`` to ``last`` of a boot that never arrived on the VM."""

    boot: Name
    first: Count
    last: Count


class Refused(msgspec.Struct, frozen=True):
    """How many records the VM counts nowhere, and why."""

    reason: Name
    runtime: Name
    count: Count


class Facts(msgspec.Struct, frozen=True):
    """What a VM tells of itself beside its records; ``waiting``: records still to be pushed after this batch."""

    version: Annotated[str, msgspec.Meta(max_length=32)] = ""
    waiting: Count = 0
    gaps: Annotated[list[Gap], msgspec.Meta(max_length=500)] = []
    refused: Annotated[list[Refused], msgspec.Meta(max_length=500)] = []


class Head(msgspec.Struct, frozen=True):
    """The first line of a batch. ``sent_at``: the VM's clock, epoch seconds."""

    v: int
    vm: Name
    born: Count
    before: Count
    after: Count
    sent_at: float
    facts: Facts = Facts()


class BatchError(Exception):
    """A body that is no batch: HTTP status and one sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Answer(msgspec.Struct, frozen=True):
    """What the hub says of a batch it has made durable.

    ``after``: go on from here (less than the batch's where the hub lacks something). ``refused``: ids and reasons of
    records that it will never take as they are.
    """

    after: int
    refused: list[tuple[str, str]] = []


def encode(head: Head, entries: Iterable[Entry]) -> bytes:
    """A batch as a request body."""
    lines = [msgspec.json.encode(head)]
    for entry in entries:
        values = {name: value for name, value in flat(entry).items() if value is not None}
        lines.append(orjson.dumps({"v": VERSION, **values}))
    return zstandard.ZstdCompressor(level=LEVEL).compress(b"\n".join(lines))


def decode(body: bytes) -> tuple[Head, list[bytes]]:
    """A request body as its head and the lines of its records. Raises ``BatchError``."""
    first, *lines = _plain(body).split(b"\n")
    try:
        head = msgspec.json.decode(first, type=Head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BatchError(400, f"The first line is not the head of a batch: {error}.") from None
    if head.v != VERSION:
        raise BatchError(400, f"Batches of version {head.v} are not known here: upgrade the hub.")
    if len(lines) > MAX_RECORDS:
        raise BatchError(413, f"A batch may hold {MAX_RECORDS} records.")
    return head, [line for line in lines if line]


def _plain(body: bytes) -> bytes:
    try:
        reader = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(body)
        plain: bytes = reader.read(MAX_PLAIN + 1)
    except zstandard.ZstdError as error:
        raise BatchError(400, f"The body is not zstd: {error}.") from None
    if len(plain) > MAX_PLAIN:
        raise BatchError(413, f"A batch may be {MAX_PLAIN} bytes long when decompressed.")
    return plain
