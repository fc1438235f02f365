"""Cursor: who talked when and to which model. It is token-blind on disk, so this reader yields sessions and no record.

True here (closed source; observed): ``state.vscdb`` keeps ``composerData:<id>`` and ``bubbleId:<id>:<bubble>``. Current
builds write zero token counts, old ones sparse numbers, and ``contextTokensUsed`` is a gauge: none of them is usage,
none is read. The CLI leaves transcripts without times and ``chats/*/*/store.db``. Models are display names or aliases.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from collector import jsonl
from collector.record import Session
from collector.runtimes import Batch, Facts, Source, SourceError, values
from collector.runtimes.places import entries, files, leads_out, refuse_stray, stray, subfolders
from collector.sqlite_ro import Database, opened, picked, sidecars

RUNTIME: Final = "cursor"
BATCH: Final = 200
EDITOR: Final = ".config/Cursor/User/globalStorage"
STATE: Final = "state.vscdb"
CHAT: Final = "store.db"
TRANSCRIPTS: Final = "agent-transcripts"
ASSISTANT: Final = 2
COMPOSER_PATHS: Final = ("$.createdAt", "$.lastUpdatedAt", "$.modelConfig.modelName")
BUBBLE_PATHS: Final = ("$.type", "$.createdAt", "$.modelInfo.modelName")

FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.config/Cursor/User/globalStorage/state.vscdb, ~/.cursor/{projects/*/agent-transcripts, chats}",
    variables="none",
    aggregation="sessions only; tokens come from usage lines",
    input_includes_cache="-",
    reasoning_in_output="-",
    dedupe_key="-",
    cost_field="none",
    cost_unit="-",
    cost_basis="-",
)


class Cursor:
    """The editor's database, the CLI's chats, and one source per folder of transcripts."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """The editor's database, each chat of the CLI, each folder of transcripts."""
        editor = home / EDITOR
        yield from stray(RUNTIME, home, editor)
        for entry in files(editor, STATE.__eq__) if not leads_out(home, editor) else ():
            yield Source(RUNTIME, Path(entry.path), sidecars(Path(entry.path)))
        root = home / ".cursor"
        yield from stray(RUNTIME, home, root)
        for project in subfolders(root / "projects") if not leads_out(home, root / "projects") else ():
            transcripts = Path(project.path, TRANSCRIPTS)
            if os.path.isdir(transcripts) and not leads_out(home, transcripts):
                yield Source(RUNTIME, transcripts)
        for workspace in subfolders(root / "chats") if not leads_out(home, root / "chats") else ():
            for chat in subfolders(workspace.path):
                for entry in files(chat.path, CHAT.__eq__):
                    yield Source(RUNTIME, Path(entry.path), sidecars(Path(entry.path)))

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """Sessions only. Raises ``SourceError``."""
        if source.path.name == STATE:
            with opened(source.path) as database:
                yield from _composers(database, source.path, state or {})
        elif source.path.name == CHAT:
            with opened(source.path) as database:
                yield _chat(database, source.path)
        elif source.path.name == TRANSCRIPTS:
            yield Batch(sessions=list(_transcripts(source.path)))
        else:
            refuse_stray(source)


READER: Final = Cursor()


def _composers(database: Database, path: Path, state: dict[str, Any]) -> Iterator[Batch]:
    """Sessions that changed. A replaced row gets a new number, so ``state`` is the largest number seen."""
    if not {"key", "value"} <= database.columns("cursorDiskKV"):
        raise SourceError(path, "no chats in it (yet)")
    newest = next(database.rows("SELECT max(rowid) FROM cursorDiskKV"))[0] or 0
    seen = values.count(state.get("newest")) or 0
    batch = Batch()
    for composer in _changed(database, seen if seen <= newest else 0):
        session = _composer(database, composer)
        if session is None:
            batch.skipped["empty"] += 1
        else:
            batch.sessions.append(session)
        if len(batch.sessions) >= BATCH:
            batch.state = {"newest": seen}
            yield batch
            batch = Batch()
    batch.state = {"newest": newest}
    yield batch


def _changed(database: Database, after: int) -> list[str]:
    """Ids of composers of which a row is newer. Only keys are read, so Cursor's lock is held for a moment."""
    found: dict[str, None] = {}
    for prefix in ("composerData", "bubbleId"):
        sql = "SELECT key FROM cursorDiskKV WHERE key > ? AND key < ? AND rowid > ?"
        for (key,) in database.rows(sql, (f"{prefix}:", f"{prefix};", after)):
            if composer := values.reference(str(key).split(":")[1]):
                found[composer] = None
    return list(found)


def _composer(database: Database, composer: str) -> Session | None:
    sql = f"SELECT {picked('value', *COMPOSER_PATHS)} FROM cursorDiskKV WHERE key = ?"  # noqa: S608
    (data,) = next(database.rows(sql, (f"composerData:{composer}",)), (None,))
    created, updated, model = orjson.loads(data) if data else (None, None, None)
    sql = f"SELECT {picked('value', *BUBBLE_PATHS)} FROM cursorDiskKV WHERE key > ? AND key < ?"  # noqa: S608
    bubbles = [orjson.loads(row[0]) for row in database.rows(sql, _between(composer)) if row[0]]
    turns = sorted(
        (when, values.model(name))
        for kind, at, name in bubbles
        if kind == ASSISTANT and (when := _when(at)) is not None
    )
    if not bubbles and _when(updated) is None:
        return None
    named = [name for _, name in turns if name is not None]
    model = named[-1] if named else values.model(model)
    started = _when(created) or (turns[0][0] if turns else None)
    ended = _when(updated) or (turns[-1][0] if turns else None)
    return Session(RUNTIME, composer, started, ended, model, "log" if model else "none", turns=tuple(turns))


def _between(composer: str) -> tuple[str, str]:
    return f"bubbleId:{composer}:", f"bubbleId:{composer};"


def _when(value: Any) -> float | None:
    """Times are epoch ms or ISO text, by build."""
    return values.iso(value) if isinstance(value, str) else values.millis(value)


def _chat(database: Database, path: Path) -> Batch:
    """A CLI chat: its id is the folder's name; ``meta`` holds JSON as hexadecimal text."""
    created: float | None = None
    model: str | None = None
    if {"key", "value"} <= database.columns("meta"):
        for (value,) in database.rows("SELECT value FROM meta WHERE length(value) < 65536"):
            data = _unhex(value)
            created = values.millis(data.get("createdAt")) or created
            model = values.model(data.get("lastUsedModel")) or model
    session = Session(RUNTIME, path.parent.name, created, None, model, "log" if model else "none")
    return Batch(sessions=[session])


def _unhex(value: Any) -> dict[str, Any]:
    try:
        return jsonl.parse(bytes.fromhex(value)) or {} if isinstance(value, str) else {}
    except ValueError:
        return jsonl.parse(value.encode("utf-8", "replace")) or {}


def _transcripts(folder: Path) -> Iterator[Session]:
    """One session per transcript: ``<id>.jsonl``, ``<id>.txt`` or ``<id>/…``. They hold neither times nor models."""
    seen: set[str] = set()
    for entry in entries(folder):
        real = entry.is_dir(follow_symlinks=False)
        if not real and not entry.name.endswith((".jsonl", ".txt")):
            continue
        session = values.reference(entry.name if real else entry.name.rpartition(".")[0])
        if session is not None and session not in seen:
            seen.add(session)
            yield Session(RUNTIME, session, model_source="none")
