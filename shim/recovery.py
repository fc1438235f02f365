"""What a start does for processes that died: one line for each call they had in flight, each line that still waited.

Background responses whose end nobody has seen yet get no line: this process waits for them from now on.

A recovered line keeps the boot of the process that died and goes on with its ``seq``: calls get the numbers after the
last one issued, in the order of their slots, and a line that was under way keeps the number it had. So recovering the
same file twice, after a crash in between, gives the same ids; an id that the log holds already is not written again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from shim.background import Background, Record
from shim.counters import Counters
from shim.inflight import CALL, LINE, PENDING, SUFFIX, Left, left_in
from shim.line import ID, Line, Tokens, dump, encode, from_object, model_or_none
from shim.log import EventLog
from shim.sink import Sink

# Lines of a crash are near the end of the log: this much of it is searched for ids that are there already.
TAIL_BYTES: Final = 4 * 2**20
WHOLE_LINE: Final = re.compile(rb'^\{"v":1,"id":"([^"]{1,90})".*\}$', re.MULTILINE)
RESPONSE: Final = re.compile(rb'"response":"([^"]{1,64})"')
STALE_SECONDS: Final = 60.0


class Recovery:
    """One start's recovery of what is in ``folder``. ``vm``: this VM's name, as in ``Line``."""

    def __init__(
        self, folder: Path, sink: Sink, vm: str, counters: Counters, log: EventLog, background: Background
    ) -> None:
        self._folder = folder
        self._sink = sink
        self._vm = vm
        self._counters = counters
        self._log = log
        self._background = background
        self._ids: set[str] = set()  # of lines that are in the log, or wait for it
        self._responses: set[str] = set()  # that such lines are of

    def run(self) -> int:
        """Write the lines of every dead process's in-flight file, then remove it; how many lines.

        Files of processes that live are left alone. Responses are taken over when all lines are out, because another
        worker's line may be of one; files are removed when they are, so a start killed in between is no loss.
        """
        count, pending, files = 0, list[Record](), list[tuple[Path, int]]()
        for path in sorted(self._folder.glob("*" + SUFFIX)):
            fd = _take_over(path)
            if fd is None:
                continue
            files.append((path, fd))
            lines, waited_for = self._file(path, fd)
            count += lines
            pending += waited_for
        taken = self._background.take_over(pending, self._responses)
        if taken:
            self._log.info("background_taken_over", responses=taken)
        if self._background.durable or not (taken or self._sink.waiting):
            for path, fd in files:
                path.unlink(missing_ok=True)
                os.close(fd)
        # Else what is owed is only in memory: the files stay, and ours, for the next start.
        _sweep(self._folder)
        return count

    def _file(self, path: Path, fd: int) -> tuple[int, list[Record]]:
        """Write the lines that one file owes; how many, and what it waits for."""
        try:
            boot, issued, slots = left_in(os.pread(fd, os.fstat(fd).st_size, 0))
        except ValueError:
            self._log.warning("inflight_file_unreadable", file=path.name)
            path.rename(path.with_suffix(".unreadable"))
            return 0, []
        if slots:
            self._look_at_log()
        count = 0
        for kind, line_id, data in lines_left(boot, issued, slots, self._vm):
            if line_id not in self._ids:
                self._sink.put(data, 0)
                self._counters.recovered.add(kind)
                count += 1
            self._wrote(line_id.encode(), data)
        if count:
            self._log.warning("calls_recovered", boot=boot, lines=count)
        return count, pending_in(slots)

    def _look_at_log(self) -> None:
        """What whole lines near the end of the log say; nothing where it cannot be read."""
        with contextlib.suppress(OSError), self._sink.path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            for found in WHOLE_LINE.finditer(file.read(TAIL_BYTES)):
                self._wrote(found[1], found[0])

    def _wrote(self, line_id: bytes, line: bytes) -> None:
        self._ids.add(line_id.decode("ascii", "replace"))
        if response := RESPONSE.search(line):
            self._responses.add(response[1].decode("ascii", "replace"))


def recover(folder: Path, sink: Sink, vm: str, counters: Counters, log: EventLog, background: Background) -> int:
    """What a start does for the dead processes of ``folder``; how many lines it wrote."""
    return Recovery(folder, sink, vm, counters, log, background).run()


def interrupted(left: Left, seq: int, vm: str) -> bytes:
    """The line of a call that was in flight. Raises ``ValueError`` or ``TypeError`` for a slot that is not one."""
    runtime, upstream, wire, model, ts, session, source, stream = orjson.loads(left.payload)
    line = Line(
        id=f"{left.boot}-{seq}",
        ts=ts,
        vm=vm,
        runtime=runtime,
        upstream=upstream,
        wire=wire,
        model=model_or_none(model),
        session=session,
        session_source=source,
        response=None,
        tokens=Tokens(),
        usage="missing",
        outcome="interrupted",
        stream=stream,
    )
    return encode(line)


def as_it_stands(left: Left, seq: int) -> bytes:
    """The line of a background response that was about to be written. Raises ``ValueError``, ``TypeError`` or
    ``KeyError`` for a slot that does not hold one."""
    value = _record(left) | {"id": f"{left.boot}-{seq}"}
    return dump(value)


def lines_left(boot: str, issued: int, slots: list[Left], vm: str) -> Iterator[tuple[str, str, bytes]]:
    """Kind (``interrupted``, ``waiting``, ``background``), id and bytes of each line that a dead process owes, in order
    of ``seq``. Of a response that is still pending it owes none, unless its number was issued."""
    owed: list[tuple[int, str, str, bytes]] = []
    next_seq = issued
    for left in slots:
        seq = left.seq
        if left.state == PENDING and not seq:
            continue
        if not seq:
            next_seq += 1
            seq = next_seq
        try:
            if left.state == LINE:
                owed.append((seq, "waiting", _id_of(left.payload), left.payload))
            elif left.state == CALL:
                owed.append((seq, "interrupted", f"{boot}-{seq}", interrupted(left, seq, vm)))
            else:
                owed.append((seq, "background", f"{boot}-{seq}", as_it_stands(left, seq)))
        except (ValueError, TypeError, KeyError):
            continue  # killed while it stored the slot: the number stays missing, and is reported so
    for _, kind, line_id, data in sorted(owed, key=lambda entry: entry[0]):
        yield kind, line_id, data


def pending_in(slots: list[Left]) -> list[Record]:
    """The lines' JSON objects of the background responses that a dead process waited for."""
    found = []
    for left in slots:
        if left.state == PENDING and not left.seq:
            with contextlib.suppress(ValueError, TypeError, KeyError):  # killed while it stored the slot
                found.append(_record(left))
    return found


def _take_over(path: Path) -> int | None:
    """A locked descriptor of a dead process's file; ``None`` where its process lives or another start has it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_nlink:
            return fd
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.ENOLCK, errno.EIO):
            raise
    os.close(fd)
    return None


def _record(left: Left) -> Record:
    """The JSON object in a slot, which is a line's but for its id."""
    value: Record = orjson.loads(left.payload)
    if from_object(value | {"id": f"{left.boot}-1"}).response is None:
        raise ValueError("a background response without a reference")
    return value


def _id_of(payload: bytes) -> str:
    value: Any = orjson.loads(payload)["id"]
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise ValueError("a held line without an id")
    return value


def _sweep(folder: Path) -> None:
    """Remove files of starts that died before their file had its name."""
    for path in folder.glob("*.new"):
        try:
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()
        except OSError:
            continue  # another start was quicker
