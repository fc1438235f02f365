"""Cline's index ``sessions.db``: who started whom, and totals of sessions whose folder is gone.

Its usage repeats the manifests', so it counts only for a session that has never had a folder here; where that could not
be seen before, the total is taken back. A fork's total was seeded with its source's and cannot be told apart without
messages: it is skipped. Schedules repeat session totals.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from collector.record import Record, Session
from collector.runtimes import Batch, Source, SourceError, values
from collector.runtimes.cline_sessions import RUNTIME, USAGE_KEYS, Manifest, counts_of, rest_record
from collector.runtimes.counts import NOTHING, Counts
from collector.sqlite_ro import opened, picked, select

COLUMNS: Final = ("session_id", "started_at", "ended_at", "model", "provider", "parent_session_id")
PATHS: Final = (*(f"$.usage.{key}" for key in USAGE_KEYS), "$.usage.totalCost", "$.fork.forkedFromSessionId")


def read_index(source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
    """Sessions and orphaned totals.

    ``state``: the sessions that had a folder when the index was read, and those of which the total was counted. One
    without the latter is of before these had a key of their own: what was counted under the folder's is taken back.
    """
    batch = Batch()
    folders = source.parts[-1]
    with_folder: set[str] = set((state or {}).get("folders", ()))
    counted: set[str] = set((state or {}).get("counted", ()))
    under_folders = state is not None and "counted" not in state
    with opened(source.path) as database:
        columns = database.columns("sessions")
        if not {"session_id", "metadata_json"} <= columns:
            raise SourceError(source.path, "no sessions in it (yet)")
        for row in _rows(database, columns):
            session = values.reference(row[0])
            if session is None:
                batch.skipped["bad_json"] += 1
                continue
            manifest, parent = _manifest(session, row), values.reference(row[5])
            if under_folders and session not in with_folder and manifest.total is not None and not manifest.forked:
                rest = rest_record(manifest, manifest.started, manifest.total, manifest.total.size + 1, alone=True)
                batch.records.append(msgspec.structs.replace(rest, taken_back=True))
            if _has_folder(folders, session):
                with_folder.add(session)
            if session in counted & with_folder:
                batch.records.append(_record(manifest, manifest.total or NOTHING, taken_back=True))
                counted.discard(session)
            if session not in with_folder and manifest.total is not None and manifest.total.size:
                if manifest.forked:
                    batch.skipped["fork_without_messages"] += 1
                else:
                    batch.records.append(_record(manifest, manifest.total))
                    counted.add(session)
            elif parent is None:
                # Its own folder says the rest.
                continue
            batch.sessions.append(Session(RUNTIME, session, manifest.started, manifest.ended, parent_session_id=parent))
    batch.state = {"folders": sorted(with_folder), "counted": sorted(counted)}
    yield batch


def _rows(database: Any, columns: frozenset[str]) -> Iterator[tuple[Any, ...]]:
    sql = select("sessions", COLUMNS, columns).replace(" FROM", f", {picked('metadata_json', *PATHS)} FROM", 1)
    yield from database.rows(sql)


def _manifest(session: str, row: tuple[Any, ...]) -> Manifest:
    *counts, cost, fork = orjson.loads(row[6]) if row[6] else [None] * len(PATHS)
    total = counts_of(dict(zip(USAGE_KEYS, counts, strict=True)), cost)
    started, ended = values.iso(row[1]), values.iso(row[2])
    return Manifest(session, started, ended, values.model(row[3]), values.name(row[4]), total, fork is not None)


def _record(manifest: Manifest, total: Counts, *, taken_back: bool = False) -> Record:
    record = rest_record(manifest, manifest.started, total, 2 * total.size + taken_back, alone=True)
    # Not the key of what the folder's own total has beyond its messages.
    return msgspec.structs.replace(record, key=f"index:{manifest.session}", taken_back=taken_back)


def _has_folder(folders: Path, session: str) -> bool:
    return "/" not in session and os.path.isdir(folders / session)
