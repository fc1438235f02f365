"""A runtime's database is read with its log, leaves no trace and cannot hurt the reader."""

import contextlib
import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import sqlite_ro
from collector.runtimes import SourceError
from collector.sqlite_ro import KnownIds, opened, picked, select, sidecars
from tests.runtimes.databases import snapshot

COUNT = "SELECT count(*) FROM t"


def count(path: Path) -> int:
    with opened(path) as database:
        return next(database.rows(COUNT))[0]


def rollback(path: Path, rows: int = 3) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data)")
        connection.executemany("INSERT INTO t (data) VALUES (?)", [(f'{{"n": {n}}}',) for n in range(rows)])
    return path


class Writer:
    """A runtime in a process of its own that keeps its WAL database open; ``die`` leaves -wal and -shm behind."""

    CODE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode=WAL")
connection.execute("PRAGMA wal_autocheckpoint=0")
connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, data)")
print("ready", flush=True)
for line in sys.stdin:
    connection.execute(line)
    print("done", flush=True)
"""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self.CODE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout.readline() == "ready\n"

    def run(self, statement: str) -> None:
        self._process.stdin.write(statement + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def die(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def writer(tmp_path):
    (tmp_path / "store").mkdir()
    running = Writer(tmp_path / "store" / "a.db")
    yield running
    running.die()


@pytest.fixture
def store(tmp_path) -> Path:
    return tmp_path / "store"


def test_rows_of_a_running_writer_are_all_seen_and_nothing_changes(writer, store):
    for number in range(5):
        writer.run("INSERT INTO t (data) VALUES ('x')")
        before = snapshot(store)
        assert count(store / "a.db") == number + 1
        assert snapshot(store) == before
    assert (store / "a.db").stat().st_size == 4096


def test_a_transaction_that_is_open_is_not_seen_and_does_not_block(writer, store):
    writer.run("INSERT INTO t (data) VALUES ('x')")
    writer.run("BEGIN IMMEDIATE")
    writer.run("INSERT INTO t (data) VALUES ('y')")
    started = time.monotonic()
    assert count(store / "a.db") == 1
    assert time.monotonic() - started < 1
    writer.run("COMMIT")
    assert count(store / "a.db") == 2


def test_a_reader_that_is_held_up_does_not_hold_up_the_writer(writer, store):
    writer.run("INSERT INTO t (data) VALUES ('x')")
    with opened(store / "a.db") as database:
        rows = database.rows("SELECT id FROM t")
        next(rows)
        writer.run("INSERT INTO t (data) VALUES ('y')")
        assert next(database.rows(COUNT))[0] in (1, 2)


@pytest.mark.parametrize("left", ["-wal and -shm", "-wal alone"])
def test_a_store_whose_writer_was_killed_is_read_from_its_log(writer, store, left):
    writer.run("INSERT INTO t (data) VALUES ('x')")
    writer.die()
    if left == "-wal alone":
        (store / "a.db-shm").unlink()
    before = snapshot(store)
    assert count(store / "a.db") == 1
    assert snapshot(store) == before


def test_a_closed_wal_store_is_read_in_place(tmp_path, monkeypatch):
    path = rollback(tmp_path / "a.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    monkeypatch.setattr(sqlite_ro, "_copied", None)
    before = snapshot(tmp_path)
    assert count(path) == 3
    assert snapshot(tmp_path) == before


def test_a_folder_that_may_not_be_written_to_is_read(writer, store):
    writer.run("INSERT INTO t (data) VALUES ('x')")
    writer.die()
    (store / "a.db-shm").unlink()
    store.chmod(0o500)
    try:
        assert count(store / "a.db") == 1
    finally:
        store.chmod(0o700)


def test_the_private_copy_is_closed_to_others_and_removed(writer, store, monkeypatch, tmp_path):
    monkeypatch.setattr(sqlite_ro.tempfile, "tempdir", str(tmp_path / "private"))
    (tmp_path / "private").mkdir()
    writer.run("INSERT INTO t (data) VALUES ('x')")
    writer.die()
    (store / "a.db-shm").unlink()
    with opened(store / "a.db") as database:
        (copy,) = (tmp_path / "private").iterdir()
        assert copy.stat().st_mode & 0o777 == 0o700
        assert "a.db-wal" in {path.name for path in copy.iterdir()}
        assert next(database.rows(COUNT))[0] == 1
    assert not list((tmp_path / "private").iterdir())


def test_a_journal_left_by_a_crash_is_rolled_back_in_the_copy_alone(tmp_path):
    path = rollback(tmp_path / "a.db", rows=3)
    code = (
        "import os,sqlite3,sys; c=sqlite3.connect(sys.argv[1],isolation_level=None);"
        "c.execute('PRAGMA cache_size=1'); c.execute('BEGIN');"
        "c.executemany('INSERT INTO t (data) VALUES (?)', [('x'*500,)]*2000); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert (tmp_path / "a.db-journal").stat().st_size
    before = snapshot(tmp_path)
    assert count(path) == 3
    assert snapshot(tmp_path) == before


def test_a_large_store_with_a_rollback_journal_is_read_in_place(tmp_path, monkeypatch):
    path = rollback(tmp_path / "a.db")
    monkeypatch.setattr(sqlite_ro, "COPY_FIRST", 0)
    monkeypatch.setattr(sqlite_ro, "_copied", None)
    before = snapshot(tmp_path)
    assert count(path) == 3
    assert snapshot(tmp_path) == before


def refused(path: Path) -> str:
    started = time.monotonic()
    with pytest.raises(SourceError) as caught:
        count(path)
    assert time.monotonic() - started < 3
    assert caught.value.path == path
    return caught.value.reason


def test_what_is_no_database_is_refused_with_a_reason(tmp_path):
    path = tmp_path / "a.db"
    assert "No such file" in refused(path)
    path.write_bytes(b"")
    assert refused(path) == "empty"
    path.write_bytes(b"not a database at all" * 100)
    assert refused(path) == "not an SQLite database"
    path.unlink()
    os.mkfifo(path)
    assert refused(path) == "not a regular file"
    path.unlink()
    path.mkdir()
    assert refused(path) == "not a regular file"


def test_a_link_out_of_the_home_is_refused(tmp_path):
    rollback(tmp_path / "elsewhere.db")
    (tmp_path / "a.db").symlink_to(tmp_path / "elsewhere.db")
    refused(tmp_path / "a.db")
    (tmp_path / "b.db-wal").symlink_to(tmp_path / "elsewhere.db")
    shutil.copy(tmp_path / "elsewhere.db", tmp_path / "b.db")
    with closing(sqlite3.connect(tmp_path / "c.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    shutil.copy(tmp_path / "c.db", tmp_path / "b.db")
    assert refused(tmp_path / "b.db") == "its -wal is not a regular file"


def test_a_fifo_in_place_of_a_log_does_not_block(writer, store):
    writer.run("INSERT INTO t (data) VALUES ('x')")
    writer.die()
    for suffix in ("-wal", "-shm"):
        (store / f"a.db{suffix}").unlink()
        os.mkfifo(store / f"a.db{suffix}")
        assert refused(store / "a.db").endswith("is not a regular file")


def test_a_truncated_store_is_refused_or_read_up_to_its_end(tmp_path):
    path = rollback(tmp_path / "a.db", rows=5000)
    whole = path.read_bytes()
    for size in (50, 100, 4096, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with contextlib.suppress(SourceError):
            assert 0 <= count(path) <= 5000


def test_a_locked_store_is_left_to_the_next_pass(tmp_path, monkeypatch):
    path = rollback(tmp_path / "a.db")
    monkeypatch.setattr(sqlite_ro, "COPY_FIRST", 0)
    with closing(sqlite3.connect(path, isolation_level=None)) as runtime:
        runtime.execute("BEGIN EXCLUSIVE")
        assert refused(path) == "locked by its runtime"
        runtime.execute("ROLLBACK")
    assert count(path) == 3


def test_a_store_too_large_to_copy_says_so(tmp_path, monkeypatch):
    path = rollback(tmp_path / "a.db")
    monkeypatch.setattr(sqlite_ro, "MAX_COPY", 10)
    assert refused(path) == "too large to copy (0 MiB)"


def test_a_store_that_never_stands_still_is_left_to_the_next_pass(tmp_path, monkeypatch):
    path = rollback(tmp_path / "a.db")
    copy, ticks = sqlite_ro._copy, itertools.count(1)

    def copy_while_it_is_written(part: Path, target: Path) -> None:
        copy(part, target)
        os.utime(path, ns=(0, next(ticks)))

    monkeypatch.setattr(sqlite_ro, "_copy", copy_while_it_is_written)
    assert refused(path) == "being written; the next pass reads it"
    assert next(ticks) > 2


def test_a_statement_that_finds_nothing_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_ro, "MAX_SILENCE_SECONDS", 0.2)
    path = rollback(tmp_path / "a.db")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0"
    with pytest.raises(SourceError), opened(path) as database:
        list(database.rows(endless))


def test_a_view_or_virtual_table_is_no_table(tmp_path):
    path = rollback(tmp_path / "a.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE VIEW message AS SELECT * FROM t")
        connection.execute("CREATE VIRTUAL TABLE session USING fts5(content)")
    with opened(path) as database:
        assert database.columns("message") == database.columns("session") == database.columns("none") == frozenset()
        assert database.columns("t") == {"id", "data"}


def test_an_error_never_quotes_what_is_stored(tmp_path):
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (data)")
        connection.execute("INSERT INTO t VALUES (CAST(? AS TEXT))", (b"secret \xff prompt",))
        connection.execute("INSERT INTO t VALUES ('{secret')")
    with pytest.raises(SourceError) as caught, opened(path) as database:
        list(database.rows("SELECT json_extract(data, '$.a') FROM t"))
    assert "secret" not in str(caught.value)
    with opened(path) as database:
        assert "\ufffd" in next(database.rows("SELECT data FROM t"))[0]


def test_broken_json_gives_null_and_missing_columns_give_null(tmp_path):
    path = rollback(tmp_path / "a.db", rows=1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO t (data) VALUES ('{'), (X'7B226E223A377D'), (?)", ("[" * 5000,))
    with opened(path) as database:
        rows = list(database.rows(f"SELECT {picked('data', '$.n', '$.m')} FROM t"))
        assert rows == [("[0,null]",), (None,), ("[7,null]",), (None,)]
        assert next(database.rows(select("t", ("id", "later"), database.columns("t")))) == (1, None)


def test_sidecars_are_those_that_hold_rows(writer, store):
    writer.run("INSERT INTO t (data) VALUES ('x')")
    assert sidecars(store / "a.db") == (store / "a.db-wal",)


def test_known_ids_follow_the_file(writer, store):
    known = KnownIds("t", "id")
    assert known.of(store / "none.db") == frozenset()
    writer.run("INSERT INTO t (data) VALUES ('x')")
    assert known.of(store / "a.db") == {"1"}
    writer.run("INSERT INTO t (data) VALUES ('y')")
    assert known.of(store / "a.db") == {"1", "2"}
    (store / "b.db").write_text("no database")
    assert known.of(store / "b.db") == frozenset()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_damage_of_a_file_gets_out_as_anything_but_a_source_error(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    path = rollback(folder / "a.db", rows=200)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    try:
        with opened(path) as database:
            if {"id", "data"} <= database.columns("t"):
                list(database.rows(f"SELECT id, {picked('data', '$.n')} FROM t"))
    except SourceError:
        pass
