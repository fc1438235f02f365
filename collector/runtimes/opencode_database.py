"""The database of opencode (``opencode``): its messages, and what its session rows have beyond them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from collector import jsonl
from collector.record import Record
from collector.runtimes import Batch, SourceError, values
from collector.runtimes.changes import AMONG, Changes
from collector.runtimes.counts import NOTHING, Counts
from collector.runtimes.opencode_calls import (
    MESSAGE_PATHS,
    ONE_MESSAGE_A_STEP,
    STEP_PATHS,
    Head,
    Message,
    message_of,
    owner_of,
    record_of,
    session_of,
    usage_of,
    version_of,
)
from collector.runtimes.opencode_reverts import Reverted
from collector.sqlite_ro import Database, picked, select

BATCH: Final = 500
# Steps of messages that need them are looked up one by one; a database of very old messages is not worth more.
MAX_STEP_LOOKUPS: Final = 5_000
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
    "fork_session_id",
)
# The later one tells what became of a session that both have.
SESSIONS: Final = ("session", "session_v2")
BEGAN: Final = picked("data", "$.time.created")
NUMBERS: Final = ("tokens.input", "tokens.output", "tokens.reasoning", "tokens.cache.read", "cost", "time.completed")
SUMS: Final = ", ".join(f"total({picked('data', f'$.{path}')})" for path in NUMBERS)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of messages: which of its rows are an assistant's, and where in the JSON the call's facts stand."""

    name: str
    is_assistant: str
    paths: tuple[str, ...]

    @property
    def messages(self) -> str:
        """Messages of changed sessions, and those of others that began with one of them: they may share its key."""
        fields = picked("data", *(f"$.{path}" for path in self.paths))
        return f"""SELECT id, session_id, {fields} FROM {self.name} WHERE {self.is_assistant} AND (session_id {AMONG}
            OR time_created IN (SELECT time_created FROM {self.name} WHERE session_id {AMONG})) ORDER BY {BEGAN}"""  # noqa: S608

    @property
    def digest(self) -> str:
        """What is compared to see which sessions have changed."""
        return f"SELECT session_id, count(*), total(rowid), total(length(data)), {SUMS} FROM {self.name} GROUP BY 1"  # noqa: S608


FIRST: Final = _Table("message", f"{picked('data', '$.role')} = 'assistant'", MESSAGE_PATHS)
SECOND: Final = _Table(
    "session_message",
    "type = 'assistant' AND json_valid(CAST(data AS TEXT))",
    ("model.providerID", "model.id", *MESSAGE_PATHS[2:]),
)
TABLES: Final = (FIRST, SECOND)


class Reading:
    """One pass over one database. Holds a few numbers per session and never more than a batch of messages."""

    def __init__(self, database: Database, path: Path, urls: Mapping[str, str], state: dict[str, Any]) -> None:
        self._database = database
        self._urls = urls
        self._lookups = MAX_STEP_LOOKUPS
        # Kept until the pass is whole: one that breaks off must not forget it.
        self._state = state
        self._rests: set[str] = set(state.get("rests", ()))
        sessions = {table: columns for table in SESSIONS if (columns := database.columns(table))}
        self._tables = [table for table in TABLES if database.columns(table.name)]
        if not sessions or not self._tables:
            raise SourceError(path, "no sessions and messages in it (yet)")
        self._has_parts = bool(database.columns("part"))
        self._changes = Changes(state.get("sessions"))
        for name, columns in sessions.items():
            self._changes.see(database.rows(select(name, SESSION_COLUMNS, columns)))
        for table in self._tables:
            self._changes.see(database.rows(table.digest))
        self._heads = {head.id: head for name in sessions for head in self._sessions(name, sessions[name])}
        self._sums: dict[str, Counts] = {}
        self._reverted = Reverted(state.get("reverted"))
        self._last: dict[str, Message] = {}
        # Calls of the first table, where there is more than one: the second may have them again.
        self._known: set[tuple[str, str]] = set()

    def batches(self) -> Iterator[Batch]:
        batch = Batch()
        for _, together in groupby(self._counted(batch.skipped), key=lambda message: message.created):
            alike: dict[str, list[Message]] = {}
            for message in together:
                alike.setdefault(message.key, []).append(message)
            for group in alike.values():
                batch.records += self._records(group)
            if len(batch.records) >= BATCH:
                batch.state = self._state
                yield batch
                batch = Batch()
        changed = [head for head in self._heads.values() if head.id in self._changes]
        batch.records += [rest for head in changed if (rest := self._rest(head)) is not None]
        batch.sessions = [session_of(head, self._last.get(head.id)) for head in changed]
        reverted = self._reverted.saved(self._heads)
        batch.state = {"rests": sorted(self._rests), "sessions": self._changes.saved, "reverted": reverted}
        yield batch

    def _sessions(self, table: str, columns: frozenset[str]) -> Iterator[Head]:
        for row in self._database.rows(select(table, SESSION_COLUMNS, columns)):
            session = values.reference(row[0])
            if session is not None:
                model = values.mapping(jsonl.parse(str(row[3] or "").encode()))
                yield Head(
                    session,
                    values.millis(row[4]),
                    values.millis(row[5]),
                    version_of(row[2]),
                    values.reference(row[1]) or values.reference(row[12]),
                    values.model(model.get("id")),
                    values.name(model.get("providerID")),
                    usage_of(row[6], row[7:12]) if "tokens_input" in columns else None,
                    forked=row[12] is not None,
                )

    def _messages(self, skipped: Counter[str]) -> Iterator[Message]:
        """Assistant messages of each table in the order of their start, so that copies of one call stand together."""
        changed = self._changes.sessions
        for number, table in enumerate(self._tables):
            for identity, session, data in self._database.rows(table.messages, (changed, changed)):
                message = message_of(identity, session, orjson.loads(data))
                if message is None or message.session not in self._heads:
                    skipped["bad_json"] += 1
                elif number and (message.session, message.key) in self._known:
                    skipped["copy"] += 1
                else:
                    if number + 1 < len(self._tables):
                        self._known.add((message.session, message.key))
                    yield self._with_steps(message) if table is not SECOND else _second(message, native=number > 0)

    def _counted(self, skipped: Counter[str]) -> Iterator[Message]:
        """Those that used something, added up by session."""
        for message in self._messages(skipped):
            head = self._heads[message.session]
            # A fork whose total begins at 0 has not added up what was copied into it.
            if not (head.forked and message.created < (head.created or 0) * 1000):
                self._sums[message.session] = self._sums.get(message.session, NOTHING) + message.usage
                if message.second and message.session in self._changes:
                    self._reverted.see(message.session, message.created, message.usage)
            if message.usage.size:
                if (last := self._last.get(message.session)) is None or last.created <= message.created:
                    self._last[message.session] = message
                yield message
            else:
                skipped["no_usage"] += 1

    def _with_steps(self, message: Message) -> Message:
        """The message with the sum of its steps, where the message itself may say less than they do."""
        old = self._heads[message.session].version < ONE_MESSAGE_A_STEP
        if not self._has_parts or not self._lookups or (message.completed is not None and not old):
            return message
        self._lookups -= 1
        fields = picked("data", *(f"$.{path}" for path in STEP_PATHS))
        sql = f"SELECT {fields} FROM part WHERE message_id = ? AND "  # noqa: S608
        sql += f"{picked('data', '$.type')} = 'step-finish'"
        steps = NOTHING
        for (data,) in self._database.rows(sql, (message.id,)):
            cost, *counts = orjson.loads(data)
            steps += usage_of(cost, counts)
        return replace(message, usage=message.usage.larger(steps))

    def _records(self, group: list[Message]) -> Iterator[Record]:
        """Records of messages with one key: copies of a call share it, another call of that moment gets its own."""
        group.sort(key=lambda message: (owner_of(self._heads[message.session], message), message.session, message.id))
        first = group[0].usage.numbers
        for message in group:
            same = message.usage.numbers == first
            # A copy of a call that was running when it was made says less than the call itself.
            if same or message.completed is not None:
                key = (
                    message.key
                    if same
                    else f"{message.key}:{'.'.join(str(number or 0) for number in message.usage.numbers)}"
                )
                yield record_of(message, self._heads[message.session], self._urls, key, database=True)

    def _rest(self, head: Head) -> Record | None:
        """What the session row has beyond its messages, taken back if that has shrunk to nothing."""
        if head.rollup is None:
            return None
        counted = self._sums.get(head.id, NOTHING) + self._reverted.gone(head.id)
        rest = head.rollup.beyond(counted)
        if not rest.size and head.id not in self._rests:
            return None
        self._rests.add(head.id)
        revision = head.rollup.size + counted.size
        when = head.updated or head.created or 0.0
        message = Message(head.id, head.id, head.provider, head.model, "", int(when * 1000), None, None, rest)
        record = record_of(message, head, self._urls, f"rest:{head.id}", database=True)
        return msgspec.structs.replace(
            record,
            grain="session",
            revision=revision,
            caveat="cumulative_rest",
            ended_ts=None,
            taken_back=not rest.size,
        )


def _second(message: Message, *, native: bool) -> Message:
    """A message of version 2. One that is not of before as well has its output without reasoning, and no total."""
    return replace(
        message, second=True, total=message.usage.size if native and message.total is None else message.total
    )
