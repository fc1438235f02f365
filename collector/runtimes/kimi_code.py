"""Kimi Code: the wire log of each agent of a session, ``~/.kimi-code/sessions/wd_*/session_*/agents/*/wire.jsonl``.

Read from https://github.com/MoonshotAI/kimi-code (packages/agent-core-v2); the classes are disjoint, reasoning is
inside output. True here: a ``usage.record`` is one call, whether its scope is a turn or the session; ``step.end``
repeats it and is not read; where a provider sent no usage it holds zeros. ``llm.request`` names the real model behind
an alias. A fork copies records with their times; its ``state.json`` says when it was made, and so who owns them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, json_document, lines, parse
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, places
from collector.runtimes.values import count, earliest, iso, latest, mapping, millis, model, name, reference
from shim.line import Tokens

RUNTIME: Final = "kimi_code"
WIRE: Final = "wire.jsonl"
FIELDS: Final = ("inputOther", "inputCacheRead", "inputCacheCreation", "output")
NEEDLES: Final = (b'"usage.record"', b'"llm.request"')


@dataclass(slots=True)
class _Wire:
    session: str
    parent: str | None
    owner: float | None
    ended: float | None
    models: dict[str, str]
    skipped: Counter[str] = field(default_factory=Counter)

    def take(self, line: bytes) -> Record | None:
        entry = parse(line)
        if entry is None:
            self.skipped["bad_json"] += 1
            return None
        when = millis(entry.get("time")) or millis(entry.get("created_at"))
        self.owner = self.owner if self.owner is not None else when
        self.ended = latest(self.ended, when)
        alias = name(entry.get("modelAlias"))
        if entry.get("type") == "llm.request" and alias is not None:
            real = model(entry.get("model"))
            if real is not None:
                self.models[alias] = real
        return self._call(entry, when) if entry.get("type") == "usage.record" else None

    def _call(self, entry: dict[str, Any], when: float | None) -> Record | None:
        counts = [count(mapping(entry.get("usage")).get(key)) for key in FIELDS]
        alias = name(entry.get("model"))
        if when is None or not any(number is not None for number in counts):
            self.skipped["no_usage"] += 1
            return None
        fresh, read, write, output = counts
        tokens = Tokens(fresh, read, write, None, output, None)
        real = self.models.get(alias or "") or model(alias)
        return Record(
            RUNTIME,
            ":".join(str(part) for part in (entry.get("time"), alias, *counts)),
            self.session,
            when,
            tokens,
            real,
            "log" if real else "none",
            owner=self.owner if self.owner is not None else when,
            parent_session_id=self.parent,
            usage="reported" if tokens.total else "missing",
        )


class KimiCode:
    """Reader of Kimi Code's wire logs."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source an agent's wire log; the state of its session is a part of it."""
        root = places.folder(home, environ, "KIMI_CODE_HOME", ".kimi-code")
        yield from places.stray(RUNTIME, home, root)
        if places.leads_out(home, root):
            return
        for folder in places.subfolders(root / "sessions"):
            for session in places.subfolders(folder.path):
                for agent in places.subfolders(session.path + "/agents"):
                    for entry in places.files(agent.path, lambda file: file == WIRE):
                        yield Source(RUNTIME, Path(entry.path), (Path(session.path, "state.json"),))

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """Records from the saved offset on. Raises ``SourceError``."""
        saved = state or {}
        session = source.path.parents[2]
        made = mapping(json_document(session / "state.json"))
        parent = made.get("forkedFrom")
        wire = _Wire(
            session.name,
            reference(parent if isinstance(parent, str) else mapping(parent).get("sessionId")),
            saved.get("owner") or iso(made.get("createdAt")) or millis(made.get("createdAt")),
            saved.get("ended"),
            dict(mapping(saved.get("models"))),
        )
        file = LineFile(source.path, saved.get("at"))
        for block in file.blocks():
            records = [record for line in _relevant(block) if (record := wire.take(line)) is not None]
            yield _batch(wire, records, file.position)
        wire.skipped += file.skipped
        yield _batch(wire, [], file.position)


def _batch(wire: _Wire, records: list[Record], position: list[int]) -> Batch:
    skipped, wire.skipped = wire.skipped, Counter()
    state = {"at": position, "owner": wire.owner, "ended": wire.ended, "models": wire.models}
    start = earliest(wire.owner)
    listed = []
    if start is not None:
        listed = [Session(RUNTIME, wire.session, start, wire.ended, parent_session_id=wire.parent)]
    return Batch(records, listed, skipped, state)


def _relevant(block: bytes) -> Iterator[bytes]:
    every = list(lines(block))
    for number, line in enumerate(every):
        if number in (0, len(every) - 1) or any(needle in line for needle in NEEDLES):
            yield line


READER: Final = KimiCode()
FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.kimi-code/sessions/wd_*/session_*/agents/*/wire.jsonl",
    variables="KIMI_CODE_HOME",
    aggregation="sum of usage.record",
    input_includes_cache="no",
    reasoning_in_output="yes, not stated",
    dedupe_key="time, model alias and usage",
    cost_field="none",
    cost_unit="none",
    cost_basis="none",
)
