"""The lines of a Claude Code transcript: the usage of an assistant line, and what tells a copy from its original."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, first_lines, lines_with, parse
from collector.runtimes.lineage import Head, Mark
from collector.runtimes.values import count, iso, reference, usd
from collector.runtimes.values import model as model_name
from shim.line import Tokens, tier_or_none

HEAD_BYTES: Final = 64 << 10
FIRST_UUID: Final = re.compile(rb'[,{]\s*"uuid":\s?"([^"\\]{1,80})"')


# What is kept of a line until it is known to be the best of its message: order, usage, message id, model, then
# LINE_FIELDS of the entry. A plain tuple, because a million of them are made.
Line = tuple[int, dict[str, Any], Any, Any, Any, Any, Any, Any]
LINE_FIELDS: Final = ("timestamp", "sessionId", "forkedFrom", "costUSD")
SYNTHETIC: Final = "<synthetic>"
MAX_GROWN: Final = 1 << 39


@dataclass(slots=True)
class Call:
    """One API message by its best line. ``grown`` orders the lines of a message; ``pico`` is what it cost."""

    grown: int
    session: str
    ts: float
    model: str | None
    usage: dict[str, Any]
    pico: int | None
    response_id: str | None

    @property
    def tokens(self) -> Tokens:
        """The token classes of the line."""
        return _tokens(self.usage)

    @property
    def tier(self) -> str | None:
        """The served tier; Anthropic's fast mode counts as one."""
        return "fast" if self.usage.get("speed") == "fast" else tier_or_none(self.usage.get("service_tier"))


def call(line: Line, session: str) -> Call | str:
    """The call that a line tells of, or a word why it tells of none; ``session`` wrote it unless it says otherwise."""
    grown, usage, identity, named, stamp, writer, origin, cost = line
    if named == SYNTHETIC:
        return "synthetic"
    when = iso(stamp)
    if when is None or not 0 <= grown < MAX_GROWN:
        return "no_time"
    if isinstance(origin, dict):
        # A copy that names where it came from is that session's line.
        writer = origin.get("sessionId")
    if writer != session:
        session = reference(writer) or session
    pico = None if cost is None else usd(cost) or None
    return Call(grown, session, when, model_name(named), usage, pico, reference(identity))


def _tokens(usage: dict[str, Any]) -> Tokens:
    write = count(usage.get("cache_creation_input_tokens"))
    split = usage.get("cache_creation")
    long_lived = None
    if isinstance(split, dict) and (long_lived := count(split.get("ephemeral_1h_input_tokens"))) is not None:
        if write is None:
            write = long_lived + (count(split.get("ephemeral_5m_input_tokens")) or 0)
        long_lived = min(long_lived, write)
    fresh, read = count(usage.get("input_tokens")), count(usage.get("cache_read_input_tokens"))
    return Tokens(fresh, read, write, long_lived, count(usage.get("output_tokens")))


def _timestamp(line: bytes) -> float | None:
    if b'"timestamp"' not in line:
        return None
    entry = parse(line)
    return iso(entry.get("timestamp")) if entry is not None else None


def head(path: Path) -> Head | None:
    """The first message of a transcript, and whether it says itself that it was copied."""
    block = next(LineFile(path).blocks(HEAD_BYTES), b"")
    found = FIRST_UUID.search(block)
    if found is None:
        return None
    first = None
    for line in first_lines(block):
        when = _timestamp(line)
        if first is None:
            first = when
        if found[0] in line:
            # A line of today before one of an older day: what follows was copied.
            older = first is not None and when is not None and when < first
            return Head(found[1].decode(errors="replace"), older or b'"forkedFrom"' in line)
    return None


def marks(path: Path) -> Iterator[Mark]:
    """``uuid`` and time of every line that has both."""
    for block in LineFile(path).blocks():
        for line in lines_with(block, b'"uuid"'):
            entry = parse(line)
            if entry is not None and isinstance(mark := entry.get("uuid"), str):
                when = iso(entry.get("timestamp"))
                if when is not None:
                    yield mark, when
