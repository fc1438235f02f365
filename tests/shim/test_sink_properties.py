"""Any sequence of appends, faults, rotations and other writers: what is in the files and what was lost make up what was
appended, in order, with no two lines glued.

The suite is an interpreter of actions on one log; Hypothesis writes the programs.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shim.counters import Counters
from shim.ids import Boot
from shim.inflight import Inflight
from shim.sink import Sink
from tests.shim.lines import CALL, LINE, Disk, Events, read_log

SPOOL_LINES = 12
FAULTS = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO)


class LogUnderDamage(RuleBasedStateMachine):
    """One sink, one log, and everything that ever stood in a file of its name."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "log" / "usage.jsonl"
        self.disk = Disk()
        self.counters = Counters()
        self.boot = Boot()
        self.inflight = Inflight(self.folder / "state", self.boot, self.counters)
        self.sink = Sink(
            self.path,
            self.boot,
            self.inflight,
            self.counters,
            Events(),
            spool_lines=SPOOL_LINES,
            write=self.disk.write,
        )
        self.appended: list[str] = []
        self.gone: list[bytes] = []
        self.foreign = 0

    @rule(count=st.integers(1, 8))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.appended.append(self.sink.append(LINE, self.inflight.begin(*CALL)))

    @rule(room=st.integers(0, 1500))
    def fill(self, room: int) -> None:
        self.disk.room = room

    @rule()
    def free(self) -> None:
        self.disk.room = None
        self.disk.error = 0

    @rule(code=st.sampled_from(FAULTS))
    def fail(self, code: int) -> None:
        self.disk.error = code

    @rule()
    def flush(self) -> None:
        self.sink.flush()

    @rule(how=st.sampled_from(("rename", "delete", "copytruncate", "folder")))
    def rotate(self, how: str) -> None:
        if not self.path.exists():
            return
        self.gone.append(self.path.read_bytes())
        if how == "copytruncate":
            os.truncate(self.path, 0)
        elif how == "rename":
            self.path.replace(self.path.with_suffix(".1"))
        elif how == "delete":
            self.path.unlink()
        else:
            self.path.parent.rename(self.folder / f"moved-{len(self.gone)}")

    @rule(torn=st.booleans())
    def another_writer(self, torn: bool) -> None:
        """Another worker, whose line is whole or cut short; it too never glues its line to a torn end."""
        if not self.path.exists():
            return
        before = self.path.read_bytes()
        lead = b"\n" if before and not before.endswith(b"\n") else b""
        with self.path.open("ab") as other:
            other.write(lead + (b'{"v":1,"id":"x' if torn else b'{"v":2}\n'))
        self.foreign += not torn

    @invariant()
    def the_spool_keeps_its_bound(self) -> None:
        assert self.sink.waiting <= SPOOL_LINES

    def teardown(self) -> None:
        self.free()
        assert self.sink.close() == 0
        current = self.path.read_bytes() if self.path.exists() else b""
        found, refused = [], []
        for data in (*self.gone, current):
            lines, reasons = read_log(data)
            found += [line.id for line in lines]
            refused += reasons
        lost = self.counters.lines_dropped.total
        assert [line_id for line_id in self.appended if line_id in set(found)] == found
        assert len(found) + lost == len(self.appended) == self.boot.issued
        assert refused.count("version") == self.foreign
        assert self.inflight.used == 0
        self.inflight.close()
        shutil.rmtree(self.folder)


LogUnderDamage.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestLogUnderDamage = LogUnderDamage.TestCase
