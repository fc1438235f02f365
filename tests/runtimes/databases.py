"""Fixture homes of runtimes that keep databases: built from their ``schema.sql`` in a folder of the test's own."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from collector.runtimes import Reader
from tests.runtimes.transcripts import HERE

RUNTIMES = ("cline", "opencode", "copilot", "exo", "goose", "devin", "cursor")
STORES = ("cline", "opencode", "copilot")
# What stands for a home beside ``home``: Exo's workspace, Cline's captured output, Goose's older schema.
BESIDE = {"exo": "workspace", "cline": "stream", "goose": "old"}


def reader(runtime: str) -> Reader:
    return importlib.import_module(f"collector.runtimes.{runtime}").READER


def build(runtime: str, folder: Path) -> list[Path]:
    """The homes of a runtime's fixture, databases built."""
    shutil.copytree(HERE / runtime, folder, dirs_exist_ok=True)
    for schema in folder.glob("*.sql"):
        script = schema.read_text()
        database = folder / script.split("sqlite3 ", 1)[1].split(" <", 1)[0]
        database.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(database)) as connection:
            connection.executescript(script)
        schema.unlink()
    return [home for home in (folder / "home", folder / BESIDE.get(runtime, "-")) if home.is_dir()]


def expected(folder: Path) -> dict[str, dict]:
    return {entry["session_id"]: entry for entry in json.loads((folder / "expected.json").read_text())["sessions"]}


def change(path: Path, *statements: str, parameters: tuple = ()) -> None:
    """Write into a store as its runtime would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous=OFF")
        for statement in statements:
            connection.execute(statement, parameters)


def snapshot(folder: Path) -> dict[str, tuple]:
    """Everything of a folder that reading must not change: names, sizes, times, bytes."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mtime_ns,
            path.lstat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


def texts(value: object) -> Iterator[str]:
    """All strings in nested JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)
