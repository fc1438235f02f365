"""Ids that two calls share: a VM restored from a snapshot goes on with the ids of the one that went on. Pure.

A shim that resumes from a snapshot begins a new boot once it sees its clock jump, which takes up to a second, and
longer where the clock stands still. Lines of that time have ids of other calls. Of calls that share an id the earliest
keeps it; another one is a call of its own, under an id made of that one and of what its line says. So the same line is
the same record whenever it comes again, in every ledger, and logs give the same calls in any order. The other id is a
start of its own with one line, so no ``seq`` is missing before it.

What is compared is what a line says for good: not its session, price or attribution, which are found out later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from collector.call import Call
from collector.ledger import Entry
from shim.line import TOKEN_CLASSES

# Columns of ``record`` that hold what a usage line says for good.
CONTENT: Final = ("ts", *TOKEN_CLASSES, "http_status", "stream", "duration_ms", "ttft_ms", "response")
# A boot's name has at most 64 characters: those of ours have 31, and the longest seq 13.
BOOT_KEPT: Final = 38
DIGEST_BYTES: Final = 5
FIRST: Final = 1

Content = tuple[Any, ...]


def order(content: Content) -> tuple[int, str]:
    """By this, the least of the calls that share an id keeps it."""
    return content[0], repr(content)


def content_of_call(call: Call) -> Content:
    """What a line says."""
    stream = None if call.stream is None else int(call.stream)
    tokens = (getattr(call, name) for name in TOKEN_CLASSES)
    ts_ms = int(call.ts * 1000 + 0.5)
    return (ts_ms, *tokens, call.http_status, stream, call.duration_ms, call.ttft_ms, call.response)


def content_of_entry(entry: Entry) -> Content:
    """What the line of a record that another ledger sends said."""
    stream = None if entry.stream is None else int(entry.stream)
    tokens = (getattr(entry.tokens, name) for name in TOKEN_CLASSES)
    return (entry.ts_ms, *tokens, entry.http_status, stream, entry.duration_ms, entry.ttft_ms, entry.response)


def content_of_row(row: Sequence[Any], places: Mapping[str, int]) -> Content:
    """What the line of a stored record said. ``places``: of the columns in ``row``."""
    # a flag may not be stored yet
    return tuple(int(value) if type(value) is bool else value for value in (row[places[name]] for name in CONTENT))


def renamed(entry: Entry) -> Entry:
    """The record of a line whose id an earlier call has, under an id of its own."""
    boot, _, seq = entry.id.rpartition("-")
    return replace(entry, id=f"{boot_of(boot, int(seq), content_of_entry(entry))}-{FIRST}")


def boot_of(boot: str, seq: int, content: Content) -> str:
    """The start under which a line with this id and content is kept; its ``seq`` there is ``FIRST``."""
    said = repr((boot, seq, content)).encode()
    return f"{boot[:BOOT_KEPT]}.{seq}.{hashlib.blake2b(said, digest_size=DIGEST_BYTES).hexdigest()}"
