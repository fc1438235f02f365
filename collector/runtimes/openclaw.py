"""OpenClaw: sessions in Pi's entry format, as JSONL files and, since 2026.9, as rows of a SQLite database per agent.

Read from https://github.com/openclaw/openclaw (src/config/sessions) and stores of 2026.3.31 and 2026.9.6. True here:

- ``agents/<agent>/sessions/*.jsonl`` and archives (``.deleted.<time>``, ``.reset.<time>``, also ``.zst``): a deleted
  transcript is renamed, its spend stays; ``.bak.<time>`` is the whole of one of which ``sessions.compact`` kept the
  last lines. ``sessions.json`` describes the last call only and is not read.
- ``agents/<agent>/agent/openclaw-agent.sqlite``: ``transcript_events`` holds an entry per row, as text in
  ``event_json`` or compressed in ``event_zstd``; deleted sessions move to ``session_transcript_archives``. A rewritten
  transcript's rows are deleted and made again, under the numbers of the last rows where these were its own. Sessions
  that rest for long move to ``sessions/cold/*.jsonl.zst`` (a restored backup has them in
  ``session_transcript_cold_archives``), where a line is a row.
- a profile (``--profile <name>``, ``--dev``) has a state folder of its own, ``~/.openclaw-<name>``.
- entries of provider ``openclaw`` (mirrored deliveries, injected text) are no calls. A turn that it had Claude Code,
  Codex or Gemini CLI make (``api`` is ``cli``) is in the store of that program, call by call.
- where the provider sent no usage OpenClaw writes zeros: not a measurement (``usage`` is ``missing``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import zstandard

from collector import sqlite_ro
from collector.jsonl import MAX_DOCUMENT, MAX_LINE, document, json_document, parse
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, SourceError, places
from collector.runtimes.pi import Transcript, read_lines, take_lines
from collector.runtimes.values import mapping, reference

RUNTIME: Final = "openclaw"
DATABASE: Final = "openclaw-agent.sqlite"
OWN_PROVIDER: Final = "openclaw"
OWN_MODELS: Final = ("delivery-mirror", "gateway-injected")
# Programs that OpenClaw has make a turn; it may name the provider behind them instead. Without ``api`` being ``cli``
# these are calls of its own: ``google-gemini-cli`` is also how it signs in to Google.
DELEGATES: Final = ("claude-cli", "codex-cli", "google-gemini-cli", "anthropic", "openai", "google")
# Of an agent: where transcripts are, where they rest, and where they were put once they were in the database.
FOLDERS: Final = ("sessions", "sessions/cold", "session-sqlite-import-archive")
ROOTS: Final = (".openclaw", ".clawdbot", ".moltbot", ".moldbot")
CONFIGS: Final = ("openclaw.json", "clawdbot.json", "moltbot.json", "moldbot.json")
ROWS_PER_BATCH: Final = 5_000


class _Entries(Transcript):
    """A transcript without the entries that OpenClaw itself wrote and those that others record."""

    def take(self, entry: dict[str, Any]) -> Record | None:
        if "kind" in entry and "type" not in entry:
            self.session = reference(entry.get("sessionId")) or self.session
            entry = _entry(mapping(entry.get("row")).get("event_json"), None) or {}
        if (reason := _not_counted(mapping(entry.get("message")))) is not None:
            self.skipped[reason] += 1
            entry = {key: value for key, value in entry.items() if key in ("type", "timestamp")}
        return Transcript.take(self, entry)


def _not_counted(message: dict[str, Any]) -> str | None:
    provider = message.get("provider")
    if provider == OWN_PROVIDER or message.get("model") in OWN_MODELS:
        return "no_call"
    if message.get("api") == "cli" and provider in DELEGATES:
        return "delegated"
    return None


class OpenClaw:
    """Reader of OpenClaw's transcripts, files and databases."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source a transcript file, one a database; the configuration is a part of each."""
        for root in roots(home, environ):
            yield from places.stray(RUNTIME, home, root)
            if places.leads_out(home, root):
                continue
            config = tuple(root / name for name in CONFIGS)
            yield from _transcripts(home, root / "sessions", config)
            for agent in places.subfolders(root / "agents"):
                for folder in FOLDERS:
                    yield from _transcripts(home, Path(agent.path, folder), config)
                store = Path(agent.path, "agent", DATABASE)
                if places.own(home, store):
                    yield Source(RUNTIME, store, (*config, store.with_name(DATABASE + "-wal")))

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """Records from the saved offset or row on. Raises ``SourceError``."""
        urls = _urls(source.parts)
        if source.path.name == DATABASE:
            return _read_database(source.path, urls, state or {})
        if source.path.suffix == ".zst":
            return _read_compressed(source.path, urls)
        session = source.path.name.partition(".jsonl")[0]
        return read_lines(source.path, _Entries(RUNTIME, session, urls), state)


def _transcripts(home: Path, folder: Path, config: tuple[Path, ...]) -> Iterator[Source]:
    yield from places.stray(RUNTIME, home, folder)
    for entry in places.files(folder, _is_transcript) if not places.leads_out(home, folder) else ():
        yield Source(RUNTIME, Path(entry.path), config)


def roots(home: Path, environ: Mapping[str, str]) -> list[Path]:
    """The state folders of a home: those of every name that the program has had, and of profiles."""
    for variable in ("OPENCLAW_STATE_DIR", "CLAWDBOT_STATE_DIR"):
        if environ.get(variable, "").strip():
            return [places.folder(home, environ, variable, "")]
    own_home = places.folder(home, environ, "OPENCLAW_HOME", "")
    named = [own_home] if own_home != home / "" else []
    profile = tuple(f"{root}-" for root in ROOTS)
    profiles = (Path(entry.path) for entry in places.subfolders(own_home) if entry.name.startswith(profile))
    return [*named, *(own_home / root for root in ROOTS), *profiles]


def _is_transcript(file: str) -> bool:
    stem, found, rest = file.partition(".jsonl")
    archived = rest.startswith((".deleted.", ".reset.", ".bak."))
    return bool(found) and (not rest or archived or rest == ".zst") and not stem.endswith(".trajectory")


def _urls(parts: tuple[Path, ...]) -> dict[str, object]:
    urls: dict[str, object] = {}
    for path in parts:
        if path.name in CONFIGS:
            providers = mapping(mapping(mapping(json_document(path)).get("models")).get("providers"))
            urls.update({provider: mapping(entry).get("baseUrl") for provider, entry in providers.items()})
    return urls


def _read_compressed(path: Path, urls: dict[str, object]) -> Iterator[Batch]:
    transcript = _Entries(RUNTIME, path.name.partition(".jsonl")[0], urls)
    text = _decompressed(document(path), MAX_DOCUMENT)
    if text is None:
        raise SourceError(path, "damaged archive")
    records = take_lines(transcript, text)
    yield Batch(records, transcript.listed(), transcript.skipped)


def _decompressed(data: bytes, limit: int) -> bytes | None:
    """The text behind zstd, or ``None`` where it is damaged or longer than ``limit`` bytes."""
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data) as stream:
            text = stream.read(limit + 1)
    except (zstandard.ZstdError, MemoryError):
        return None
    return text if len(text) <= limit else None


def _read_database(path: Path, urls: dict[str, object], state: dict[str, Any]) -> Iterator[Batch]:
    """New rows of ``transcript_events`` in the order in which they were written; a rewritten row is new again."""
    with sqlite_ro.opened(path) as database:
        columns = database.columns("transcript_events")
        if "session_id" not in columns:
            yield Batch(skipped=Counter({"no_table": 1}))
            return
        before = last = _resumed(database, state, columns)
        wanted = ("rowid", "session_id", "event_json", "event_zstd")
        sql = sqlite_ro.select("transcript_events", wanted, columns | {"rowid"}, "WHERE rowid > ? ORDER BY rowid")
        mark = state.get("mark")
        transcripts: dict[str, _Entries] = {}
        batch = Batch()
        for rowid, session, text, packed in database.rows(sql, (last,)):
            last, mark = rowid, _mark(session, text, packed)
            if reference(session) is None:
                batch.skipped["bad_session"] += 1
                continue
            transcript = transcripts.get(session)
            if transcript is None:
                transcript = transcripts[session] = _begun(database, session, urls, columns, before)
            entry = _entry(text, packed)
            if entry is None:
                batch.skipped["bad_json"] += 1
            elif (record := transcript.take(entry)) is not None:
                batch.records.append(record)
            if len(batch.records) >= ROWS_PER_BATCH:
                yield _finished(batch, transcripts, last, mark)
                batch = Batch()
        _archived(database, urls, batch)
        yield _finished(batch, transcripts, last, mark)


def _resumed(database: sqlite_ro.Database, state: dict[str, Any], columns: frozenset[str]) -> int:
    """The row to go on after; 0 where that is not the row that it was.

    SQLite gives a new row the number after the largest, so as long as that row stands no number up to it was given
    again. It was given again, or taken away, where the end was rewritten, and in another database.
    """
    last, mark = state.get("row"), state.get("mark")
    if not isinstance(last, int):
        return 0
    sql = sqlite_ro.select("transcript_events", ("session_id", "event_json", "event_zstd"), columns, "WHERE rowid = ?")
    row = next(database.rows(sql, (last,)), None)
    return last if row is not None and mark in (None, _mark(*row)) else 0


def _mark(session: object, text: object, packed: object) -> int:
    return crc32(repr((session, text, packed)).encode("utf-8", "replace"))


def _begun(
    database: sqlite_ro.Database, session: str, urls: dict[str, object], columns: frozenset[str], before: int
) -> _Entries:
    """A session's transcript with its header taken and the model that it used last, up to the row ``before``."""
    transcript = _Entries(RUNTIME, session, urls)
    wanted = ("event_json", "event_zstd")
    order = "WHERE session_id = ? ORDER BY seq LIMIT 1"
    for text, packed in database.rows(sqlite_ro.select("transcript_events", wanted, columns, order), (session,)):
        entry = _entry(text, packed)
        if entry is not None:
            transcript.take(entry)
    order = "WHERE session_id = ? AND rowid <= ? ORDER BY seq DESC"
    sql = sqlite_ro.select("transcript_events", wanted, columns, order)
    for text, packed in database.rows(sql, (session, before)) if before else ():
        entry = _entry(text, packed)
        if entry is not None:
            transcript.take(entry)
        if transcript.provider is not None or transcript.model is not None:
            break
    # These rows were counted when they were read.
    transcript.skipped.clear()
    return transcript


def _entry(text: object, packed: object) -> dict[str, Any] | None:
    if isinstance(text, str):
        return parse(text.encode())
    if isinstance(packed, bytes) and (data := _decompressed(packed, MAX_LINE)) is not None:
        return parse(data)
    return None


def _archived(database: sqlite_ro.Database, urls: dict[str, object], batch: Batch) -> None:
    """Calls of sessions that were deleted or reset inside the database."""
    for table in ("session_transcript_archives", "session_transcript_cold_archives"):
        columns = database.columns(table)
        if "archive_blob" not in columns:
            continue
        sql = sqlite_ro.select(
            table, ("session_id", "encoding", "archive_blob"), columns, "WHERE archive_blob IS NOT NULL"
        )
        for session, encoding, blob in database.rows(sql):
            text = blob
            if encoding != "identity":
                text = _decompressed(blob, MAX_DOCUMENT) if isinstance(blob, bytes) else None
            if not isinstance(text, bytes) or reference(session) is None:
                batch.skipped["bad_archive"] += 1
                continue
            transcript = _Entries(RUNTIME, session, urls)
            batch.records.extend(take_lines(transcript, text))
            batch.sessions.extend(transcript.listed())


def _finished(batch: Batch, transcripts: dict[str, _Entries], last: int, mark: int | None) -> Batch:
    for transcript in transcripts.values():
        sessions: list[Session] = transcript.listed()
        batch.sessions.extend(sessions)
        batch.skipped += transcript.skipped
        transcript.skipped = Counter()
    batch.state = {"row": last, "mark": mark}
    return batch


READER: Final = OpenClaw()
FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.openclaw[-<profile>]/agents/*/sessions/*.jsonl[.*], agent/openclaw-agent.sqlite; .clawdbot …",
    variables="OPENCLAW_STATE_DIR, OPENCLAW_HOME, CLAWDBOT_STATE_DIR",
    aggregation="sum of assistant entries",
    input_includes_cache="no",
    reasoning_in_output="yes",
    dedupe_key="responseId (else model and counts), message.timestamp",
    cost_field="message.usage.cost.total",
    cost_unit="USD",
    cost_basis="runtime_price; 0 on a remote provider is unknown",
)
