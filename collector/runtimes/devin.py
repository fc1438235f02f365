"""Devin CLI: ``sessions.db``, and exported transcripts (ATIF) of sessions that no database of the tool has.

True here (no vendor source; observed by several readers): each assistant message carries its own metrics and committed
ACU, so they are summed. The node table is a forest in which compaction, rewind and branching append a request again:
one request counts once, and a request of an abandoned branch was billed all the same. Database metrics are disjoint; a
transcript's ``prompt_tokens`` includes the cache. An ACU has no public rate; credits have no known unit and stay out.
A transcript that was counted is taken back once a database has its session; what a database told stays when that goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from collector import jsonl
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, SourceError, values
from collector.runtimes.changes import AMONG, Changes
from collector.runtimes.places import files, folder, leads_out, own, refuse_stray, stray
from collector.sqlite_ro import Database, KnownIds, opened, picked, select, sidecars
from shim.line import Tokens

RUNTIME: Final = "devin"
BATCH: Final = 500
STORE: Final = "sessions.db"
NAMESPACES: Final = ("devin", "cognition", "chisel")
MICRO: Final = 10**6
LISTED: Final = KnownIds("sessions", "id")
NODE_PATHS: Final = (
    "$.message_id",
    "$.metadata.request_id",
    "$.metadata.created_at",
    "$.metadata.generation_model",
    "$.metadata.committed_acu_cost",
    "$.metadata.metrics.input_tokens",
    "$.metadata.metrics.cache_read_tokens",
    "$.metadata.metrics.cache_creation_tokens",
    "$.metadata.metrics.output_tokens",
)
NODES: Final = f"""SELECT session_id, node_id, created_at, {picked("chat_message", *NODE_PATHS)} FROM message_nodes
    WHERE session_id {AMONG} AND {picked("chat_message", "$.role")} = 'assistant'"""  # noqa: S608
SUMS: Final = ", ".join(f"total({picked('chat_message', path)})" for path in NODE_PATHS[4:])
DIGEST: Final = (
    f"SELECT session_id, count(*), total(rowid), total(length(chat_message)), {SUMS} FROM message_nodes GROUP BY 1"  # noqa: S608
)
# What stands for a request in the key of a transcript's own total.
FINAL: Final = "final"
FINAL_KEYS: Final = ("total_prompt_tokens", "total_completion_tokens", "total_cached_tokens")
SESSION: Final = ("id", "model", "created_at", "last_activity_at", "hidden")

FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.local/share/devin/cli/{sessions.db, transcripts/}",
    variables="XDG_DATA_HOME",
    aggregation="sum of requests",
    input_includes_cache="no; yes in transcripts",
    reasoning_in_output="unknown",
    dedupe_key="session, request id",
    cost_field="committed_acu_cost",
    cost_unit="ACU (USD only with VM_USAGE_ACU_USD)",
    cost_basis="billed",
)


class Devin:
    """The database, then the transcripts of sessions it lacks."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """The database and one source a transcript, in every namespace the tool has had."""
        data = folder(home, environ, "XDG_DATA_HOME", ".local/share")
        for root in (data / namespace / "cli" for namespace in NAMESPACES):
            yield from stray(RUNTIME, home, root)
            store, transcripts = root / STORE, root / "transcripts"
            if own(home, store):
                yield Source(RUNTIME, store, sidecars(store))
            if leads_out(home, transcripts):
                continue
            for entry in files(transcripts, lambda name: name.endswith(".json")):
                yield Source(RUNTIME, Path(entry.path))

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """The database's requests, or a transcript's where the database lacks it. Raises ``SourceError``."""
        refuse_stray(source)
        if source.path.name != STORE:
            yield _transcript(source.path, state or {})
            return
        with opened(source.path) as database:
            yield from _store(database, source.path, state or {})


READER: Final = Devin()


def _store(database: Database, path: Path, state: dict[str, Any]) -> Iterator[Batch]:
    columns = database.columns("sessions")
    if "id" not in columns or not {"session_id", "chat_message"} <= database.columns("message_nodes"):
        raise SourceError(path, "no sessions and messages in it (yet)")
    batch = Batch()
    changes = Changes(state.get("sessions"))
    changes.see(database.rows(select("sessions", SESSION, columns)))
    changes.see(database.rows(DIGEST))
    sessions: dict[str, Session] = {}
    for row in database.rows(select("sessions", SESSION, columns)):
        session, model = values.reference(row[0]), values.model(row[1])
        if session is None or row[4]:
            # Sessions of the tool's own: what they are and who pays for them is not known.
            batch.skipped["hidden"] += 1
            continue
        started, ended = values.seconds(row[2]), values.seconds(row[3])
        sessions[session] = Session(RUNTIME, session, started, ended, model, "log" if model else "none")
    batch.sessions = [session for session in sessions.values() if session.session_id in changes]
    for owner, node, created, data in database.rows(NODES, (changes.sessions,)):
        if (listed := sessions.get(owner)) is None:
            continue
        record = _node(listed, node, created, orjson.loads(data))
        if record is None:
            batch.skipped["no_usage"] += 1
        else:
            batch.records.append(record)
        if len(batch.records) >= BATCH:
            batch.state = state
            yield batch
            batch = Batch()
    batch.state = {"sessions": changes.saved}
    yield batch


def _node(session: Session, node: Any, created: Any, fields: list[Any]) -> Record | None:
    message, request, when, model, acu, *counts = fields
    fresh, read, write, output = (values.count(value) for value in counts)
    tokens = Tokens(input_tokens=fresh, cache_read_tokens=read, cache_write_tokens=write, output_tokens=output)
    identity = values.reference(request) or values.reference(message) or f"node {node}"
    ts = values.iso(when) or values.seconds(created) or session.started_ts or 0.0
    return _record(session, identity, ts, values.model(model), tokens, acu)


def _record(session: Session, identity: str, ts: float, model: str | None, tokens: Tokens, acu: Any) -> Record | None:
    """``None`` where a message has neither tokens nor ACU. A commitment that arrives later is a later revision."""
    micro = _micro(acu)
    if not tokens.known and micro is None:
        return None
    model = model or session.model
    return Record(
        runtime=RUNTIME,
        key=f"{session.session_id}:{identity}",
        session_id=session.session_id,
        ts=ts,
        tokens=tokens,
        model=model,
        model_source="log" if model else "none",
        owner=session.started_ts or ts,
        revision=(tokens.total or 0) + (micro or 0) + (micro is not None),
        acu_micro=micro,
    )


def _micro(acu: Any) -> int | None:
    """Millionths of an ACU."""
    valid = isinstance(acu, int | float) and not isinstance(acu, bool) and 0 <= acu < 10**9
    return round(acu * MICRO) if valid else None


def _transcript(path: Path, state: dict[str, Any]) -> Batch:
    """``state``: a database had the session, so it stays in charge; until then, the revisions of what was counted."""
    batch = Batch()
    data = jsonl.json_document(path)
    if data is None:
        raise SourceError(path, "not complete JSON")
    session = values.reference(data.get("session_id")) or path.stem
    counted = values.mapping(state.get("counted"))
    if state.get("database") or _in_database(path, session):
        batch.skipped["in_database"] += 1
        batch.records = [_taken_back(session, key, revision) for key, revision in counted.items()]
        batch.state = {"database": True}
        return batch
    model = values.model(values.mapping(data.get("agent")).get("model_name"))
    listed = data.get("steps")
    steps = [values.mapping(step) for step in listed] if isinstance(listed, list) else []
    times = [when for step in steps if (when := values.iso(step.get("timestamp"))) is not None]
    first, last = values.earliest(*times), values.latest(*times)
    known = Session(RUNTIME, session, first, last, model, "log" if model else "none")
    for position, step in enumerate(steps):
        record = _step(known, position, step) if step.get("source") == "agent" else None
        if record is not None:
            batch.records.append(record)
    total = f"{session}:{FINAL}"
    if not batch.records and (final := _final(known, values.mapping(data.get("final_metrics")))) is not None:
        batch.records.append(final)
    elif batch.records and total in counted:
        batch.records.insert(0, _taken_back(session, total, counted.pop(total)))
    model = batch.records[-1].model if batch.records else model
    batch.sessions.append(Session(RUNTIME, session, first, last, model, "log" if model else "none"))
    batch.state = {"counted": counted | {r.key: r.revision for r in batch.records if not r.taken_back}}
    return batch


def _in_database(path: Path, session: str) -> bool:
    # The database moved when the tool was renamed; a transcript may have stayed.
    root = path.parents[3]
    return any(session in LISTED.of(root / namespace / "cli" / STORE) for namespace in NAMESPACES)


def _taken_back(session: str, key: str, revision: object) -> Record:
    later = (values.count(revision) or 0) + 1
    return Record(RUNTIME, key, session, 0.0, Tokens(), revision=later, taken_back=True)


def _final(session: Session, metrics: dict[str, Any]) -> Record | None:
    """The transcript's own total, for one whose steps carry no numbers."""
    prompt, output, read = (values.count(metrics.get(key)) for key in FINAL_KEYS)
    fresh = values.fresh(prompt, read)
    tokens = Tokens(input_tokens=fresh, cache_read_tokens=read, output_tokens=output)
    record = _record(session, FINAL, session.ended_ts or session.started_ts or 0.0, session.model, tokens, None)
    return None if record is None else msgspec.structs.replace(record, grain="session")


def _step(session: Session, position: int, step: dict[str, Any]) -> Record | None:
    metrics = values.mapping(step.get("metrics"))
    extra = values.mapping(step.get("extra")) or values.mapping(step.get("metadata"))
    read = values.count(metrics.get("cached_tokens"))
    write = values.count(values.mapping(metrics.get("extra")).get("cache_creation_input_tokens"))
    tokens = Tokens(
        input_tokens=values.fresh(values.count(metrics.get("prompt_tokens")), read, write),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=values.count(metrics.get("completion_tokens")),
    )
    identity = f"step {values.count(step.get('step_id')) or position}"
    ts = values.iso(step.get("timestamp")) or session.started_ts or 0.0
    model = values.model(extra.get("generation_model")) or values.model(step.get("model_name"))
    return _record(session, identity, ts, model, tokens, extra.get("committed_acu_cost"))
