"""Claude Code's ``cost-state`` lines: the running total of a session, in tokens and dollars per model (since 2.1).

The line has no date. It is written after the last dated line before it, and no sooner than its process's clock tells:
that begins at ``startTime`` (epoch ms), ``totalDuration`` (ms) is how long it ran, and it stands still between two
processes. So a background agent's calls after the last dated line are known to be part of the total. It also holds
what no transcript row tells: compaction, titles, sub-agents that were reaped. A session that was forked or resumed goes
on from the total that it found, recognisable by an equal ``startTime``; after ``/clear`` and ``/branch`` a new one
begins, at zero: no row from before its ``startTime`` is part of it. Nor are the turns of a program that was killed
before it wrote a total: the clock of the next one did not run then. This module finds the last total of a session and
the one that it began with, which may stand in another project's folder; ``claude_cost`` makes money of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from collector.jsonl import LineFile, first_lines, parse, tail
from collector.runtimes import SourceError, places
from collector.runtimes.claude_copies import EDGE_LINES, last_time
from collector.runtimes.claude_sums import Models, Priced, less, sum_of, summed
from collector.runtimes.values import LATEST, count, iso, mapping, usd

NEEDLE: Final = b'"cost-state"'
TAIL: Final = 256 << 10
PROMPTS: Final = (b'"type":"user"', b'"type":"queue-operation"')
FIELDS: Final = (
    "inputTokens",
    "cacheReadInputTokens",
    "cacheCreationInputTokens",
    "cacheCreationEphemeral1hInputTokens",
    "outputTokens",
)


@dataclass(frozen=True, slots=True)
class State:
    """One ``cost-state`` line: not before ``ts``, of the process chain ``chain``; tokens and pico-USD per model."""

    ts: float
    chain: int
    models: Models
    trusted: bool
    # How long its program ran since the total before, and when the first prompt after it was written, if that is known.
    ran: float | None = None
    prompt: float | None = None

    @property
    def size(self) -> int:
        """How much it counts, to tell a later total from an earlier one."""
        return sum(sum(classes) for classes, _ in self.models.values())

    @property
    def since(self) -> float:
        """When it began, at zero."""
        return self.chain / 1000


@dataclass(frozen=True, slots=True)
class Total:
    """The last total of a session and the one that it began with; ``found``: that one, where a transcript told it.

    ``inherited``: where none did, what the session that was forked had beyond ``base``, as far as the fork tells it.
    ``since``: no row from before is part of it (epoch seconds), nor one of the main chain from within ``gaps``.
    """

    ts: float
    last: Models
    base: Models
    trusted: bool
    found: Models | None = None
    inherited: Models = field(default_factory=dict)
    since: float = 0.0
    gaps: tuple[tuple[float, float], ...] = ()

    def covers(self, call: Priced) -> bool:
        """Whether the call may be part of the total, but for being later."""
        return call.ts >= self.since and (call.side or not any(since < call.ts < until for since, until in self.gaps))


class Began(NamedTuple):
    """How a session began: the time of its first call (epoch seconds), the session that was forked, and the time of the
    last line that is known to be copied from that."""

    ts: float
    parent: str | None = None
    copied: float | None = None


@dataclass(slots=True)
class _Folder:
    changed: int
    tails: dict[str, tuple[int, int, int | None]] = field(default_factory=dict)


class Totals:
    """Finds totals, and across the transcripts of one project the total that a fork began with."""

    def __init__(self) -> None:
        self._folders: dict[Path, _Folder] = {}

    def of(
        self, path: Path, began: Began, copied: Sequence[Priced], own: Iterable[Priced], known: Models | None = None
    ) -> Total | None:
        """The total of the session in ``path`` that ``began`` so; ``copied`` are rows of others in its file.

        ``known``: the total that it began with, as it was found while the transcript was there that tells it. Where it
        is not known, the first total of its own less its ``own`` rows until then is near enough.
        """
        first: dict[int, State] = {}
        last: dict[int, State] = {}
        told = list(states(path))
        for state in told:
            first.setdefault(state.chain, state)
            last[state.chain] = state
        if not last:
            return None
        merged = summed(state.models for state in last.values())
        total = Total(
            max(state.ts for state in last.values()),
            merged,
            {},
            all(state.trusted for state in last.values()),
            since=min(state.since for state in last.values()),
            gaps=tuple(_gaps(told)),
        )
        found = [state.models for state in (self._began_with(path, one, began) for one in first.values()) if state]
        base = summed(found) if found else known
        if base is not None:
            return replace(total, base=base, found=base)
        one = next(iter(first.values()))
        copied = [call for call in copied if call.ts >= one.since]
        if not copied and (began.copied is None or began.copied < one.since):
            return total
        rows, mine = sum_of(copied), sum_of(call for call in own if call.ts <= one.ts)
        inherited = less(one.models, summed((rows, mine)))
        if inherited is None and less(one.models, mine) is not None:
            return total  # forked from a session that had no total
        return replace(total, base=rows, inherited=inherited or {})

    def _began_with(self, path: Path, first: State, began: Began) -> State | None:
        """The last total before a session began, of the session that was forked, or else of any with that clock."""
        for others in (_named(path, began.parent), self._same_chain(path.parent, first.chain)):
            fitting = (
                state
                for other in others
                if other != str(path)
                for state in states(Path(other))
                if state.chain == first.chain and state.ts < began.ts and less(first.models, state.models) is not None
            )
            if (found := max(fitting, key=lambda state: state.size, default=None)) is not None:
                return found
        return None

    def _same_chain(self, folder: Path, chain: int) -> Iterator[str]:
        try:
            changed = folder.stat().st_mtime_ns
        except OSError:
            return
        known = self._folders.get(folder)
        if known is None or known.changed != changed:
            before = known.tails if known else {}
            known = _Folder(changed, dict(_tails(folder, before)))
            self._folders[folder] = known
        for path, (_, _, found) in known.tails.items():
            if found == chain:
                yield path


def _gaps(told: Iterable[State]) -> Iterator[tuple[float, float]]:
    """From the first prompt after a total until the program of the next one began, at the earliest."""
    for before, after in pairwise(told):
        if before.prompt is not None and after.ran is not None and before.prompt <= after.ts - after.ran:
            yield max(before.ts, before.prompt), after.ts - after.ran


def _project_folders(path: Path) -> Iterator[str]:
    yield str(path.parent)
    yield from (entry.path for entry in places.subfolders(path.parent.parent))


def _named(path: Path, session: str | None) -> Iterator[str]:
    """The transcript of a session, beside this one or in another project's folder."""
    if session is None or "/" in session or session == path.stem:
        return
    named = (f"{folder}/{session}.jsonl" for folder in _project_folders(path))
    yield from islice(filter(os.path.isfile, named), 1)


def _tails(
    folder: Path, before: dict[str, tuple[int, int, int | None]]
) -> Iterator[tuple[str, tuple[int, int, int | None]]]:
    for entry in places.files(folder, lambda name: name.endswith(".jsonl")):
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        known = before.get(entry.path)
        if known is not None and known[:2] == (status.st_size, status.st_mtime_ns):
            yield entry.path, known
        else:
            yield entry.path, (status.st_size, status.st_mtime_ns, _chain_in_tail(Path(entry.path)))


def _chain_in_tail(path: Path) -> int | None:
    """``startTime`` of the last total near the end of a transcript, where a session that has ended keeps it."""
    try:
        end_of_file = tail(path, TAIL)
    except SourceError:
        return None
    at = end_of_file.rfind(NEEDLE)
    if at < 0:
        return None
    end = end_of_file.find(b"\n", at)
    start = end_of_file.rfind(b"\n", 0, at) + 1
    state = _state(end_of_file[start : end if end >= 0 else len(end_of_file)], 0.0, {})
    return state.chain if state else None


def states(path: Path) -> Iterator[State]:
    """Every total in a transcript, in the order of the file; none where it cannot be read."""
    before = 0.0
    clocks: dict[int, tuple[float, float]] = {}
    try:
        for block in LineFile(path).blocks():
            at = block.find(NEEDLE)
            while at >= 0:
                start, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
                before = last_time(block, start) or before
                state = _state(block[start:end], before, clocks)
                if state is not None:
                    yield replace(state, prompt=_prompt(block, end))
                at = block.find(NEEDLE, end)
            before = last_time(block, len(block)) or before
    except SourceError:
        return


def _prompt(block: bytes, start: int) -> float | None:
    """When the first prompt behind ``start`` was written, unless it is far behind."""
    for line in islice(first_lines(block[start + 1 : start + TAIL]), EDGE_LINES):
        if any(kind in line for kind in PROMPTS):
            return iso((parse(line) or {}).get("timestamp"))
    return None


def _state(line: bytes, before: float, clocks: dict[int, tuple[float, float]]) -> State | None:
    """The total of a line after a dated one; ``clocks``: per chain when its last total was written and its duration."""
    entry = parse(line)
    if entry is None or entry.get("type") != "cost-state":
        return None
    models = {}
    for named, used in mapping(entry.get("modelUsage")).items():
        values = [count(mapping(used).get(key)) or 0 for key in FIELDS]
        values[3] = min(values[3], values[2])
        cost = usd(mapping(used).get("costUSD"))
        models[str(named)] = ((values[0], values[1], values[2], values[3], values[4]), cost)
    chain = _milliseconds(entry.get("startTime")) or 0
    written, duration = clocks.get(chain, (chain / 1000, 0.0))
    lasted = _milliseconds(entry.get("totalDuration"))
    ran = None if lasted is None else max(0.0, lasted / 1000 - duration)
    ts = before if lasted is None else max(before, written + lasted / 1000 - duration)
    if lasted is not None:
        clocks[chain] = ts, lasted / 1000
    return State(ts, chain, models, entry.get("hasUnknownModelCost") is not True, ran)


def _milliseconds(value: object) -> int | None:
    """A time or a duration, unless no clock can have told it."""
    found = count(value)
    return found if found is not None and found / 1000 < LATEST / 2 else None
