"""Gemini CLI: one chat a file below ``~/.gemini/tmp/<project>/chats``, a JSON document or (newer) a log of JSON lines.

Read from https://github.com/google-gemini/gemini-cli (packages/core/src/services/chatRecordingService.ts) and stores of
0.61; input includes the cache, thoughts are beside the output. True here: a message is written again under its id when
its tools have answered, so the last one counts; a resumed log repeats its header; ``$set`` rows hold times and copies
of messages and are never usage. A sub-agent's chat lies in a folder with the id of the session that started it. A log
that could not be loaded is kept as ``*.jsonl.unreadable-<ms>`` beside the one that is written anew without what had
been rewound: that was paid, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, document, lines, parse
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, SourceError, places
from collector.runtimes.thoughts import disjoint
from collector.runtimes.values import count, earliest, is_unique, iso, latest, mapping, model, reference

RUNTIME: Final = "gemini_cli"
CHATS: Final = "chats"
ASIDE: Final = ".jsonl.unreadable-"
HEAD_BYTES: Final = 64 << 10
TIMES: Final = ("timestamp", "startTime", "lastUpdated")


class _Chat:
    """A chat as far as it was read."""

    def __init__(self, path: Path, state: Mapping[str, Any]) -> None:
        self.session: str = state.get("session") or _beside(path) or path.stem
        self.start: float | None = state.get("start")
        self.ended: float | None = state.get("ended")
        self.parent = reference(path.parent.name) if path.parent.name != CHATS else None
        self.skipped: Counter[str] = Counter()

    def note(self, entry: Mapping[str, Any]) -> None:
        """Take the id and the times that any row may carry."""
        self.session = reference(entry.get("sessionId")) or self.session
        for key in TIMES:
            if (when := iso(entry.get(key))) is not None:
                self.start, self.ended = earliest(self.start, when), latest(self.ended, when)

    def call(self, message: Mapping[str, Any], revision: int) -> Record | None:
        """The call that a message tells of; of two with one id the later revision stays."""
        identity, when = reference(message.get("id")), iso(message.get("timestamp"))
        tokens = message.get("tokens")
        if message.get("type") != "gemini" or not isinstance(tokens, dict):
            return None
        if identity is None or when is None:
            self.skipped["no_id"] += 1
            return None
        named = model(message.get("model"))
        return Record(
            RUNTIME,
            identity if is_unique(identity) else f"{self.session}:{identity}",
            self.session,
            when,
            disjoint(
                count(tokens.get("input")),
                count(tokens.get("output")),
                count(tokens.get("cached")),
                count(tokens.get("thoughts")),
                count(tokens.get("total")),
                tool=count(tokens.get("tool")),
                beside=True,
            ),
            named,
            "log" if named else "none",
            "google",
            owner=self.start if self.start is not None else when,
            parent_session_id=self.parent,
            revision=revision,
        )

    def batch(self, records: list[Record], position: list[int] | None) -> Batch:
        """What was found, with the state to go on from (none for a document)."""
        skipped, self.skipped = self.skipped, Counter()
        listed = []
        if self.start is not None:
            listed = [Session(RUNTIME, self.session, self.start, self.ended, parent_session_id=self.parent)]
        state = None
        if position is not None:
            state = {"at": position, "session": self.session, "start": self.start, "ended": self.ended}
        return Batch(records, listed, skipped, state)


class GeminiCli:
    """Reader of Gemini CLI's chats."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source a chat, sub-agents' chats too."""
        root = places.folder(home, environ, "GEMINI_CLI_HOME", "") / ".gemini"
        yield from places.stray(RUNTIME, home, root)
        if places.leads_out(home, root):
            return
        for project in places.subfolders(root / "tmp"):
            for entry in places.walk(f"{project.path}/{CHATS}", _is_chat, depth=2):
                yield Source(RUNTIME, Path(entry.path))

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """A document whole, a log from its saved offset on. Raises ``SourceError``."""
        if source.path.suffix == ".json":
            return _read_document(source.path)
        return _read_log(source.path, state or {})


def _read_document(path: Path) -> Iterator[Batch]:
    value = parse(document(path))
    if value is None:
        raise SourceError(path, "not a JSON object")
    chat = _Chat(path, {})
    chat.note(value)
    revision = round((iso(value.get("lastUpdated")) or 0) * 1000)
    messages = value.get("messages")
    records = []
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and (record := chat.call(message, revision)) is not None:
            records.append(record)
    yield chat.batch(records, None)


def _read_log(path: Path, state: dict[str, Any]) -> Iterator[Batch]:
    chat = _Chat(path, state)
    file = LineFile(path, state.get("at"))
    for block in file.blocks():
        at = file.offset - len(block)
        records: dict[str, Record] = {}
        for line in lines(block):
            at += len(line) + 1
            entry = parse(line)
            if entry is None:
                chat.skipped["bad_json"] += 1
                continue
            chat.note(entry)
            chat.note(mapping(entry.get("$set")))
            if (record := chat.call(entry, at)) is not None:
                records[record.key] = record
        yield chat.batch(list(records.values()), file.position)
    chat.skipped += file.skipped
    yield chat.batch([], file.position)


def _is_chat(file: str) -> bool:
    return file.endswith((".json", ".jsonl")) or ASIDE in file


def _beside(path: Path) -> str | None:
    """The session of a log that was put aside, which may have lost its header: the one written anew begins with it."""
    name, aside, _ = path.name.partition(ASIDE)
    if not aside:
        return None
    try:
        block = next(LineFile(path.with_name(f"{name}.jsonl")).blocks(HEAD_BYTES), b"")
    except SourceError:
        return None
    return reference((parse(next(lines(block), b"")) or {}).get("sessionId"))


READER: Final = GeminiCli()
FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.gemini/tmp/<project>/chats/session-*.json, *.jsonl",
    variables="GEMINI_CLI_HOME",
    aggregation="last row of each message id",
    input_includes_cache="yes",
    reasoning_in_output="no, thoughts beside it",
    dedupe_key="message id",
    cost_field="none",
    cost_unit="none",
    cost_basis="none",
)
