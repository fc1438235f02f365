"""This suite is an interpreter of file actions: a log is written, rotated, cut, copied, compressed, moved and deleted
in random sequences, and the collector reads in between and is killed at every point of its loop. In the end the ledger
holds every line that a reader could have seen once, and what nobody could have seen is reported as missing.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.ingest_log import LogIngest
from collector.ingest_report import IngestReport, silent
from collector.ledger import LedgerError
from collector.ledger.sqlite import SqliteLedger
from collector.query import ALL_RECORDS
from shim.line import Tokens, encode
from tests.collector.worlds import ALLOWLIST, PRICED, PRICER, START, ZONE, line

ACTIONS = (
    "append", "append", "append_part", "append_torn", "rename", "copytruncate", "compress", "zstd", "delete", "copy",
    "move_disk", "snapshot", "restore", "read", "read", "crash",
)  # fmt: skip


class Disk:
    """One log folder, a writer that knows what it wrote, and a reader that may die."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.log = self.logs / "usage.jsonl"
        self.seq = 0
        self.rotations = 0
        self.pending = b""
        self.torn = 0
        self.lost: set[int] = set()
        self.saved: Path | None = None
        self.open()

    def open(self) -> None:
        self.ledger = SqliteLedger(self.folder / "ledger.db", ZONE)
        self.ingest = LogIngest(self.ledger, ALLOWLIST, PRICER, hold=True)

    def next_line(self) -> bytes:
        self.seq += 1
        return encode(line(self.seq, "picoclaw", START + self.seq, Tokens(self.seq, 0, 0, 0, 1, None), PRICED))

    def write(self, data: bytes) -> None:
        with self.log.open("ab") as file:
            file.write(data)

    def finish_line(self) -> None:
        """The writer never leaves a file in the middle of a line."""
        if self.pending:
            self.write(self.pending)
            self.pending = b""

    def append(self) -> None:
        self.finish_line()
        self.write(b"".join(self.next_line() for _ in range(3)))

    def append_part(self) -> None:
        self.finish_line()
        data = self.next_line()
        self.write(data[:40])
        self.pending = data[40:]

    def append_torn(self) -> None:
        self.finish_line()
        data = self.next_line()
        self.lost.add(self.seq)
        self.torn += 1
        self.write(data[:60] + b"\n")

    def rotated(self, suffix: str = "") -> Path:
        self.rotations += 1
        return self.logs / f"usage.jsonl-2026{self.rotations:04d}{suffix}"

    def rename(self) -> None:
        self.finish_line()
        if self.log.exists():
            self.log.rename(self.rotated())

    def copytruncate(self) -> None:
        self.finish_line()
        if self.log.exists():
            shutil.copy(self.log, self.rotated())
            os.truncate(self.log, 0)

    def compress(self) -> None:
        for path in self.plain_rotated():
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()

    def zstd(self) -> None:
        for path in self.plain_rotated():
            path.with_name(path.name + ".zst").write_bytes(zstandard.compress(path.read_bytes()))
            path.unlink()

    def plain_rotated(self) -> list[Path]:
        return [path for path in self.logs.iterdir() if path.suffix not in (".gz", ".zst") and path != self.log]

    def delete(self) -> None:
        """Delete the live log; what the collector has not read yet it still can, if it holds the file open."""
        self.finish_line()
        if self.log.exists():
            if self.log not in self.ingest._held or not self.is_held():
                self.read()
            self.log.unlink()
            self.read()

    def is_held(self) -> bool:
        return self.ingest._held[self.log].stamp().ino == self.log.stat().st_ino

    def copy(self) -> None:
        """The same log is shipped a second time."""
        self.finish_line()
        if self.log.exists():
            shutil.copy(self.log, self.rotated(".copy"))

    def move_disk(self) -> None:
        """Everything moves to another disk: new inodes, same content."""
        self.finish_line()
        moved = self.folder / "moved"
        shutil.copytree(self.logs, moved)
        shutil.rmtree(self.logs)
        moved.rename(self.logs)

    def snapshot(self) -> None:
        self.finish_line()
        self.saved = self.folder / "saved"
        shutil.rmtree(self.saved, ignore_errors=True)
        shutil.copytree(self.logs, self.saved)

    def restore(self) -> None:
        """The logs go back to the snapshot; what was written since was read before (or is gone for everybody)."""
        self.finish_line()
        if self.saved is not None:
            self.read()
            shutil.rmtree(self.logs)
            shutil.copytree(self.saved, self.logs)

    def read(self) -> None:
        self.ingest.read(self.log, IngestReport(), silent)

    def crash(self, steps: int) -> None:
        """Die in the middle of a pass, after so many steps of SQLite's machine, and start again."""
        self.ledger._db.set_progress_handler(lambda: 1, steps)
        with contextlib.suppress(sqlite3.OperationalError, LedgerError):
            self.read()
        self.ingest.close()
        self.ledger.close()
        self.open()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(1, 3000)), max_size=14))
def test_the_ledger_ends_equal_to_the_truth_whatever_happens_to_the_files(actions):
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder))
        for name, number in actions:
            if name == "crash":
                disk.crash(number)
            else:
                getattr(disk, name)()
        disk.finish_line()
        disk.read()
        read = sorted(int(entry.id.rpartition("-")[2]) for entry in disk.ledger.scan(ALL_RECORDS))
        assert read == [seq for seq in range(1, disk.seq + 1) if seq not in disk.lost]
        missing = {seq for gap in disk.ledger.gaps() for seq in range(gap.first_seq, gap.last_seq + 1)}
        damaged = {int(row.line.rpartition("-")[2]) for row in disk.ledger.quarantine(1000) if row.line}
        assert missing == {seq for seq in disk.lost if any(other > seq for other in read)} - damaged
        assert len({(row.path, row.offset) for row in disk.ledger.quarantine(1000)}) >= (1 if disk.torn else 0)
        disk.ingest.close()
        disk.ledger.close()
