"""The JSON tree of opencode before 1.1: one file a message, left on disk when its sessions move into the database.

``storage/session/<project>/<session>.json``, ``storage/message/<session>/<message>.json``,
``storage/part/<message>/<part>.json``. A message that the database has too is the same record, of an earlier revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from collector import jsonl
from collector.runtimes import Batch, Source, values
from collector.runtimes.counts import NOTHING, Counts
from collector.runtimes.opencode_calls import (
    MESSAGE_PATHS,
    ONE_MESSAGE_A_STEP,
    STEP_PATHS,
    Head,
    Message,
    message_of,
    record_of,
    session_of,
    usage_of,
    version_of,
)
from collector.runtimes.places import files

# A step's file holds numbers only; larger files are text and tool output.
MAX_STEP: Final = 8192


def read_tree(source: Source, urls: Mapping[str, str], *, listed: bool) -> Batch:
    """One session of the tree. ``listed``: the database lists the session, with later times.

    A message that is being written is left to the next pass.
    """
    batch = Batch()
    head = _head(source)
    last: Message | None = None
    for path in (part for part in source.parts if part.parent == source.path):
        data = jsonl.json_document(path)
        if data is None:
            batch.skipped["bad_json"] += 1
            continue
        message = _message(path, head, data) if data.get("role") == "assistant" else None
        if message is None or not message.usage.size:
            batch.skipped["no_usage"] += message is not None
            continue
        batch.records.append(record_of(message, head, urls, message.key, database=False))
        last = message if last is None or message.created >= last.created else last
    if not listed:
        batch.sessions.append(session_of(head, last))
    return batch


def _head(source: Source) -> Head:
    path = next((part for part in source.parts if part.name == f"{source.path.name}.json"), None)
    data = (jsonl.json_document(path) if path else None) or {}
    return Head(
        source.path.name,
        values.millis(_at(data, "time.created")),
        values.millis(_at(data, "time.updated")),
        version_of(data.get("version")),
        values.reference(data.get("parentID")),
    )


def _message(path: Path, head: Head, data: dict[str, Any]) -> Message | None:
    message = message_of(path.stem, head.id, [_at(data, wanted) for wanted in MESSAGE_PATHS])
    if message is None or head.version >= ONE_MESSAGE_A_STEP:
        return message
    return replace(message, usage=message.usage.larger(_steps(path)))


def _steps(message: Path) -> Counts:
    steps = NOTHING
    for entry in files(message.parents[2] / "part" / message.stem, lambda name: name.endswith(".json")):
        if entry.stat(follow_symlinks=False).st_size <= MAX_STEP:
            part = jsonl.json_document(Path(entry.path)) or {}
            if part.get("type") == "step-finish":
                cost, *counts = (_at(part, wanted) for wanted in STEP_PATHS)
                steps += usage_of(cost, counts)
    return steps


def _at(data: dict[str, Any], path: str) -> Any:
    value: Any = data
    for key in path.split("."):
        value = values.mapping(value).get(key)
    return value
