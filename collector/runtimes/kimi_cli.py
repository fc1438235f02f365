"""Kimi CLI: the wire log of each session below ``~/.kimi/sessions/<md5 of the folder>/<session>``.

Read from https://github.com/MoonshotAI/kimi-cli (src/kimi_cli/wire, share.py, config.py); the classes are disjoint,
reasoning is inside output. True here:

- a ``StatusUpdate`` with ``token_usage`` is one step's call. A ``SubagentEvent`` that names its agent wraps what the
  agent's own wire log has too and is not read; such an agent is a session ``<session>:<agent>`` of its own. Before 1.26
  (wire protocol 1.6) agents had neither a name nor a log: there the wrapped event is the only record and counts.
- the wire never names the model. A sub-agent may record the one it was launched with; for the rest there is only
  ``default_model`` in the configuration **as it is now** (a caveat), and ``--model`` or ``KIMI_MODEL_NAME`` leave no
  trace. No configuration, no model: a session that was read without one is read again when there is one. Before
  ``config.toml`` there was a ``config.json`` of the same form.
- a fork copies lines with their times. Its ``state.json`` (``metadata.json`` before 1.28) holds when that was
  (``wire_mtime``, session_fork.py); where none is there (any more), ``lineage`` tells which session was forked.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, document, json_document, lines, parse
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, SourceError, places
from collector.runtimes.kin import Head
from collector.runtimes.lineage import Lineage, Mark
from collector.runtimes.values import count, latest, mapping, model, reference, seconds
from shim.line import Tokens

RUNTIME: Final = "kimi_cli"
WIRE: Final = "wire.jsonl"
CONFIG: Final = "config.toml"
OLD_CONFIG: Final = "config.json"
STATE: Final = "state.json"
OLD_STATE: Final = "metadata.json"
SUBAGENTS: Final = "subagents"
HEAD_BYTES: Final = 64 << 10
# A line is in its file this long after its own time, at most; seconds.
WRITTEN: Final = 1.0
CAVEAT: Final = "model_from_config"
FIELDS: Final = ("input_other", "input_cache_read", "input_cache_creation", "output")


@dataclass(frozen=True, slots=True)
class Model:
    """A model and where its name came from: ``log``, ``config`` or ``none``."""

    name: str | None
    source: str

    @property
    def caveat(self) -> str | None:
        """Why a price for it is only an estimate."""
        return CAVEAT if self.source == "config" else None


@dataclass(slots=True)
class _Wire:
    session: str
    parent: str | None
    forked: float | None
    start: float | None
    ended: float | None
    model: Model
    skipped: Counter[str] = field(default_factory=Counter)

    def take(self, line: bytes) -> Record | None:
        entry = parse(line)
        if entry is None:
            self.skipped["bad_json"] += 1
            return None
        when = seconds(entry.get("timestamp"))
        if self.start is None and when is not None:
            self.start = max(when, self.forked or when)
        self.ended = latest(self.ended, when)
        message = mapping(entry.get("message"))
        if message.get("type") == "SubagentEvent":
            mirrored = mapping(message.get("payload"))
            if mirrored.get("agent_id") is not None:
                self.skipped["mirrored"] += 1
                return None
            message = mapping(mirrored.get("event"))
        if message.get("type") != "StatusUpdate" or when is None:
            return None
        payload = mapping(message.get("payload"))
        usage = mapping(payload.get("token_usage"))
        counts = [count(usage.get(key)) for key in FIELDS]
        if not any(number is not None for number in counts):
            self.skipped["no_usage"] += 1
            return None
        fresh, read, write, output = counts
        response = reference(payload.get("message_id"))
        return Record(
            RUNTIME,
            f"{response or ':'.join(map(str, counts))}@{when!r}",
            self.session,
            when,
            Tokens(fresh, read, write, None, output, None),
            self.model.name,
            self.model.source,
            owner=self.start if self.start is not None else when,
            parent_session_id=self.parent,
            revision=int(self.model.name is not None),
            caveat=self.model.caveat,
            response_id=response,
        )


class KimiCli:
    """Reader of Kimi CLI's wire logs."""

    runtime = RUNTIME

    def __init__(self) -> None:
        self.lineage = Lineage(_head, _marks, _wires)

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source a wire log, the sub-agents' too."""
        root = places.folder(home, environ, "KIMI_SHARE_DIR", ".kimi")
        yield from places.stray(RUNTIME, home, root)
        if places.leads_out(home, root):
            return
        config = tuple(root / name for name in (CONFIG, OLD_CONFIG) if places.own(home, root / name))
        for entry in places.walk(root / "sessions", lambda file: file == WIRE, depth=4):
            yield Source(RUNTIME, Path(entry.path), config)

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """Records from the saved offset on. Raises ``SourceError``."""
        saved = state or {}
        folder = source.path.parent
        agent = folder.name if folder.parent.name == SUBAGENTS else None
        main = folder.parent.parent if agent else folder
        forked = None if "start" in saved else self._forked_at(main / WIRE)
        named = _model(main.parent.parent.parent, folder if agent else None)
        nameless = "model" in saved and saved["model"] is None and named.name is not None
        wire = _Wire(
            f"{main.name}:{agent}" if agent else main.name,
            main.name if agent else None,
            forked,
            saved.get("start"),
            saved.get("ended"),
            named,
        )
        file = LineFile(source.path, None if nameless else saved.get("at"))
        for block in file.blocks():
            records = [record for line in lines(block) if (record := wire.take(line)) is not None]
            yield _batch(wire, records, file.position)
        wire.skipped += file.skipped
        yield _batch(wire, [], file.position)

    def _forked_at(self, wire: Path) -> float | None:
        """When a session began that copied another's lines; ``None`` for one that began by itself."""
        if (copied := _copied_at(wire)) is not None:
            return copied
        # Whoever says nothing was there before those that say that they are copies.
        origin = self.lineage.origin(wire, wire.parent.parent, lambda other: _copied_at(other) is not None)
        return origin.start if origin else None


def _batch(wire: _Wire, records: list[Record], position: list[int]) -> Batch:
    skipped, wire.skipped = wire.skipped, Counter()
    session = Session(RUNTIME, wire.session, wire.start, wire.ended, wire.model.name, wire.model.source, wire.parent)
    listed = [session] if wire.start is not None else []
    state = {"at": position, "start": wire.start, "ended": wire.ended, "model": wire.model.name}
    return Batch(records, listed, skipped, state)


def _model(share: Path, agent: Path | None) -> Model:
    """The model of a session; for a sub-agent the recorded one, which may be an alias in the configuration."""
    config = _config(share)
    if agent is not None:
        launch = mapping(mapping(json_document(agent / "meta.json")).get("launch_spec"))
        for key in ("effective_model", "model_override"):
            recorded = _behind(config, launch.get(key))
            if recorded is not None:
                return Model(recorded, "log")
    configured = _behind(config, config.get("default_model"))
    return Model(configured, "config") if configured is not None else Model(None, "none")


def _behind(config: Mapping[str, Any], alias: object) -> str | None:
    entry = mapping(mapping(config.get("models")).get(alias)) if isinstance(alias, str) else {}
    return model(entry.get("model")) or model(alias)


def _config(share: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(document(share / CONFIG).decode())
    except SourceError:
        return json_document(share / OLD_CONFIG) or {}
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return {}


def _copied_at(wire: Path) -> float | None:
    """When a session says that its log was copied.

    Before 1.28 the web page kept there when the log of any session was written last: that is the time of a line.
    """
    said = (mapping(json_document(wire.with_name(name))).get("wire_mtime") for name in (STATE, OLD_STATE))
    made = next((when for when in map(seconds, said) if when is not None), None)
    return None if made is None or _was_written(wire, made) else made


def _was_written(wire: Path, moment: float) -> bool:
    try:
        return any(abs(moment - when) < WRITTEN for _, when in _times(wire))
    except SourceError:
        return False


def _wires(folder: Path) -> Iterator[str]:
    return (f"{session.path}/{WIRE}" for session in places.subfolders(folder))


def _head(path: Path) -> Head | None:
    block = next(LineFile(path).blocks(HEAD_BYTES), b"")
    first = next((line for line in lines(block) if b'"timestamp"' in line), None)
    return Head(_digest(first)) if first is not None else None


def _marks(path: Path) -> Iterator[Mark]:
    return ((_digest(line), when) for line, when in _times(path))


def _times(path: Path) -> Iterator[tuple[bytes, float]]:
    for block in LineFile(path).blocks():
        for line in lines(block):
            entry = parse(line)
            if entry is not None and (when := seconds(entry.get("timestamp"))) is not None:
                yield line, when


def _digest(line: bytes) -> str:
    return blake2b(line, digest_size=16).hexdigest()


READER: Final = KimiCli()
FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.kimi/sessions/<md5>/<session>/wire.jsonl, subagents/<agent>/wire.jsonl",
    variables="KIMI_SHARE_DIR",
    aggregation="sum of StatusUpdate usage",
    input_includes_cache="no",
    reasoning_in_output="yes, not stated",
    dedupe_key="message_id and timestamp",
    cost_field="none",
    cost_unit="none",
    cost_basis="none",
)
