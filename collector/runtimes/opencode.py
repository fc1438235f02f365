"""opencode: one SQLite database, and the JSON tree of its earlier versions, which stays on disk after the migration.

True here (sources: https://github.com/anomalyco/opencode packages/opencode/src/session, stores of 1.0.185 and 1.18.33):

* ``input`` excludes the cache. ``output`` excludes reasoning since 1.3.16 (pull request 21047) and includes it before;
  ``tokens.total``, where present, says which. Before 1.0 a message keeps only the tokens of its last model step.
* Costs are models.dev prices times tokens, never a bill; 0 also means "subscription" or "no price known".
* A fork copies messages under new ids without naming its source. What survives is when the call began, its provider,
  model and agent: that is the key. Two calls that began in the same millisecond (parallel sub-agents) are told apart
  by their numbers, as far as one database shows both.
* The session row sums its steps and **subtracts** what is reverted, so rows of messages are the records and only what
  the session row has beyond them is one more record.
* A message of a running call is read as it is and replaced later: its key does not depend on its numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import orjson

from collector import jsonl
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, SourceError, values
from collector.runtimes.local import is_local
from collector.runtimes.places import files, folder, stray, subfolders
from collector.sqlite_ro import Database, opened, picked, select, sidecars
from shim.line import Tokens

RUNTIME: Final = "opencode"
BATCH: Final = 500
# Steps of messages that need them are looked up one by one; a database of very old messages is not worth more.
MAX_STEP_LOOKUPS: Final = 5_000
OUTPUT_EXCLUDES_REASONING: Final = (1, 3, 16)
ONE_MESSAGE_A_STEP: Final = (1, 0, 0)
# The AI SDK's Google provider counted thoughts beside the output from the start.
ALWAYS_APART: Final = frozenset({"google", "google-vertex"})

MESSAGE_PATHS: Final = (
    "$.providerID",
    "$.modelID",
    "$.agent",
    "$.mode",
    "$.time.created",
    "$.time.completed",
    "$.cost",
    "$.tokens.total",
    "$.tokens.input",
    "$.tokens.output",
    "$.tokens.reasoning",
    "$.tokens.cache.read",
    "$.tokens.cache.write",
)
STEP_PATHS: Final = ("$.cost", *MESSAGE_PATHS[8:])
SESSION_COLUMNS: Final = (
    "id",
    "parent_id",
    "version",
    "model",
    "time_created",
    "time_updated",
    "cost",
    "tokens_input",
    "tokens_output",
    "tokens_reasoning",
    "tokens_cache_read",
    "tokens_cache_write",
)
CONFIGS: Final = ("opencode.json", "opencode.jsonc", "config.json")
_COMMENT: Final = re.compile(rb'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.S)

FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.local/share/opencode/{opencode.db, storage/}",
    variables="XDG_DATA_HOME, OPENCODE_DB",
    aggregation="sum of messages; the session row is the check",
    input_includes_cache="no",
    reasoning_in_output="before 1.3.16; apart since",
    dedupe_key="start, provider, model, agent of the call",
    cost_field="message.cost",
    cost_unit="USD",
    cost_basis="runtime_price",
)


@dataclass(frozen=True, slots=True)
class _Usage:
    """Raw counts of one message, step or session row, as opencode names them, and its cost in pico-USD."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    read: int = 0
    write: int = 0
    pico: int = 0

    @classmethod
    def of(cls, cost: Any, counts: Iterable[Any]) -> _Usage:
        fresh, output, reasoning, read, write = (values.count(value) or 0 for value in counts)
        return cls(fresh, output, reasoning, read, write, values.usd(cost) or 0)

    @property
    def numbers(self) -> tuple[int, ...]:
        return (self.input, self.output, self.reasoning, self.read, self.write, self.pico)

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.reasoning + self.read + self.write

    def __add__(self, other: _Usage) -> _Usage:
        return _Usage(*map(sum, zip(self.numbers, other.numbers, strict=True)))

    def larger(self, other: _Usage) -> _Usage:
        return _Usage(*map(max, zip(self.numbers, other.numbers, strict=True)))

    def beyond(self, other: _Usage) -> _Usage:
        return _Usage(*(max(0, a - b) for a, b in zip(self.numbers, other.numbers, strict=True)))


@dataclass(frozen=True, slots=True)
class _Head:
    """A session as its row or file tells it; ``rollup`` is ``None`` where the version keeps none."""

    id: str
    created: float | None
    updated: float | None
    version: tuple[int, ...]
    parent: str | None = None
    model: str | None = None
    provider: str | None = None
    rollup: _Usage | None = None


@dataclass(frozen=True, slots=True)
class _Message:
    """One assistant message: its identity over all copies, its times (ms) and numbers."""

    id: str
    session: str
    provider: str | None
    model: str | None
    agent: str
    created: int
    completed: int | None
    total: int | None
    usage: _Usage

    @property
    def key(self) -> str:
        """The same in every copy: a fork has new ids, but keeps when, where and for which agent a call began."""
        if not self.created:
            return f"id:{self.id}"
        return f"{self.created}:{self.provider}/{self.model}:{self.agent}"


class Opencode:
    """Reads the database first in rank: a message's row is a later version than its left-over JSON file."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        root = folder(home, environ, "XDG_DATA_HOME", ".local/share") / "opencode"
        yield from stray(RUNTIME, home, root)
        configs = _configs(folder(home, environ, "XDG_CONFIG_HOME", ".config") / "opencode")
        for path in _databases(home, environ, root):
            yield Source(RUNTIME, path, (*sidecars(path), *configs))
        heads = {
            entry.name.removesuffix(".json"): Path(entry.path)
            for project in subfolders(root / "storage" / "session")
            for entry in files(project.path, _is_json)
        }
        for session in subfolders(root / "storage" / "message"):
            head = (heads[session.name],) if session.name in heads else ()
            messages = tuple(Path(entry.path) for entry in files(session.path, _is_json))
            yield Source(RUNTIME, Path(session.path), (*head, *messages, *configs))

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        urls = _base_urls(source.parts)
        if source.path.suffix != ".db":
            yield _legacy(source, urls)
            return
        with opened(source.path) as database:
            yield from _Reading(database, source.path, urls, state or {}).batches()


READER: Final = Opencode()


class _Reading:
    """One pass over one database. Holds a few numbers per session and never more than a batch of messages."""

    def __init__(self, database: Database, path: Path, urls: Mapping[str, str], state: dict[str, Any]) -> None:
        self._database = database
        self._urls = urls
        self._lookups = MAX_STEP_LOOKUPS
        self._rests: set[str] = set(state.get("rests", ()))
        columns = database.columns("session")
        if not columns or not database.columns("message"):
            raise SourceError(path, "no sessions and messages in it (yet)")
        self._has_parts = bool(database.columns("part"))
        self._heads = {head.id: head for head in self._sessions(columns)}
        self._sums: dict[str, _Usage] = {}
        self._last: dict[str, _Message] = {}

    def batches(self) -> Iterator[Batch]:
        batch = Batch()
        for _, together in groupby(self._messages(batch.skipped), key=lambda message: message.created):
            alike: dict[str, list[_Message]] = {}
            for message in together:
                alike.setdefault(message.key, []).append(message)
            for group in alike.values():
                batch.records += self._records(group)
            if len(batch.records) >= BATCH:
                yield batch
                batch = Batch()
        rests = [rest for head in self._heads.values() if (rest := self._rest(head)) is not None]
        batch.records += rests
        batch.sessions = [self._session(head) for head in self._heads.values()]
        batch.state = {"rests": sorted(self._rests)}
        yield batch

    def _sessions(self, columns: frozenset[str]) -> Iterator[_Head]:
        for row in self._database.rows(select("session", SESSION_COLUMNS, columns)):
            session = values.reference(row[0])
            if session is not None:
                model = values.mapping(jsonl.parse(str(row[3] or "").encode()))
                yield _Head(
                    session,
                    values.millis(row[4]),
                    values.millis(row[5]),
                    _version(row[2]),
                    values.reference(row[1]),
                    values.model(model.get("id")),
                    values.name(model.get("providerID")),
                    _Usage.of(row[6], row[7:12]) if "tokens_input" in columns else None,
                )

    def _messages(self, skipped: Counter[str]) -> Iterator[_Message]:
        """Assistant messages in the order of their start, so that copies of one call stand together."""
        role, created = picked("data", "$.role"), picked("data", "$.time.created")
        fields = picked("data", *MESSAGE_PATHS)
        sql = f"SELECT id, session_id, {fields} FROM message WHERE {role} = 'assistant' ORDER BY {created}"  # noqa: S608
        for identity, session, data in self._database.rows(sql):
            message = _message(identity, session, orjson.loads(data))
            if message is None or message.session not in self._heads:
                skipped["bad_json"] += 1
                continue
            message = self._with_steps(message)
            self._sums[message.session] = self._sums.get(message.session, _Usage()) + message.usage
            if message.usage.tokens:
                if (last := self._last.get(message.session)) is None or last.created <= message.created:
                    self._last[message.session] = message
                yield message
            else:
                skipped["no_usage"] += 1

    def _with_steps(self, message: _Message) -> _Message:
        """The message with the sum of its steps, where the message itself may say less than they do."""
        old = self._heads[message.session].version < ONE_MESSAGE_A_STEP
        if not self._has_parts or not self._lookups or (message.completed is not None and not old):
            return message
        self._lookups -= 1
        sql = f"SELECT {picked('data', *STEP_PATHS)} FROM part WHERE message_id = ? AND "  # noqa: S608
        sql += f"{picked('data', '$.type')} = 'step-finish'"
        steps = _Usage()
        for (data,) in self._database.rows(sql, (message.id,)):
            cost, *counts = orjson.loads(data)
            steps += _Usage.of(cost, counts)
        return replace(message, usage=message.usage.larger(steps))

    def _records(self, group: list[_Message]) -> Iterator[Record]:
        """Records of messages with one key: copies of a call share it, another call of that moment gets its own."""
        group.sort(key=lambda message: (_owner(self._heads[message.session], message), message.session))
        first = group[0].usage.numbers
        for message in group:
            same = message.usage.numbers == first
            if same or message.completed is not None:
                key = message.key if same else f"{message.key}:{'.'.join(map(str, message.usage.numbers))}"
                yield _record(message, self._heads[message.session], self._urls, key, database=True)

    def _rest(self, head: _Head) -> Record | None:
        """What the session row has beyond its messages, once more if that has shrunk to nothing."""
        if head.rollup is None:
            return None
        rest = head.rollup.beyond(self._sums.get(head.id, _Usage()))
        if not rest.tokens and head.id not in self._rests:
            return None
        self._rests.add(head.id)
        revision = head.rollup.tokens + self._sums.get(head.id, _Usage()).tokens
        when = head.updated or head.created or 0.0
        message = _Message(head.id, head.id, head.provider, head.model, "", int(when * 1000), None, None, rest)
        record = _record(message, head, self._urls, f"rest:{head.id}", database=True)
        record = replace(record, grain="session", revision=revision, caveat="cumulative_rest", ended_ts=None)
        # Nothing is left of an earlier rest: a known zero, so that it does not read as an unknown cost.
        return record if rest.tokens else replace(record, vendor_pico=0, vendor_basis="runtime_price", caveat=None)

    def _session(self, head: _Head) -> Session:
        last = self._last.get(head.id)
        model = last.model if last else head.model
        source = "log" if model else "none"
        return Session(RUNTIME, head.id, head.created, head.updated, model, source, head.parent)


def _legacy(source: Source, urls: Mapping[str, str]) -> Batch:
    """One session of the JSON tree. A message that is being written is left to the next pass."""
    batch = Batch()
    head = _legacy_head(source)
    last: _Message | None = None
    for path in (part for part in source.parts if part.parent == source.path):
        data = jsonl.json_document(path)
        if data is None:
            batch.skipped["bad_json"] += 1
            continue
        message = _legacy_message(path, head, data) if data.get("role") == "assistant" else None
        if message is None or not message.usage.tokens:
            batch.skipped["no_usage"] += message is not None
            continue
        batch.records.append(_record(message, head, urls, message.key, database=False))
        last = message if last is None or message.created >= last.created else last
    model = last.model if last else None
    source_of_model = "log" if model else "none"
    batch.sessions.append(Session(RUNTIME, head.id, head.created, head.updated, model, source_of_model, head.parent))
    return batch


def _legacy_head(source: Source) -> _Head:
    path = next((part for part in source.parts if part.name == f"{source.path.name}.json"), None)
    data = (jsonl.json_document(path) if path else None) or {}
    time = values.mapping(data.get("time"))
    return _Head(
        source.path.name,
        values.millis(time.get("created")),
        values.millis(time.get("updated")),
        _version(data.get("version")),
        values.reference(data.get("parentID")),
    )


def _legacy_message(path: Path, head: _Head, data: dict[str, Any]) -> _Message | None:
    time, tokens = values.mapping(data.get("time")), values.mapping(data.get("tokens"))
    cache = values.mapping(tokens.get("cache"))
    fields = [data.get("providerID"), data.get("modelID"), data.get("agent"), data.get("mode")]
    fields += [time.get("created"), time.get("completed"), data.get("cost"), tokens.get("total")]
    fields += [
        tokens.get("input"),
        tokens.get("output"),
        tokens.get("reasoning"),
        cache.get("read"),
        cache.get("write"),
    ]
    message = _message(path.stem, head.id, fields)
    if message is None or head.version >= ONE_MESSAGE_A_STEP:
        return message
    return replace(message, usage=message.usage.larger(_legacy_steps(path)))


def _legacy_steps(message: Path) -> _Usage:
    """The sum of a message's steps: ``storage/part/<message>/<part>.json``."""
    steps = _Usage()
    for entry in files(message.parents[2] / "part" / message.stem, _is_json):
        # A step's file holds numbers only; larger ones are text and tool output.
        if entry.stat(follow_symlinks=False).st_size > 8192:
            continue
        part = jsonl.json_document(Path(entry.path)) or {}
        if part.get("type") == "step-finish":
            tokens = values.mapping(part.get("tokens"))
            cache = values.mapping(tokens.get("cache"))
            counts = (tokens.get("input"), tokens.get("output"), tokens.get("reasoning"))
            steps += _Usage.of(part.get("cost"), (*counts, cache.get("read"), cache.get("write")))
    return steps


def _message(identity: Any, session: Any, fields: list[Any]) -> _Message | None:
    """A message from the values at ``MESSAGE_PATHS``."""
    provider, model, agent, mode, created, completed, cost, total, *counts = fields
    identity, session = values.reference(identity), values.reference(session)
    if identity is None or session is None:
        return None
    return _Message(
        identity,
        session,
        values.name(provider),
        values.model(model),
        values.name(agent) or values.name(mode) or "",
        values.count(created) or 0,
        values.count(completed),
        values.count(total),
        _Usage.of(cost, counts),
    )


def _record(message: _Message, head: _Head, urls: Mapping[str, str], key: str, *, database: bool) -> Record:
    """``database`` ranks a row above the same message's JSON file, whatever the order of reading."""
    usage, apart = message.usage, _reasoning_apart(message, head)
    url = urls.get(message.provider or "")
    local = not usage.pico and is_local(message.provider, message.model, url)
    known = message.completed if message.completed is not None else usage.tokens
    return Record(
        runtime=RUNTIME,
        key=key,
        session_id=head.id,
        ts=values.millis(message.created) or head.created or 0.0,
        tokens=Tokens(
            input_tokens=usage.input,
            cache_read_tokens=usage.read,
            cache_write_tokens=usage.write,
            output_tokens=usage.output + (usage.reasoning if apart else 0),
            reasoning_tokens=usage.reasoning,
        ),
        model=message.model,
        model_source="log" if message.model else "none",
        provider=message.provider,
        owner=_owner(head, message),
        revision=2 * known + database,
        parent_session_id=head.parent,
        vendor_pico=usage.pico or (0 if local else None),
        vendor_basis="runtime_price" if usage.pico or local else None,
        # Versions that counted reasoning inside the output charged it once more on top.
        caveat="vendor_estimate" if usage.pico and usage.reasoning and not apart else None,
        local=local,
        ended_ts=values.millis(message.completed),
    )


def _owner(head: _Head, message: _Message) -> float:
    return head.created if head.created is not None else message.created / 1000


def _reasoning_apart(message: _Message, head: _Head) -> bool:
    usage = message.usage
    beside = usage.input + usage.output + usage.read + usage.write
    if usage.reasoning > usage.output:
        return True
    if message.total is not None and message.total in (beside, beside + usage.reasoning):
        return message.total != beside
    return message.provider in ALWAYS_APART or head.version >= OUTPUT_EXCLUDES_REASONING


def _version(value: Any) -> tuple[int, ...]:
    """``1.18.33`` as numbers; what is no version counts as the newest (a build of a branch, ``local``)."""
    found = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", value) if isinstance(value, str) else None
    return tuple(map(int, found.groups())) if found else (9999,)


def _databases(home: Path, environ: Mapping[str, str], root: Path) -> Iterator[Path]:
    if environ.get("OPENCODE_DB", "").strip():
        yield folder(home, environ, "OPENCODE_DB", "")
        return
    for entry in files(root, lambda name: re.fullmatch(r"opencode(-[\w.-]+)?\.db", name) is not None):
        yield Path(entry.path)


def _configs(root: Path) -> tuple[Path, ...]:
    return tuple(Path(entry.path) for entry in files(root, CONFIGS.__contains__))


def _base_urls(parts: Iterable[Path]) -> dict[str, str]:
    """Base URL by provider id, from opencode's configuration (JSON with comments and trailing commas)."""
    urls: dict[str, str] = {}
    for path in (part for part in parts if part.name in CONFIGS):
        try:
            data = jsonl.parse(_COMMENT.sub(rb"\1", jsonl.document(path)))
        except SourceError:
            continue
        for provider, settings in values.mapping(values.mapping(data).get("provider")).items():
            url = values.mapping(values.mapping(settings).get("options")).get("baseURL")
            if isinstance(url, str):
                urls[provider] = url
    return urls


def _is_json(name: str) -> bool:
    return name.endswith(".json")
