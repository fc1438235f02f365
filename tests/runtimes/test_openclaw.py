"""OpenClaw: profiles beside the default state folder, and turns that another program on the machine recorded."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from collector.runtimes import SourceError
from collector.runtimes.openclaw import READER
from collector.stores import stores
from tests.runtimes.transcripts import read_home, total, write

HEADER = {"type": "session", "version": 4, "timestamp": "2026-11-30T20:21:49.863Z"}


def answer(number: int, provider: str = "acme", **more: object) -> dict:
    usage = {"input": 100 * number, "output": 5, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0}}
    message = {"role": "assistant", "provider": provider, "model": "m-1", "usage": usage, "timestamp": 1796070110000}
    return {"type": "message", "timestamp": "2026-11-30T20:21:50.633Z", "message": message | more}


def session(home: Path, root: str, name: str, *answers: dict) -> None:
    write(home / root / "agents/main/sessions" / f"{name}.jsonl", HEADER | {"id": name}, *answers)


def test_profiles_have_state_folders_of_their_own_beside_the_default_one(tmp_path):
    session(tmp_path, ".openclaw", "default", answer(1))
    session(tmp_path, ".openclaw-dev", "dev", answer(2))
    session(tmp_path, ".clawdbot-work", "work", answer(3))
    read = read_home(READER, tmp_path)
    assert [total(read.of(name), "input_tokens") for name in ("default", "dev", "work")] == [100, 200, 300]
    folders = {store.folder for store in stores(tmp_path, ["openclaw"])}
    assert folders >= {".openclaw/agents", ".openclaw-dev/agents", ".clawdbot-work/agents"}


def test_a_copy_of_a_state_folder_counts_nothing_again(tmp_path):
    session(tmp_path, ".openclaw", "default", answer(1))
    session(tmp_path, ".openclaw-backup", "default", answer(1))
    assert total(read_home(READER, tmp_path).records.values(), "input_tokens") == 100


def test_the_state_folder_may_be_named_as_its_first_versions_did(tmp_path):
    session(tmp_path, "elsewhere", "moved", answer(1))
    for variable in ("OPENCLAW_STATE_DIR", "CLAWDBOT_STATE_DIR"):
        read = read_home(READER, tmp_path, {variable: str(tmp_path / "elsewhere")})
        assert total(read.of("moved"), "input_tokens") == 100


@pytest.mark.parametrize("provider", ["claude-cli", "codex-cli", "google-gemini-cli", "anthropic"])
def test_a_turn_that_a_cli_made_is_left_to_the_record_of_that_cli(tmp_path, provider):
    own = [answer(2, "anthropic", api="anthropic-messages"), answer(3, "google-gemini-cli", api="google-gemini-cli")]
    session(tmp_path, ".openclaw", "s", answer(1, provider, api="cli"), *own)
    read = read_home(READER, tmp_path)
    assert (total(read.of("s"), "input_tokens"), read.skipped) == (500, {"delegated": 1})


def test_a_turn_of_a_cli_that_nothing_else_is_read_of_counts(tmp_path):
    session(tmp_path, ".openclaw", "s", answer(1, "my-cli", api="cli"))
    assert total(read_home(READER, tmp_path).of("s"), "input_tokens") == 100


@pytest.mark.parametrize("backwards", [False, True])
def test_what_was_cut_from_a_transcript_counts_by_the_copy_that_was_put_aside(tmp_path, backwards):
    """``sessions.compact`` keeps the last lines of a transcript and puts the whole of it aside."""
    session(tmp_path, ".openclaw", "s", answer(1), answer(2))
    path = tmp_path / ".openclaw/agents/main/sessions/s.jsonl"
    aside = path.with_name("s.jsonl.bak.2026-11-30T20-30-00.000Z")
    path.rename(aside)
    path.write_text(aside.read_text().splitlines(keepends=True)[-1])
    read = read_home(READER, tmp_path, backwards=backwards)
    assert (total(read.of("s"), "input_tokens"), set(read.sessions)) == (300, {"s"})


@pytest.mark.parametrize("folder", ["sessions", "agents/main/session-sqlite-import-archive"])
def test_transcripts_count_where_older_versions_kept_and_newer_ones_leave_them(tmp_path, folder):
    """Beside the agents before there were several; put aside once their rows are in the database."""
    write(tmp_path / ".openclaw" / folder / "s.jsonl", HEADER | {"id": "s"}, answer(1))
    session(tmp_path, ".openclaw", "s", answer(1), answer(2))
    assert total(read_home(READER, tmp_path).of("s"), "input_tokens") == 300
    (tmp_path / ".openclaw/agents/main/sessions/s.jsonl").unlink()
    assert total(read_home(READER, tmp_path).of("s"), "input_tokens") == 100


def test_a_folder_of_transcripts_that_is_a_link_out_of_the_home_is_reported_not_read(tmp_path):
    home, outside = tmp_path / "home", tmp_path / "outside"
    session(outside, ".openclaw", "s", answer(1))
    for link in (".openclaw/agents/main/sessions", ".clawdbot/sessions"):
        (home / link).parent.mkdir(parents=True)
        (home / link).symlink_to(outside / ".openclaw/agents/main/sessions")
    database(outside)
    (home / ".openclaw/agents/main/agent").symlink_to(outside / ".openclaw/agents/main/agent")
    sources = list(READER.sources(home, {}))
    assert len(sources) == 2
    for source in sources:
        with pytest.raises(SourceError):
            list(READER.read(source, None))


def cold(name: str, *entries: dict) -> bytes:
    """A transcript as cold storage packs it: rows of the database, a record a line."""
    rows = [{"seq": seq, "event_json": json.dumps(entry), "created_at": 0} for seq, entry in enumerate(entries)]
    records = [
        {"kind": "header", "version": 1, "sessionId": name, "generation": "g"},
        *({"kind": "event", "row": row} for row in rows),
        {"kind": "identity", "row": {"event_id": "e", "seq": 1, "created_at": 0}},
        {"kind": "fts", "row": {"text": "a question", "role": "user"}},
    ]
    return zstandard.compress("".join(json.dumps(record) + "\n" for record in records).encode())


def database(home: Path) -> Path:
    path = home / ".openclaw/agents/main/agent/openclaw-agent.sqlite"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT, event_zstd)")
        connection.execute(
            "CREATE TABLE session_transcript_cold_archives"
            " (session_id TEXT, archive_name TEXT, storage TEXT, archive_blob BLOB)"
        )
    return path


@pytest.mark.parametrize("storage", ["file", "sqlite"])
def test_a_session_in_cold_storage_counts_whether_or_not_it_was_seen_before(tmp_path, storage):
    """Sessions that rest for long leave the database for a file, or for a blob where a backup was restored."""
    entries = [HEADER | {"id": "s"}, answer(1), answer(2)]
    path = database(tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = [("s", seq, json.dumps(entry)) for seq, entry in enumerate(entries)]
        connection.executemany("INSERT INTO transcript_events VALUES (?, ?, ?, NULL)", rows)
    read = read_home(READER, tmp_path)
    want = read.facts()
    assert total(read.of("s"), "input_tokens") == 300
    packed, name = cold("s", *entries), "a" * 64 + ".jsonl.zst"
    if storage == "file":
        (tmp_path / ".openclaw/agents/main/sessions/cold").mkdir(parents=True)
        (tmp_path / ".openclaw/agents/main/sessions/cold" / name).write_bytes(packed)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM transcript_events")
        blob = packed if storage == "sqlite" else None
        connection.execute("INSERT INTO session_transcript_cold_archives VALUES ('s', ?, ?, ?)", (name, storage, blob))
    for source in READER.sources(tmp_path, {}):
        read.take(READER, source)
    assert read.facts() == want == read_home(READER, tmp_path).facts()
    assert set(read.sessions) == {"s"}
