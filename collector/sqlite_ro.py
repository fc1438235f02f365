"""A runtime's SQLite database, read with its write-ahead log and without leaving a trace in its folder.

A database in WAL mode may be a 4 KB main file with every row in ``-wal``: ``immutable=1`` and a copy of the main file
alone read it as empty, and a plain ``mode=ro`` connection creates or changes ``-shm``. What happens here instead:

=====================================  ==============================================================================
WAL mode, ``-shm`` present             ``mode=ro&readonly_shm=1``: its read lock is honoured, nothing is written
WAL mode, nothing in ``-wal``          ``immutable=1``: the main file is complete
rollback journal, more than 64 MiB     ``mode=ro``
anything else                          a private copy (0700) of the main file and ``-wal`` or ``-journal``
=====================================  ==============================================================================

A small database with a rollback journal is copied so that no lock of ours is ever in its runtime's way. A file that
changes while it is copied is tried again and then left to the next pass. https://www.sqlite.org/wal.html#readonly
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from collector.jsonl import open_file
from collector.runtimes import SourceError

MAGIC: Final = b"SQLite format 3\x00"
COPY_FIRST: Final = 64 * 2**20
MAX_COPY: Final = 8 * 2**30
BUSY_SECONDS: Final = 0.5
# A statement that finds no row for this long is stopped: a damaged or hostile file must not hold up other sources.
MAX_SILENCE_SECONDS: Final = 300.0
_BLOCK: Final = 2**20

# SQLite's own messages can quote a column's text, so only these and the names of error codes leave this module.
REASONS: Final = {
    "SQLITE_NOTADB": "not an SQLite database",
    "SQLITE_CORRUPT": "damaged",
    "SQLITE_BUSY": "locked by its runtime",
    "SQLITE_LOCKED": "locked by its runtime",
    "SQLITE_INTERRUPT": f"no row found in {MAX_SILENCE_SECONDS:.0f} s",
}
NO_DATABASE: Final = frozenset({"empty", REASONS["SQLITE_NOTADB"], REASONS["SQLITE_CORRUPT"]})


class Database:
    """An open database of a runtime: its real tables and their rows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._deadline = 0.0
        # Text that is not UTF-8 is damage in content nobody reads; the default would quote it in an exception.
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA query_only=ON")
        connection.set_progress_handler(self._is_late, 1_000_000)

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def columns(self, table: str) -> frozenset[str]:
        """Column names of an ordinary table; empty where it is missing, a view or virtual (or not yet migrated to)."""
        ordinary = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? AND sql LIKE 'CREATE TABLE%'"
        if not any(self.rows(ordinary, (table,))):
            return frozenset()
        return frozenset(row[0] for row in self.rows("SELECT name FROM pragma_table_info(?)", (table,)))

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of one statement, one at a time."""
        self._deadline = time.monotonic() + MAX_SILENCE_SECONDS
        for row in self._connection.execute(sql, parameters):
            yield row
            self._deadline = time.monotonic() + MAX_SILENCE_SECONDS


def select(table: str, wanted: tuple[str, ...], present: frozenset[str], rest: str = "") -> str:
    """``SELECT`` of the wanted columns in that order, NULL for those that this version of the table lacks."""
    fields = ", ".join(f'"{column}"' if column in present else "NULL" for column in wanted)
    return f'SELECT {fields} FROM "{table}" {rest}'  # noqa: S608  # names are constants of the readers


def picked(column: str, *paths: str) -> str:
    """An SQL expression: the JSON array of the values at these paths, NULL where the column is no JSON.

    The rest of the document, and with it all content, stays inside SQLite.
    """
    text = f"CAST({column} AS TEXT)"
    wanted = ", ".join(f"'{path}'" for path in paths)
    return f"CASE WHEN json_valid({text}) THEN json_extract({text}, {wanted}) END"


class KnownIds:
    """The ids in one column of a database, remembered as long as its files have not changed.

    For stores that keep a session twice: the second form counts only where the database lacks the session, or what was
    there before it had: ``since`` is the column of which each id's smallest value is wanted.
    """

    def __init__(self, table: str, column: str, since: str | None = None) -> None:
        self._table, self._column, self._since = table, column, since
        self._found: dict[Path, tuple[list[Any], dict[str, Any]]] = {}

    def of(self, path: Path) -> Set[str]:
        """The ids; none where there is no such database or table. Raises ``SourceError`` where it is locked or busy."""
        return self.since(path).keys()

    def since(self, path: Path) -> Mapping[str, Any]:
        """As ``of``, with the smallest value of each."""
        if _size(path) is None:
            return {}
        stamp = [(part, _stamp(part)) for part in (path, *sidecars(path))]
        if (found := self._found.get(path)) is not None and found[0] == stamp:
            return found[1]
        try:
            with opened(path) as database:
                ids = dict(self._rows(database))
        except SourceError as error:
            if error.reason not in NO_DATABASE:
                raise
            ids = {}
        self._found[path] = (stamp, ids)
        return ids

    def _rows(self, database: Database) -> Iterator[tuple[str, Any]]:
        if present := database.columns(self._table):
            value = f'min("{self._since}")' if self._since in present else "NULL"
            # The names are constants of the readers.
            sql = f'SELECT "{self._column}", {value} FROM "{self._table}" GROUP BY 1'  # noqa: S608
            yield from ((str(row[0]), row[1]) for row in database.rows(sql))


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """The database at ``path``, for reading in the ``with`` block.

    Raises ``SourceError`` for what is no regular file, no database, damaged, locked or too large to copy; also for an
    SQLite error inside the block.
    """
    with ExitStack() as stack:
        try:
            connection = _in_place(path) or _connect(stack.enter_context(_copied(path)), "mode=rw")
            stack.callback(connection.close)
            yield Database(connection)
        except sqlite3.Error as error:
            raise SourceError(path, _reason(error)) from None
        except UnicodeError:
            # The message about a damaged schema quotes it.
            raise SourceError(path, REASONS["SQLITE_CORRUPT"]) from None
        except OSError as error:
            raise SourceError(path, error.strerror or "cannot be read") from error


def sidecars(path: Path) -> tuple[Path, ...]:
    """The files beside a database that hold rows of it, where they exist: parts of the same source."""
    beside = (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))
    return tuple(file for file in beside if _size(file))


def _in_place(path: Path) -> sqlite3.Connection | None:
    """A connection to the file itself, ``None`` where a copy is needed."""
    for options in _ways(path, _is_wal(path)):
        try:
            return _connect(path, options)
        except sqlite3.OperationalError as error:
            # -shm went away, may not be read or holds no lock slot that a reader may use.
            if not _code(error).startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
                raise
    return None


def _connect(path: Path, options: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?{options}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _code(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", type(error).__name__)


def _reason(error: sqlite3.Error) -> str:
    code = _code(error)
    return REASONS.get("_".join(code.split("_")[:2]), f"SQLite says {code}")


def _ways(path: Path, wal: bool) -> Iterator[str]:
    """How the file may be opened in place, best first."""
    if not wal:
        if not _size(path.with_name(path.name + "-journal")) and (_size(path) or 0) > COPY_FIRST:
            yield "mode=ro"
        return
    if _size(path.with_name(path.name + "-shm")):
        yield "mode=ro&readonly_shm=1"
    if not _size(path.with_name(path.name + "-wal")):
        yield "mode=ro&immutable=1"


def _is_wal(path: Path) -> bool:
    """Whether the header says WAL. Raises ``SourceError`` for a file that cannot be a database."""
    for suffix in ("-wal", "-shm", "-journal"):
        beside = path.with_name(path.name + suffix)
        if os.path.lexists(beside) and not stat.S_ISREG(os.lstat(beside).st_mode):
            # SQLite would follow a link and wait for a FIFO.
            raise SourceError(path, f"its {suffix} is not a regular file")
    descriptor = open_file(path)
    try:
        header = os.pread(descriptor, 100, 0)
    finally:
        os.close(descriptor)
    if not header.startswith(MAGIC) or len(header) < 100:
        raise SourceError(path, "empty" if not header else REASONS["SQLITE_NOTADB"])
    return header[18] == 2


def _size(path: Path) -> int | None:
    try:
        return os.lstat(path).st_size
    except OSError:
        return None


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """A private copy of the main file and its log, as they are between two writes of their runtime."""
    parts = (path, *sidecars(path))
    size = sum(_size(part) or 0 for part in parts)
    with tempfile.TemporaryDirectory(prefix="vm-usage-") as folder:
        if size > min(MAX_COPY, shutil.disk_usage(folder).free // 2):
            raise SourceError(path, f"too large to copy ({size // 2**20} MiB)")
        for _ in range(5):
            before = _states(path)
            for part in (path, *sidecars(path)):
                _copy(part, Path(folder, part.name))
            if _states(path) == before:
                yield Path(folder, path.name)
                return
            time.sleep(0.05)
    raise SourceError(path, "being written; the next pass reads it")


def _states(path: Path) -> list[tuple[Any, ...]]:
    """Tells whether a copy is whole: times, and the heads of the files, where SQLite counts its transactions.

    A write-ahead log that only grew ends in a frame that SQLite ignores, so its head is enough.
    """
    states: list[tuple[Any, ...]] = []
    for part in (path, *sidecars(path)):
        descriptor = open_file(part)
        try:
            status = os.fstat(descriptor)
            log = part.name.endswith("-wal")
            states.append(
                (
                    part,
                    os.pread(descriptor, 32 if log else 100, 0),
                    *(() if log else (status.st_size, status.st_mtime_ns)),
                )
            )
        finally:
            os.close(descriptor)
    return states


def _copy(part: Path, target: Path) -> None:
    source = open_file(part)
    try:
        with open(target, "wb") as file:
            while data := os.read(source, _BLOCK):
                file.write(data)
    finally:
        os.close(source)
