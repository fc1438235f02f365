"""Goose's sessions of before it had a database (to 1.9): ``sessions/<session>.jsonl``, written anew as they grow.

True here (https://github.com/block/goose crates/goose/src/session/storage.rs): the first line holds the session's
running totals, the others its messages. No model is named. A newer Goose takes all of them into its database under
their names and leaves the files: what counts there is taken back here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec

from collector import jsonl
from collector.record import Record, Session
from collector.runtimes import Batch, SourceError, values
from collector.sqlite_ro import KnownIds
from shim.line import Tokens

RUNTIME: Final = "goose"
STORE: Final = "sessions.db"
LISTED: Final = KnownIds("sessions", "id")
# Larger than that of any total.
TAKEN_BACK: Final = 2**53


def read_jsonl(path: Path) -> Batch:
    """The total of one session, where the database beside it lacks that. Raises ``SourceError``."""
    batch = Batch()
    if path.stem in LISTED.of(path.with_name(STORE)):
        batch.skipped["in_database"] += 1
        return batch
    session, record = _session(path)
    if record is None:
        batch.skipped["no_usage"] += 1
    else:
        batch.records.append(record)
    if session is not None:
        batch.sessions.append(session)
    return batch


def taken_back(folder: Path, session: str) -> Record | None:
    """What was counted of a session's file, if there is one, now that the database has the session."""
    path = folder / f"{session}.jsonl"
    try:
        record = _session(path)[1] if "/" not in session and os.path.isfile(path) else None
    except SourceError:  # nothing was counted of it, and its own source tells why
        return None
    return None if record is None else msgspec.structs.replace(record, revision=TAKEN_BACK, taken_back=True)


def _session(path: Path) -> tuple[Session | None, Record | None]:
    name = values.reference(path.stem)
    totals: dict[str, Any] | None = None
    first: float | None = None
    last: float | None = None
    for block in jsonl.LineFile(path).blocks():
        for line in jsonl.lines(block):
            value = jsonl.parse(line) or {}
            totals = value if totals is None else totals
            when = values.seconds(value.get("created"))
            first, last = values.earliest(first, when), values.latest(last, when)
    if name is None or first is None or totals is None or "message_count" not in totals:
        return None, None
    counts = (values.count(totals.get(f"accumulated_{kind}_tokens")) for kind in ("input", "output"))
    tokens = Tokens(input_tokens=next(counts), output_tokens=next(counts))
    session = Session(RUNTIME, name, first, last, model_source="none")
    if not tokens.total:
        return session, None
    return session, Record(
        runtime=RUNTIME,
        key=f"{name}:{first:.0f}:jsonl",
        session_id=name,
        ts=last or first,
        tokens=tokens,
        model_source="none",
        grain="session",
        owner=first,
        revision=tokens.total,
        caveat="cache_split_unknown",
    )
