"""Codex CLI: rollouts of dated JSON lines below ``~/.codex/sessions`` and ``archived_sessions``.

Read from https://github.com/openai/codex (codex-rs/protocol) and from stores of 0.98 to 0.171; input includes the
cached and the cache-write tokens, reasoning is inside output. True here:

- ``token_count`` events state a running total that repeats: a call is the difference to the total before it. Newer
  rollouts have a ``token_usage_record`` per response before it, with the response's id and its own usage. That one's
  total is another: it adds up the records alone (``record_token_usage``), from where a version that writes them began.
- the model is the one of the last ``turn_context``; without it, of the thread's settings.
- older forks replay the parent's lines with new times: their calls have the key of the parent's (turn and running
  total) and a later owner. Newer forks copy nothing and go on from the parent's total: their first event counts with
  its ``last_token_usage``. A total that drops, or is that usage alone, is a new beginning: versions of 2025 counted
  from 0 after a resume. A call that did not fit into the context window sets it to 0 (``fill_to_context_window``) and
  is none.
- a spawned sub-agent's replay has no ``token_usage_record`` and perhaps no turns, so no key tells; until a rollout's
  first own call, a total that its parent's rollout states too is no call (``codex_parents``). What is copied by its
  ``ordinal`` and stands nowhere else is the parent's call.
- a rollout that was not touched for a week is packed: ``.jsonl.zst`` (codex-rs/rollout/src/compression.rs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, find, parse, unpacked
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, places
from collector.runtimes.codex_parents import PACKED, Parents, Usage, rollouts, thread_of, usage
from collector.runtimes.values import count, is_local, is_unique, iso, latest, mapping, model, name, reference
from shim.line import Tokens

RUNTIME: Final = "codex"
# The only lines that matter, by what they must contain; the rest is conversation.
NEEDLES: Final = (
    b'"token_count"',
    b'"token_usage_record"',
    b'"turn_context"',
    b'"session_meta"',
    b'"thread_settings_applied"',
)
LOCAL_PROVIDER: Final = "oss"


@dataclass(slots=True)
class Rollout:
    """What has been read of one rollout; this is also what the next pass starts from."""

    session: str
    start: float | None = None
    ended: float | None = None
    parent: str | None = None
    root: str | None = None
    provider: str | None = None
    model: str | None = None
    turn: str | None = None
    total: list[int | None] | None = None
    # Whether a response was recorded and the count that states it is still to come.
    recorded: bool = False
    # Below this ordinal lines are copies; whether a line of its own was met already.
    copied_to: int | None = None
    own: bool = False


@dataclass(slots=True)
class _Pass:
    path: Path
    parents: Parents
    rollout: Rollout
    skipped: Counter[str] = field(default_factory=Counter)
    # The running totals of the parent, once they were asked for.
    stated: frozenset[Usage] | None = None

    def take(self, line: bytes) -> Record | None:
        entry = parse(line)
        if entry is None:
            self.skipped["bad_json"] += 1
            return None
        rollout = self.rollout
        when = iso(entry.get("timestamp"))
        rollout.start = rollout.start if rollout.start is not None else when
        rollout.ended = latest(rollout.ended, when)
        payload = mapping(entry.get("payload"))
        match entry.get("type"):
            case "session_meta":
                self._meta(payload)
            case "turn_context":
                rollout.model = model(payload.get("model")) or rollout.model
                rollout.turn = reference(payload.get("turn_id")) or rollout.turn
            case "token_usage_record":
                return self._recorded(payload, when)
            case "event_msg" if payload.get("type") == "token_count":
                return self._counted(mapping(payload.get("info")), when, count(entry.get("ordinal")))
            case "event_msg" if payload.get("type") == "thread_settings_applied":
                chosen = mapping(payload.get("thread_settings")).get("model")
                rollout.model = rollout.model or model(chosen)
        return None

    def _meta(self, payload: dict[str, Any]) -> None:
        """The first header is the rollout's own; another one is replayed and names where the lines come from."""
        rollout = self.rollout
        identity = reference(payload.get("id"))
        if rollout.root is None:
            forked_from = reference(payload.get("forked_from_id"))
            rollout.session = identity or rollout.session
            rollout.parent = forked_from or _spawned_by(payload)
            rollout.provider = name(payload.get("model_provider"))
            rollout.root = forked_from or rollout.session
            rollout.copied_to = count(payload.get("subagent_history_start_ordinal"))
        else:
            rollout.root = identity or rollout.root

    def _recorded(self, payload: dict[str, Any], when: float | None) -> Record | None:
        total, used = usage(mapping(payload.get("thread_token_usage"))), usage(mapping(payload.get("usage")))
        self.rollout.total = total or self.rollout.total
        if used is None or when is None:
            self.skipped["no_usage"] += 1
            return None
        self.rollout.recorded = True
        response = reference(payload.get("response_id"))
        turn = reference(payload.get("turn_id")) or self.rollout.turn
        writer = reference(payload.get("thread_id")) or self.rollout.session
        self.rollout.own = self.rollout.own or writer == self.rollout.session
        return self._record(when, used, response or self._key(turn, total or used), response, writer)

    def _counted(self, info: dict[str, Any], when: float | None, ordinal: int | None) -> Record | None:
        total, last = usage(mapping(info.get("total_token_usage"))), usage(mapping(info.get("last_token_usage")))
        before = self.rollout.total
        if total is None or when is None:
            self.skipped["no_usage"] += 1
            return None
        self.rollout.total, recorded, self.rollout.recorded = total, self.rollout.recorded, False
        if total == before or recorded:
            self.skipped["repeated"] += 1
            return None
        if self._is_parents(total) or (before is None and total != last and self._is_early()):
            self.skipped["copy"] += 1
            return None
        copied = ordinal is not None and self.rollout.copied_to is not None and ordinal < self.rollout.copied_to
        self.rollout.own = self.rollout.own or not copied
        writer = self.rollout.parent if copied else None
        used = total if total == last else _difference(total, before) or last or total
        if not any(used):
            self.skipped["no_usage"] += 1
            return None
        return self._record(when, used, self._key(self.rollout.turn, total), None, writer or self.rollout.session)

    def _is_parents(self, total: list[int | None]) -> bool:
        rollout = self.rollout
        if rollout.own or rollout.parent is None:
            return False
        if self.stated is None:
            self.stated = self.parents.totals(self.path, rollout.parent) or frozenset()
        return tuple(total) in self.stated

    def _is_early(self) -> bool:
        """Whether a fork has no turn yet: a total that is more than a call's is its parent's, wherever that may be."""
        rollout = self.rollout
        return rollout.parent is not None and rollout.turn is None and rollout.copied_to is None

    def _key(self, turn: str | None, total: list[int | None]) -> str:
        """A running total within a turn; short turn ids repeat, so the session that made them is named too."""
        unique = turn is not None and is_unique(turn)
        return ":".join(str(part) for part in (() if unique else (self.rollout.root,)) + (turn, *total))

    def _record(self, when: float, used: list[int | None], key: str, response: str | None, writer: str) -> Record:
        rollout = self.rollout
        mine = writer == rollout.session
        return Record(
            RUNTIME,
            key,
            writer,
            when,
            _tokens(used),
            rollout.model,
            "log" if rollout.model else "none",
            rollout.provider,
            owner=rollout.start if mine and rollout.start is not None else when,
            parent_session_id=rollout.parent if mine else None,
            local=rollout.provider == LOCAL_PROVIDER or is_local(rollout.provider),
            response_id=response,
        )

    def batch(self, block: bytes, position: list[int] | None) -> Batch:
        """What a block tells; ``position``: what is read next, ``None`` in a rollout that is read whole."""
        records = [record for line in _relevant(block) if (record := self.take(line)) is not None]
        rollout, skipped, self.skipped = self.rollout, self.skipped, Counter()
        session = Session(
            RUNTIME,
            rollout.session,
            rollout.start,
            rollout.ended,
            rollout.model,
            parent_session_id=rollout.parent,
        )
        listed = [session] if rollout.start is not None else []
        return Batch(records, listed, skipped, {"at": position, **asdict(rollout)} if position is not None else None)


def _spawned_by(payload: dict[str, Any]) -> str | None:
    source = mapping(mapping(payload.get("source")).get("subagent"))
    return reference(payload.get("parent_thread_id")) or reference(
        mapping(source.get("thread_spawn")).get("parent_thread_id")
    )


def _difference(total: list[int | None], before: list[int | None] | None) -> list[int | None] | None:
    """What was added since the last total; ``None`` where there is none, or where it was larger."""
    if before is None:
        return None
    added = [None if now is None else now - (then or 0) for now, then in zip(total, before, strict=True)]
    return None if any(part is not None and part < 0 for part in added) else added


def _tokens(used: list[int | None]) -> Tokens:
    whole, read, write, output, reasoning = used
    fresh = max(0, (whole or 0) - (read or 0) - (write or 0))
    return Tokens(
        fresh,
        read,
        write,
        None,
        output,
        min(reasoning, output) if reasoning is not None and output is not None else reasoning,
    )


class Codex:
    """Reader of Codex's rollouts."""

    runtime = RUNTIME

    def __init__(self) -> None:
        self._parents = Parents()

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source a rollout, archived and packed ones too."""
        self._parents.listed()
        root = places.folder(home, environ, "CODEX_HOME", ".codex")
        yield from places.stray(RUNTIME, home, root)
        if not places.leads_out(home, root):
            for path in rollouts(root):
                yield Source(RUNTIME, path)

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """Records from the saved offset and total on, of a packed rollout all. Raises ``SourceError``."""
        if source.path.suffix == PACKED:
            reading = _Pass(source.path, self._parents, Rollout(thread_of(source.path)))
            for block in unpacked(source.path):
                yield reading.batch(block, None)
            return
        saved = state or {}
        file = LineFile(source.path, saved.get("at"))
        known = {key: saved[key] for key in Rollout.__slots__ if key in saved}
        before = file.offset
        thread = thread_of(source.path)
        reading = _Pass(source.path, self._parents, Rollout(**{"session": thread, **known}))
        for block in file.blocks():
            if before and file.offset - len(block) == 0:
                # The file was replaced: nothing that was known of it holds.
                reading.rollout = Rollout(thread)
            before = 0
            yield reading.batch(block, file.position)
        yield Batch(skipped=file.skipped, state={"at": file.position, **asdict(reading.rollout)})


def _relevant(block: bytes) -> Iterator[bytes]:
    """Lines that may count; the first and the last of a block too, for their times. The others are never touched."""
    starts = {0, block.rfind(b"\n", 0, len(block) - 1) + 1}
    for needle in NEEDLES:
        end = 0
        while (at := find(block, needle, end)) >= 0:
            starts.add(block.rfind(b"\n", end, at) + 1 or end)
            end = block.find(b"\n", at)
    for start in sorted(starts):
        yield block[start : block.find(b"\n", start)]


READER: Final = Codex()
FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.codex/sessions/<y>/<m>/<d>/rollout-<time>-<id>.jsonl[.zst]; ~/.codex/archived_sessions",
    variables="CODEX_HOME",
    aggregation="differences of the running total; one per response where recorded",
    input_includes_cache="yes, read and write",
    reasoning_in_output="yes",
    dedupe_key="response_id, else turn and running total",
    cost_field="none",
    cost_unit="none",
    cost_basis="none",
)
