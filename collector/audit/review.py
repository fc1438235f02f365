"""Reads usage logs (plain, .gz, .zst) into totals, facts and findings, in memory that does not grow with the lines."""

from __future__ import annotations

import contextlib
import gzip
import io
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import zstandard

from collector.audit.suspicion import KNOWN, Suspicion
from collector.ranges import RangeSet
from collector.windows import Calendar, day
from shim.line import MAX_LINE, TOKEN_CLASSES, Line, LineError, decode, from_object, parse

BLOCK: Final = 1 << 20
EXAMPLES: Final = 5
# Ids that came twice are looked at once more, up to so many of them.
MAX_REPEATED: Final = 10_000
UNREADABLE: Final = (OSError, EOFError, zstandard.ZstdError, gzip.BadGzipFile)


@dataclass(slots=True)
class Total:
    """Calls and tokens of one day and model; a class that no call knew stays ``None``."""

    calls: int = 0
    without_usage: int = 0
    tokens: list[int | None] = field(default_factory=lambda: [None] * len(TOKEN_CLASSES))

    def add(self, line: Line) -> None:
        self.calls += 1
        self.without_usage += line.usage == "missing"
        for place, name in enumerate(TOKEN_CLASSES):
            count = getattr(line.tokens, name)
            if count is not None:
                self.tokens[place] = (self.tokens[place] or 0) + count


@dataclass(slots=True)
class Boot:
    """One start of a shim: which lines arrived and when."""

    vm: str
    seqs: RangeSet = field(default_factory=RangeSet)
    first: float = float("inf")
    last: float = 0.0


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines ``first_seq`` to ``last_seq`` of a boot that no log holds."""

    vm: str
    boot: str
    first_seq: int
    last_seq: int

    @property
    def lines(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass(slots=True)
class Finding:
    """One kind of fault: how often, and where the first few are (file, offset in bytes)."""

    count: int = 0
    examples: list[tuple[str, int]] = field(default_factory=list)

    def add(self, path: str, offset: int) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((path, offset))


@dataclass(slots=True)
class Audit:
    """What the logs say. ``quarantine``, ``suspicious`` and ``unknown_keys`` hold a ``Finding`` per reason.

    ``clashes``: lines of calls that have the id of another one.
    """

    files: int = 0
    lines: int = 0
    bytes: int = 0
    duplicates: int = 0
    clashes: int = 0
    waiting: int = 0
    totals: dict[tuple[str, str | None], Total] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    boots: dict[str, Boot] = field(default_factory=dict)
    quarantine: dict[str, Finding] = field(default_factory=dict)
    suspicious: dict[str, Finding] = field(default_factory=dict)
    unknown_keys: dict[str, Finding] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def gaps(self) -> list[Gap]:
        """Missing ``seq`` runs of every boot."""
        return [
            Gap(boot.vm, name, first, last)
            for name, boot in sorted(self.boots.items())
            for first, last in boot.seqs.gaps()
        ]

    @property
    def restarts(self) -> int:
        """Starts of a shim beyond the first of each VM."""
        return len(self.boots) - len({boot.vm for boot in self.boots.values()})

    @property
    def clean(self) -> bool:
        """Whether there is no finding."""
        faults = self.quarantine, self.suspicious, self.unknown_keys, self.unreadable
        return not any(faults) and not self.duplicates and not self.clashes and not self.gaps


class Reviewer:
    """Fills an ``Audit`` from logs. ``progress`` is told how many bytes of a file were read."""

    def __init__(self, calendar: Calendar, progress: Callable[[int], None] = lambda size: None) -> None:
        self.audit = Audit()
        self._calendar = calendar
        self._progress = progress
        self._suspicion = Suspicion()
        self._days: dict[int, str] = {}
        self._repeated: dict[str, set[Hashable]] = {}

    def review(self, paths: Iterable[Path]) -> Audit:
        """Review logs; where ids came twice, read once more to tell a line shipped twice from another call's."""
        logs = list(paths)
        for path in logs:
            self.read(path)
        for path in logs if self._repeated else ():
            with contextlib.suppress(*UNREADABLE), open_log(path) as stream:
                for _, data in whole_lines(stream, lambda size: None):
                    with contextlib.suppress(LineError):
                        if data.endswith(b"\n"):
                            self._compare(decode(data))
        return self.audit

    def read(self, path: Path) -> None:
        """Review one log; a file that cannot be read, or not to its end, is a finding."""
        self.audit.files += 1
        try:
            with open_log(path) as stream:
                for offset, data in whole_lines(stream, self._progress):
                    self._line(str(path), offset, data)
        except UNREADABLE as error:
            self.audit.unreadable[str(path)] = getattr(error, "strerror", None) or str(error)

    def _line(self, path: str, offset: int, data: bytes) -> None:
        audit = self.audit
        audit.bytes += len(data)
        if not data.endswith(b"\n"):
            audit.waiting += 1
            return
        audit.lines += 1
        try:
            value = parse(data)
            for key, rule in self._suspicion.of(value):
                audit.suspicious.setdefault(f"{key[:40]}: {rule}", Finding()).add(path, offset)
            line = from_object(value)
        except LineError as error:
            audit.quarantine.setdefault(error.reason, Finding()).add(path, offset)
            return
        if not value.keys() <= KNOWN:
            self._unknown(path, offset, value)
        self._count(line)

    def _unknown(self, path: str, offset: int, value: dict[str, Any]) -> None:
        for key in value.keys() - KNOWN:
            self.audit.unknown_keys.setdefault(key[:40], Finding()).add(path, offset)

    def _count(self, line: Line) -> None:
        audit = self.audit
        boot = audit.boots.get(line.boot)
        if boot is None:
            boot = audit.boots[line.boot] = Boot(line.vm)
        if not boot.seqs.add(line.seq):
            audit.duplicates += 1
            if len(self._repeated) < MAX_REPEATED:
                self._repeated.setdefault(line.id, set())
            return
        boot.first = min(boot.first, line.ts)
        boot.last = max(boot.last, line.ts)
        self._total(line)

    def _compare(self, line: Line) -> None:
        """A line that says something else than all before it under its id is a call of its own (``ledger.clash``)."""
        known = self._repeated.get(line.id)
        if known is None:
            return
        said = (line.ts, line.tokens, line.http_status, line.stream, line.duration_ms, line.ttft_ms, line.response)
        if known and said not in known:
            self.audit.duplicates -= 1
            self.audit.clashes += 1
            self._total(line)
        known.add(said)

    def _total(self, line: Line) -> None:
        audit = self.audit
        audit.outcomes[line.outcome] += 1
        key = (self._day(line.ts), line.model)
        total = audit.totals.get(key)
        if total is None:
            total = audit.totals[key] = Total()
        total.add(line)

    def _day(self, ts: float) -> str:
        number = self._calendar.day(ts)
        name = self._days.get(number)
        if name is None:
            name = self._days[number] = day(number).isoformat()
        return name


@contextmanager
def open_log(path: Path) -> Iterator[BinaryIO]:
    """A log or its compressed sibling as a stream of plain bytes."""
    with path.open("rb") as file:
        magic = file.peek(4)[:4]
        if magic[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=file) as stream:
                yield io.BufferedReader(stream)
        elif magic == b"\x28\xb5\x2f\xfd":
            with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as reader:
                yield io.BufferedReader(reader)
        else:
            yield file


def whole_lines(stream: BinaryIO, progress: Callable[[int], None]) -> Iterator[tuple[int, bytes]]:
    """Lines with their offsets; the last may lack its newline. A line that never ends is given in its first bytes."""
    offset = 0
    rest = b""
    while block := stream.read(BLOCK):
        progress(len(block))
        block = rest + block
        start = 0
        while (end := block.find(b"\n", start)) >= 0:
            yield offset + start, block[start : end + 1]
            start = end + 1
        rest = block[start:]
        offset += start
        if len(rest) > MAX_LINE:
            yield offset, rest[: MAX_LINE + 1] + b"\n"
            offset, rest = _skip_line(stream, offset, rest)
    if rest:
        yield offset, rest


def _skip_line(stream: BinaryIO, offset: int, rest: bytes) -> tuple[int, bytes]:
    """Past the end of a line that is longer than any of ours: the new offset and what follows it."""
    offset += len(rest)
    while block := stream.read(BLOCK):
        end = block.find(b"\n")
        if end >= 0:
            return offset + end + 1, block[end + 1 :]
        offset += len(block)
    return offset, b""
