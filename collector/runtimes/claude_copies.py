"""What tells a copied Claude Code transcript from its original: how it begins, and ``uuid`` and time of each line.

Read from the program's writing of transcripts (``insertMessageChain``, as published in copies of its source) and from
stores of 2.1.x. A chain of messages begins with ``"parentUuid": null``, a copied one too, for a fork writes its chain
anew; at the boundary of a compaction the parent is null and ``logicalParentUuid`` names it. So a first message with a
parent may follow lines that other files still have: the transcript was cut. It may also go on from another file's last
message, as a resumed session did in some versions; then no file holds its lines. Every message has the key, so without
it nothing is known and the transcript may be cut too. Lines of other kinds (totals, snapshots, titles) have no
``uuid``, and a fork does not copy them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, first_lines, lines, parse, tail
from collector.runtimes.kin import Head
from collector.runtimes.lineage import Mark
from collector.runtimes.values import iso, latest, mapping, reference

HEAD_BYTES: Final = 64 << 10
# How many blocks of that size are looked through for the first message.
MAX_HEADS: Final = 16
FIRST_UUID: Final = re.compile(rb'[,{]\s*"uuid":\s?"([^"\\]{1,80})"')
UUIDS: Final = re.compile(rb'"uuid":\s?"([^"\\]{1,80})"')
# A fork copies the chain of messages alone; of lines beside it no copy is to be expected.
SIDE_CHAIN: Final = b'"isSidechain":true'
PROGRESS: Final = b'"type":"progress"'
PROBES: Final = 8
EDGE_LINES: Final = 64


def head(path: Path) -> Head | None:
    """The first message of a transcript, what the transcript says of being a copy, and whether it may be cut.

    ``None`` where there is no message yet. Raises ``SourceError``.
    """
    began = None
    for block in islice(LineFile(path).blocks(HEAD_BYTES), MAX_HEADS):
        found = FIRST_UUID.search(block)
        for line in first_lines(block):
            if found is not None and found[0] in line:
                return _head(path, found[1].decode(errors="replace"), parse(line) or {}, began, block[found.start() :])
            if began is None and b'"timestamp"' in line:
                began = iso((parse(line) or {}).get("timestamp"))
    return None


def _head(path: Path, first: str, entry: Mapping[str, Any], began: float | None, rest: bytes) -> Head:
    when = iso(entry.get("timestamp"))
    source = reference(mapping(entry.get("forkedFrom")).get("sessionId"))
    named = path.with_name(f"{source}.jsonl") if source is not None and "/" not in source else None
    # A line of today before one of an older day: what follows was copied.
    older = began is not None and when is not None and when < began
    cut = entry.get("parentUuid", "") is not None or entry.get("logicalParentUuid") is not None
    return Head(first, when, named, began if older else None, _probes(first, rest) if cut and named is None else ())


def _probes(first: str, block: bytes) -> tuple[str, ...]:
    found = []
    for line in first_lines(block):
        match = UUIDS.search(line)
        if match is not None and SIDE_CHAIN not in line and PROGRESS not in line:
            found.append(match[1].decode(errors="replace"))
        if len(found) == PROBES:
            break
    return tuple(found or [first])


def holds(path: Path, wanted: Collection[str]) -> set[str]:
    """Which of these ``uuid`` a transcript holds. Raises ``SourceError``."""
    found: set[str] = set()
    for block in LineFile(path).blocks():
        # As many as the file has, not as many as are wanted: each file of a folder is asked for those of all others.
        found |= {uuid for uuid in (match.decode(errors="replace") for match in UUIDS.findall(block)) if uuid in wanted}
    return found


def ended(path: Path) -> float | None:
    """The time of the last dated line; ``None`` where there is none near the end. Raises ``SourceError``."""
    block = tail(path, HEAD_BYTES)
    return last_time(block, len(block))


def last_time(block: bytes, end: int) -> float | None:
    """The time of the last dated line of ``block[:end]``, which ends with a newline."""
    for _ in range(EDGE_LINES):
        if end <= 0:
            return None
        start = block.rfind(b"\n", 0, end - 1) + 1
        line = block[start:end]
        if b'"timestamp"' in line:
            entry = parse(line)
            if entry is not None and (when := iso(entry.get("timestamp"))) is not None:
                return when
        end = start
    return None


def marks(path: Path) -> Iterator[Mark]:
    """``uuid`` and time of every message that is not said to be a copy; a line of another kind has no identity."""
    began = copied = None
    for block in LineFile(path).blocks():
        for line in lines(block):
            entry = parse(line) if b'"timestamp"' in line else None
            when = None if entry is None else iso(entry.get("timestamp"))
            began = when if began is None else began
            if entry is None or when is None or not isinstance(uuid := entry.get("uuid"), str):
                yield None
            elif "forkedFrom" in entry:
                copied = latest(copied, when)
            elif (began is None or when >= began) and (copied is None or when > copied):
                yield uuid, when
