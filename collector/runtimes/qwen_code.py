"""Qwen Code: chats below ``~/.qwen/projects/<project>/chats`` and the usage log beside them.

Read from https://github.com/QwenLM/qwen-code (packages/core/src/services) and stores of 0.5 to 0.24; input includes the
cache; whether thoughts are inside the candidates depends on the backend and shows in the total. True here:

- an assistant line with ``usageMetadata`` is a call; ``ui_telemetry`` lines repeat it, but of some calls they alone
  tell (``qwen_telemetry``).
- ``/branch`` copies lines with their ``uuid`` and time under its own ``sessionId`` and names the session that it forked
  (``forkedFrom``; ``forkSession`` in sessionService.ts): the calls are that session's. An archived chat is moved to
  ``chats/archive``. ``<session>.ledger.jsonl`` beside a chat tells how its prompts ended and holds no usage.
- ``usage/token-usage-<month>.jsonl`` has a line for every request. Those of source ``main`` are in the chat of their
  session, if it has one (a user may have switched the recording of chats off); the others (memory extraction,
  sub-agents by the names that users gave them) are nowhere else and are calls of the session that they name.
- ``usage_record.jsonl`` sums both up per exit and is not read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, lines, parse
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, places
from collector.runtimes.qwen_telemetry import Response, Telemetry, is_usage_log
from collector.runtimes.thoughts import disjoint
from collector.runtimes.values import count, earliest, is_unique, iso, latest, mapping, model, reference

RUNTIME: Final = "qwen_code"
MAIN: Final = "main"
CHATS: Final = ("/chats", "/chats/archive")
PROJECTS: Final = "projects"
USAGE: Final = "usage"
FIELDS: Final = (
    "promptTokenCount",
    "candidatesTokenCount",
    "cachedContentTokenCount",
    "thoughtsTokenCount",
    "totalTokenCount",
)


class _Chat:
    """A file as far as it was read: a chat, or the usage log, which has no session of its own."""

    def __init__(self, path: Path, state: Mapping[str, Any], session: str | None) -> None:
        self.session: str | None = state.get("session") or session
        self.start: float | None = state.get("start")
        self.ended: float | None = state.get("ended")
        self.parent: str | None = state.get("parent")
        root = next((folder.parent for folder in path.parents if folder.name == PROJECTS), path.parent)
        self.telemetry = Telemetry.of(root / USAGE, state)
        # Sessions that have a chat, or had one when the usage log told of them.
        self.chats: set[str] | None = None
        self._had_chat: set[str] = set(state.get("had_chat", ()))
        self._root = path.parents[1]
        self.skipped: Counter[str] = Counter()

    def turn(self, entry: dict[str, Any]) -> list[Record]:
        """The calls that a line of a chat tells of."""
        when = iso(entry.get("timestamp"))
        self.session = reference(entry.get("sessionId")) or self.session
        copied_from = reference(mapping(entry.get("forkedFrom")).get("sessionId"))
        self.parent = copied_from or self.parent
        self.start = earliest(self.start, when) if copied_from is None else self.start
        self.ended = latest(self.ended, when)
        if entry.get("type") == "system":
            return self._calls(self.telemetry.system(entry, when, copied_from))
        return self._answer(entry, when, copied_from) if entry.get("type") == "assistant" else []

    def _answer(self, entry: dict[str, Any], when: float | None, copied_from: str | None) -> list[Record]:
        usage, identity = mapping(entry.get("usageMetadata")), reference(entry.get("uuid"))
        if not usage or when is None or identity is None:
            self.skipped["no_usage"] += 1
            return []
        counts = tuple(count(usage.get(name)) for name in FIELDS)
        told = Response(identity, when, counts, model(entry.get("model")), None, copied_from)
        return self._calls([*self.telemetry.repeated(counts), told])

    def _calls(self, responses: list[Response]) -> list[Record]:
        return [record for response in responses if (record := self._call(response)) is not None]

    def _call(self, response: Response) -> Record | None:
        copied_from = response.copied_from
        writer = copied_from or self.session
        if writer is None:
            self.skipped["no_usage"] += 1
            return None
        return Record(
            RUNTIME,
            response.key if is_unique(response.key) else f"{writer}:{response.key}",
            writer,
            response.when,
            disjoint(*response.counts, beside=False),
            response.model,
            "log" if response.model else "none",
            owner=self.start if self.start is not None and copied_from is None else response.when,
            parent_session_id=self.parent if copied_from is None else None,
            response_id=response.id,
        )

    def side_call(self, entry: dict[str, Any]) -> list[Record]:
        """The call that a line of the usage log tells of, unless a chat tells it."""
        when, identity = iso(entry.get("timestamp")), reference(entry.get("id"))
        session = reference(entry.get("sessionId"))
        if entry.get("source") == MAIN and self._has_chat(session):
            self.skipped["in_chat"] += 1
            return []
        if when is None or identity is None or session is None or not isinstance(entry.get("source"), str):
            self.skipped["no_usage"] += 1
            return []
        tokens = disjoint(
            count(entry.get("inputTokens")),
            count(entry.get("outputTokens")),
            count(entry.get("cachedTokens")),
            count(entry.get("thoughtsTokens")),
            count(entry.get("totalTokens")),
            beside=False,
        )
        named = model(entry.get("model"))
        # The log writes zeros where a provider sent no usage.
        usage = "reported" if tokens.total else "missing"
        source = "log" if named else "none"
        return [Record(RUNTIME, identity, session, when, tokens, named, source, owner=when, usage=usage)]

    def _has_chat(self, session: str | None) -> bool:
        if session is None:
            return True
        if self.chats is None:
            self.chats = {Path(entry.path).stem for entry in _chats(self._root)}
        if session in self.chats:
            self._had_chat.add(session)
        return session in self._had_chat

    def batch(self, records: list[Record], position: list[int]) -> Batch:
        """What was found, with the state to go on from."""
        skipped, self.skipped = self.skipped, Counter()
        listed = []
        if self.session is not None and self.start is not None:
            listed = [Session(RUNTIME, self.session, self.start, self.ended, parent_session_id=self.parent)]
        state = {
            "at": position,
            "session": self.session,
            "start": self.start,
            "ended": self.ended,
            "parent": self.parent,
            **self.telemetry.state,
            "had_chat": sorted(self._had_chat),
        }
        return Batch(records, listed, skipped, state)


class QwenCode:
    """Reader of Qwen Code's chats and usage log."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source a chat and one a month of the usage log."""
        roots = [places.folder(home, environ, "QWEN_HOME", ".qwen")]
        if environ.get("QWEN_RUNTIME_DIR", "").strip():
            roots.append(places.folder(home, environ, "QWEN_RUNTIME_DIR", ""))
        for root in roots:
            yield from places.stray(RUNTIME, home, root)
            if not places.leads_out(home, root):
                for entry in _chats(root):
                    yield Source(RUNTIME, Path(entry.path))
                for entry in places.files(root / USAGE, is_usage_log):
                    yield Source(RUNTIME, Path(entry.path))

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """Records from the saved offset on. Raises ``SourceError``."""
        usage_log = is_usage_log(source.path.name)
        chat = _Chat(source.path, state or {}, None if usage_log else source.path.stem)
        take: Callable[[dict[str, Any]], list[Record]] = chat.side_call if usage_log else chat.turn
        file = LineFile(source.path, (state or {}).get("at"))
        before = file.offset
        for block in file.blocks():
            if before and file.offset - len(block) == 0:
                # The file was replaced: what had not been repeated in it may be now.
                chat.telemetry.open.clear()
            before = 0
            records: dict[str, Record] = {}
            for line in lines(block):
                entry = parse(line)
                if entry is None:
                    chat.skipped["bad_json"] += 1
                    continue
                for record in take(entry):
                    records.setdefault(record.key, record)
            yield chat.batch(list(records.values()), file.position)
        chat.skipped += file.skipped
        yield chat.batch([], file.position)


def _chats(root: Path) -> Iterator[os.DirEntry[str]]:
    for project in places.subfolders(root / PROJECTS):
        for folder in CHATS:
            yield from places.files(project.path + folder, _is_chat)


def _is_chat(file: str) -> bool:
    return file.endswith(".jsonl") and not file.endswith(".ledger.jsonl")


READER: Final = QwenCode()
FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.qwen/projects/*/chats/[archive/]<session>.jsonl, ~/.qwen/usage/token-usage-*.jsonl",
    variables="QWEN_HOME, QWEN_RUNTIME_DIR",
    aggregation="sum of assistant lines; side calls, and sessions without a chat, from the usage log",
    input_includes_cache="yes",
    reasoning_in_output="as the total tells",
    dedupe_key="uuid",
    cost_field="none",
    cost_unit="none",
    cost_basis="none",
)
