"""Claude Code: one line per content block of each API message, in ``projects/<project>/<session>.jsonl``.

Read from https://code.claude.com/docs/en/settings (``CLAUDE_CONFIG_DIR``) and from stores of 2.1.x; input excludes the
cache, thinking is inside output. True here:

- a call is its ``message.id``. Its lines repeat the usage with a growing output: the largest counts. A sidechain that
  replays a message under another ``requestId`` is the same call (https://github.com/ryoppippi/ccusage/issues/913).
- a fork copies lines under its own ``sessionId``; the session that wrote them first owns them. Newer forks name it
  (``forkedFrom``, in a fork of a fork the nearest one) or begin with a line later than the copies; the rest is found by
  comparing files (``lineage``). A fork of a large session holds some copies twice, the second time without the name
  (https://github.com/anthropics/claude-code/issues/48936).
- ``usage.iterations`` repeats what the call used and names what it leaves out: another model's advice is a call of that
  model, a compaction within the call is added (https://github.com/ccusage/ccusage/issues/1115).
- sub-agent files (``<session>/subagents/**/agent-*.jsonl``, before 2.1 beside the transcripts) belong to the session
  that their lines name.
- ``cost-state`` lines (2.1) carry the session's running total: see ``claude_totals``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, lines_with
from collector.record import Record, Session
from collector.runtimes import (
    Batch,
    Facts,
    Source,
    SourceError,
    claude_copies,
    claude_lines,
    claude_totals,
    places,
)
from collector.runtimes.claude_account import RUNTIME, SHIFT, Account
from collector.runtimes.claude_lines import Call, Line
from collector.runtimes.claude_owner import Ownership
from collector.runtimes.kin import Search
from collector.runtimes.lineage import Lineage
from collector.runtimes.values import latest, mapping, reference

AGENT: Final = "agent-"
# A line without it tells of no usage. Longer than "usage":, so it is found sooner.
OUTPUT: Final = b'"output_tokens":'
CALLS_PER_BATCH: Final = 20_000


class ClaudeCode:
    """Reader of Claude Code's transcripts."""

    runtime = RUNTIME

    def __init__(self) -> None:
        search = Search(claude_copies.holds, claude_copies.ended)
        self.lineage = Lineage(claude_copies.head, claude_copies.marks, _transcripts, search)
        self.totals = claude_totals.Totals()

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source a session: its transcript and, as parts, its sub-agents' files."""
        for root in places.folders(home, environ, "CLAUDE_CONFIG_DIR", ".claude", ".config/claude"):
            yield from places.stray(RUNTIME, home, root)
            if not places.leads_out(home, root):
                for project in places.subfolders(root / "projects"):
                    yield from _sessions(project.path)

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """Records of the calls, the session's times, after a ``cost-state`` its surplus. Raises ``SourceError``."""
        return _Reading(self, source, state or {}).batches()


def _sessions(project: str) -> Iterator[Source]:
    seen = set()
    entries = places.entries(project)
    for entry in entries:
        if entry.name.endswith(".jsonl"):
            stem = entry.path[:-6]
            seen.add(stem)
            yield Source(RUNTIME, Path(entry.path), tuple(_subagents(stem)) if _is_in(stem, entries) else ())
    for entry in entries:
        if entry.path not in seen and entry.is_dir(follow_symlinks=False):
            for path in _subagents(entry.path):
                yield Source(RUNTIME, path)


def _is_in(stem: str, entries: list[Any]) -> bool:
    wanted = stem.rpartition("/")[2]
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        if entries[middle].name < wanted:
            low = middle + 1
        else:
            high = middle
    return low < len(entries) and entries[low].name == wanted


def _subagents(session: str) -> Iterator[Path]:
    for entry in places.walk(session + "/subagents", lambda name: name.endswith(".jsonl"), depth=3):
        yield Path(entry.path)


class _Reading:
    """One pass over one session."""

    def __init__(self, reader: ClaudeCode, source: Source, state: dict[str, Any]) -> None:
        self.reader = reader
        self.source = source
        self.files = {str(path): position for path, position in mapping(state.get("files")).items()}
        self.fresh = not self.files
        self.session = _session_of(source.path)
        self.owned = Ownership(reader.lineage, source.path, self.session, state)
        self.ended: float | None = state.get("ended")
        self.account = Account(self.session, state)
        self.best: dict[str, tuple[int, Line]] = {}
        self.skipped: Counter[str] = Counter()
        self.flushed = False
        self.reopened = False

    def batches(self) -> Iterator[Batch]:
        for path in (self.source.path, *self.source.parts):
            yield from self._file(path)
        calls = self._finished()
        if self.reopened and self.owned.start is not None:
            yield from self._settle(calls)
        yield self._batch(calls, ())

    def _file(self, path: Path) -> Iterator[Batch]:
        file = LineFile(path, self.files.get(str(path)))
        main = path == self.source.path
        try:
            for block in file.blocks():
                if main:
                    self.owned.take(block)
                    self.ended = latest(self.ended, claude_copies.last_time(block, len(block)))
                    self._costs(block)
                self.take(block)
                self.files[str(path)] = file.position
                if len(self.best) >= CALLS_PER_BATCH:
                    self.flushed = True
                    yield self._batch(self._finished(), ())
        except SourceError:
            # A sub-agent's file may be reaped at any time; its calls stay counted.
            if main:
                raise
            self.skipped["vanished"] += 1
        self.skipped += file.skipped

    def take(self, block: bytes) -> None:
        """Keep the best line of each message. This runs a million times: all that can wait is left to ``_finished``."""
        best, decode = self.best, claude_lines.decode
        for data in lines_with(block, OUTPUT):
            try:
                line = decode(data)
            except claude_lines.UNEXPECTED:
                line = claude_lines.careful(data)
            if line.type not in ("assistant", None):
                continue
            message = line.message
            if line.type is None or message is None or not (identity := message.id or claude_lines.uuid(data)):
                self.skipped["no_usage"] += 1
                continue
            grown, known = line.grown, best.get(identity)
            if known is None or grown > known[0]:
                best[identity] = grown, line

    def _finished(self) -> dict[str, Call]:
        """The lines that were kept, checked, as calls by their keys."""
        calls: dict[str, Call] = {}
        until = self.account.until
        for identity, (grown, line) in self.best.items():
            call = claude_lines.call(line, grown, self.session)
            if isinstance(call, str):
                self.skipped[call] += 1
            elif (key := reference(identity)) is not None:
                calls[key] = call
                if line.message is not None and line.message.usage is not None and line.message.usage.iterations:
                    for number, told in enumerate(claude_lines.advice(line, call)):
                        calls[f"{key}:advisor:{number}"] = told
                if until is not None and call.ts <= until:
                    self.reopened = True
        self.best = {}
        return calls

    def _costs(self, block: bytes) -> None:
        for _ in lines_with(block, claude_totals.NEEDLE):
            self.reopened = True

    def _settle(self, calls: dict[str, Call]) -> Iterator[Batch]:
        """Price the session by its last ``cost-state``; what was given out before is replaced."""
        if self.flushed or not self.fresh:
            calls = _whole(self.reader, self.source)
        start = self.owned.start or 0.0
        own = [call for call in calls.values() if call.session == self.session and call.ts >= start]
        copied = [call for call in calls.values() if call.session != self.session or call.ts < start]
        began = claude_totals.Began(min((call.ts for call in own), default=start), self.owned.parent, self.owned.copied)
        total = self.reader.totals.of(self.source.path, began, copied, own, self.account.base)
        if total is not None:
            yield self._batch(calls, self.account.settle(own, total, self.files, self.owned))

    def _batch(self, calls: dict[str, Call], surplus: Sequence[Record]) -> Batch:
        # What a session says of its own call goes before what a copy says of it, whose totals are another's.
        own = self.account.settled << SHIFT
        records = [self._record(key, call, own) for key, call in calls.items()]
        session = Session(RUNTIME, self.session, self.owned.start, self.ended, parent_session_id=self.owned.parent)
        listed = self.ended is not None and not self.source.path.name.startswith(AGENT)
        state = {
            "files": dict(self.files),
            "ended": self.ended,
            **self.account.state,
            **self.owned.state,
        }
        skipped, self.skipped = self.skipped, Counter()
        return Batch([*records, *surplus], [session] if listed else [], skipped, state)

    def _record(self, key: str, call: Call, own: int) -> Record:
        session = call.session if self.owned.parent is None else self.owned.writer(call.session, call.ts)
        mine, named = session == self.session, call.model
        known = call.tokens is not claude_lines.UNKNOWN
        pico = call.pico if known else None  # what nothing is known of has no share of the dollars
        return Record(
            RUNTIME,
            key,
            session,
            call.ts,
            call.tokens,
            named,
            "log" if named else "none",
            "anthropic" if named and named.startswith("claude") else None,
            owner=self.owned.start if mine and self.owned.start is not None else call.ts,
            revision=(own if mine else 0) | call.grown << 1 | mine,
            parent_session_id=self.owned.parent if mine else None,
            vendor_pico=pico,
            vendor_basis=None if pico is None else "runtime_price",
            response_id=call.response_id,
            service_tier=call.tier,
            usage="reported" if known else "missing",
        )


def _whole(reader: ClaudeCode, source: Source) -> dict[str, Call]:
    """Every call of a session, read from the start of its files."""
    reading = _Reading(reader, source, {})
    for path in (source.path, *source.parts):
        try:
            for block in LineFile(path).blocks():
                reading.take(block)
        except SourceError:
            continue
    return reading._finished()


def _session_of(path: Path) -> str:
    """The session's id is the name of its transcript, for a sub-agent's file the folder above ``subagents``."""
    for folder in path.parents:
        if folder.name == "subagents":
            return folder.parent.name
    return path.stem


def _transcripts(project: Path) -> Iterator[str]:
    return (entry.path for entry in places.files(project, lambda name: name.endswith(".jsonl")))


READER: Final = ClaudeCode()
FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.claude/projects/*/<session>.jsonl, <session>/subagents/**/*.jsonl; ~/.config/claude",
    variables="CLAUDE_CONFIG_DIR",
    aggregation="one per message, largest output; cost-state: surplus over the messages",
    input_includes_cache="no",
    reasoning_in_output="yes, not stated",
    dedupe_key="message.id",
    cost_field="cost-state modelUsage.*.costUSD",
    cost_unit="USD, running total",
    cost_basis="runtime_price",
)
