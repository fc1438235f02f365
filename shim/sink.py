"""The log's writer: one line, one ``write(2)``, on a file opened for append. Never raises, never waits, never syncs.

Before each write the path is looked at: a log that was rotated, deleted or moved is opened anew, so no signal and no
copytruncate is needed. Lines that follow each other within two milliseconds share that look, which costs as much as
the write: where hundreds a second are written, a few more may go to the log that was renamed in between, which readers
follow, or be lost with one that was deleted. A line gets its id as it is taken, so ``seq`` has no holes but lost lines.

What cannot be written (full, read-only, gone, no permission, I/O error) waits in memory, and in its in-flight slot, in
order and within a bound; ``flush`` tries again. Past the bound the newest lines are lost and counted.

A write cut short leaves part of a line. Its rest is appended next if the log still ends there; else the line is written
again after a newline, as is any line after a torn end that this process did not make, so no two lines are ever glued.
Between the look and the write another worker may tear its line: that line and ours are then one quarantined line, and
the gap in ``seq`` says so.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from shim.counters import Counters
from shim.ids import Boot
from shim.inflight import NO_SLOT, Inflight
from shim.line import Line, LineError, as_object, dump
from shim.log import EventLog

SPOOL_LINES: Final = 10_000
SPOOL_BYTES: Final = 8 * 2**20
# A flush writes at most this many lines at a time (well under a millisecond), so that calls go on.
FLUSH_LINES: Final = 200
QUIET_SECONDS: Final = 60.0
# How long one look at the path holds. The size is asked for each time all the same, of the open file.
LOOK_SECONDS: Final = 0.002
FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Sink:
    """Appends lines to the log at ``path``. ``write``: as ``os.write``; ``look_seconds``: how long a look holds."""

    def __init__(
        self,
        path: Path,
        boot: Boot,
        inflight: Inflight,
        counters: Counters,
        log: EventLog,
        *,
        spool_lines: int = SPOOL_LINES,
        spool_bytes: int = SPOOL_BYTES,
        write: Callable[[int, bytes], int] = os.write,
        look_seconds: float = 0.0,
    ) -> None:
        self.path = path
        self._path = os.fspath(path)
        self._boot = boot
        self._inflight = inflight
        self._counters = counters
        self._log = log
        self._spool: deque[tuple[bytes, int]] = deque()
        self._spooled_bytes = 0
        self._spool_lines = spool_lines
        self._spool_bytes = spool_bytes
        self._write = write
        self._fd = -1
        self._look_seconds = look_seconds
        self._look_until = 0.0
        self._file = (0, 0)  # device and inode of the open log
        self._end = -1  # size of the log after our last write; another size means somebody else wrote or cut
        self._rest = b""  # what a short write left out of the line at the spool's head
        self.trouble: str | None = None
        self._trouble_since = 0.0
        self._trouble_said = False
        self._quiet_until = 0.0

    @property
    def waiting(self) -> int:
        """Lines in the spool."""
        return len(self._spool)

    def append(self, line: Line, slot: int = NO_SLOT) -> str:
        """Write ``line`` or keep it until it can be written; gives ``slot`` back once it is in the log.

        Returns the id it got; ``line.id`` is not looked at.
        """
        return self.append_object(as_object(line), slot)

    def append_object(self, value: dict[str, Any], slot: int = NO_SLOT) -> str:
        """``append`` for a line's JSON object, as ``as_object`` makes it; its ``id`` is set here."""
        line_id = value["id"] = self._boot.next()
        self._inflight.issue(slot, self._boot.issued)
        try:
            data = dump(value)
        except (LineError, TypeError, ValueError) as error:
            self._drop(slot, getattr(error, "reason", "encode"))
            return line_id
        self.put(data, self._boot.issued, slot)
        return line_id

    def put(self, data: bytes, seq: int, slot: int = NO_SLOT) -> None:
        """Write an encoded line that has its id already."""
        if self._spool:
            self.flush()
        if not self._spool and self._put(data):
            self._written(slot)
        elif len(self._spool) >= self._spool_lines or self._spooled_bytes + len(data) > self._spool_bytes:
            self._drop(slot, "spool_full")
        else:
            self._spool.append((data, self._inflight.hold(slot, seq, data)))
            self._spooled_bytes += len(data)
            self._counters.lines_spooled.add()

    def flush(self, limit: int = FLUSH_LINES) -> int:
        """Write up to ``limit`` waiting lines in order, until one fails; how many still wait."""
        for _ in range(min(limit, len(self._spool))):
            data, slot = self._spool[0]
            if not self._put(data):
                break
            self._spool.popleft()
            self._spooled_bytes -= len(data)
            self._written(slot)
        return len(self._spool)

    def close(self) -> int:
        """Write what waits; how many lines could not be written. Those stay in their slots for the next start."""
        left = self.flush(len(self._spool))
        self._close_file()
        return left

    def _put(self, data: bytes) -> bool:
        """Whether ``data`` is in the log, whole."""
        try:
            size = self._look()
            if size != self._end or self._rest:
                data = self._mended(data, size)
            written = self._write(self._fd, data)
        except OSError as error:
            self._failed(error.errno or errno.EIO)
            return False
        self._end = size + written
        self._rest = data[written:]
        if self._rest:
            self._failed(errno.ENOSPC)
            return False
        if self.trouble is not None:
            self._recovered()
        return True

    def _look(self) -> int:
        """The size of the log at our path, which is open afterwards."""
        if self._fd >= 0:
            now = time.monotonic()
            if now < self._look_until:
                return os.lseek(self._fd, 0, os.SEEK_END)
            try:
                found = os.stat(self._path)
                if (found.st_dev, found.st_ino) == self._file:
                    self._look_until = now + self._look_seconds
                    return found.st_size
            except FileNotFoundError:
                pass
            self._close_file()
        return self._open()

    def _open(self) -> int:
        fd = _open_log(self._path)
        now = os.fstat(fd)
        if not stat.S_ISREG(now.st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "the log is not a regular file")
        self._fd = fd
        self._file = (now.st_dev, now.st_ino)
        self._end = -1
        self._rest = b""
        return now.st_size

    def _mended(self, data: bytes, size: int) -> bytes:
        """What to append so that ``data`` becomes a line of its own, given the log's size now."""
        if self._rest and size == self._end:
            return self._rest
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            return b"\n" + data
        return data

    def _written(self, slot: int) -> None:
        self._inflight.end(slot)
        self._counters.lines_written.add()

    def _drop(self, slot: int, reason: str) -> None:
        self._inflight.end(slot)
        self._counters.lines_dropped.add(reason)
        if self._counters.lines_dropped.total == 1:
            self._log.error("line_dropped", reason=reason)

    def _failed(self, code: int) -> None:
        """Count a failed write; say the trouble once, and a disk that is full now and then once a minute."""
        error = errno.errorcode.get(code, str(code))
        self._counters.log_errors.add(error)
        now = time.monotonic()
        if self.trouble is None:
            self._trouble_since = now
        if self.trouble == error:
            return
        self.trouble = error
        self._trouble_said = now >= self._quiet_until
        if self._trouble_said:
            self._quiet_until = now + QUIET_SECONDS
            self._log.warning("log_write_failed", path=self._path, error=error)

    def _recovered(self) -> None:
        self.trouble = None
        if self._trouble_said:
            seconds = round(time.monotonic() - self._trouble_since, 1)
            self._log.warning("log_write_recovered", path=self._path, seconds=seconds, waiting=len(self._spool))

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._look_until = 0.0


def _open_log(path: str) -> int:
    """A descriptor of the log, made with mode 0640 whatever the umask, and its folders where that is allowed."""
    try:
        return os.open(path, FLAGS)
    except FileNotFoundError:
        pass
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, mode=0o750, exist_ok=True)
    try:
        fd = os.open(path, FLAGS | os.O_CREAT | os.O_EXCL, 0o640)
    except FileExistsError:
        return os.open(path, FLAGS)
    os.fchmod(fd, 0o640)
    return fd
