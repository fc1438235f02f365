"""Claude Code's ``cost-state`` lines: the running total of a session, in tokens and dollars per model (since 2.1).

The line has no date. It is written after the last dated line before it, and no sooner than its process's clock tells:
that begins at ``startTime`` (epoch ms), ``totalDuration`` (ms) is how long it ran, and it stands still between two
processes. So a background agent's calls after the last dated line are known to be part of the total. It also holds
what no transcript row tells: compaction, titles, sub-agents that were reaped. A session that was forked or resumed goes
on from the total that it found, recognisable by an equal ``startTime``; after ``/clear`` a new one begins. This module
finds the last total of a session and the one that it began with; ``claude_cost`` makes money of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from collector.jsonl import LineFile, parse, tail
from collector.runtimes import SourceError, places
from collector.runtimes.claude_copies import last_time
from collector.runtimes.claude_sums import Models, Priced, less, sum_of, summed
from collector.runtimes.values import count, mapping, usd

NEEDLE: Final = b'"cost-state"'
TAIL: Final = 256 << 10
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

    @property
    def size(self) -> int:
        """How much it counts, to tell a later total from an earlier one."""
        return sum(sum(classes) for classes, _ in self.models.values())


@dataclass(frozen=True, slots=True)
class Total:
    """The last total of a session and the one that it began with; ``found``: that one, where a transcript told it.

    ``inherited``: where none did, what the session that was forked had beyond ``base``, as far as the fork tells it.
    """

    ts: float
    last: Models
    base: Models
    trusted: bool
    found: Models | None = None
    inherited: Models = field(default_factory=dict)


@dataclass(slots=True)
class _Folder:
    changed: int
    tails: dict[str, tuple[int, int, int | None]] = field(default_factory=dict)


class Totals:
    """Finds totals, and across the transcripts of one project the total that a fork began with."""

    def __init__(self) -> None:
        self._folders: dict[Path, _Folder] = {}

    def of(
        self, path: Path, owner: float, copied: Sequence[Priced], own: Iterable[Priced], known: Models | None = None
    ) -> Total | None:
        """The total of the session in ``path`` that began at ``owner``; ``copied`` are rows of others in its file.

        ``known``: the total that it began with, as it was found while the transcript was there that tells it. Where it
        is not known, the first total of its own less its ``own`` rows until then is near enough.
        """
        first: State | None = None
        last: dict[int, State] = {}
        for state in states(path):
            first = first or state
            last[state.chain] = state
        if not last:
            return None
        merged = summed(state.models for state in last.values())
        ts = max(state.ts for state in last.values())
        trusted = all(state.trusted for state in last.values())
        found = [self._began_with(path, chain, owner) for chain in last]
        bases = [state.models for state in found if state is not None]
        began = summed(bases) if bases else known
        if began is not None or first is None or not copied:
            return Total(ts, merged, began or {}, trusted, began)
        rows, mine = sum_of(copied), sum_of(call for call in own if call.ts <= first.ts)
        inherited = less(first.models, summed((rows, mine)))
        if inherited is None and less(first.models, mine) is not None:
            return Total(ts, merged, {}, trusted)  # forked from a session that had no total
        return Total(ts, merged, rows, trusted, inherited=inherited or {})

    def _began_with(self, path: Path, chain: int, owner: float) -> State | None:
        best: State | None = None
        for other in self._same_chain(path.parent, chain):
            if other == str(path):
                continue
            for state in states(Path(other)):
                if state.chain == chain and state.ts < owner and (best is None or state.size > best.size):
                    best = state
        return best

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
                    yield state
                at = block.find(NEEDLE, end)
            before = last_time(block, len(block)) or before
    except SourceError:
        return


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
    chain = count(entry.get("startTime")) or 0
    written, duration = clocks.get(chain, (chain / 1000, 0.0))
    lasted = count(entry.get("totalDuration"))
    ts = before if lasted is None else max(before, written + lasted / 1000 - duration)
    if lasted is not None:
        clocks[chain] = ts, lasted / 1000
    return State(ts, chain, models, entry.get("hasUnknownModelCost") is not True)
