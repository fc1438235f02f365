"""What a start does for processes that died: one line for each call they had in flight, each line that still waited.

A recovered line keeps the boot of the process that died and goes on with its ``seq``: calls get the numbers after the
last one issued, in the order of their slots, and a line that was under way keeps the number it had. So recovering the
same file twice, after a crash in between, gives the same ids; an id that the log holds already is not written again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from shim.counters import Counters
from shim.inflight import LINE, SUFFIX, Left, left_in
from shim.line import ID, Line, Tokens, encode, model_or_none
from shim.log import EventLog
from shim.sink import Sink

# Lines of a crash are near the end of the log: this much of it is searched for ids that are there already.
TAIL_BYTES: Final = 4 * 2**20
WHOLE_LINE_ID: Final = re.compile(rb'^\{"v":1,"id":"([^"]{1,90})".*\}$', re.MULTILINE)
STALE_SECONDS: Final = 60.0


def recover(folder: Path, sink: Sink, vm: str, counters: Counters, log: EventLog) -> int:
    """Write the lines of every dead process's in-flight file in ``folder``, then remove it; how many lines.

    Files of processes that live are left alone. ``vm``: this VM's name, as in ``Line``.
    """
    written: set[str] = set()
    count = 0
    for path in sorted(folder.glob("*" + SUFFIX)):
        fd = _take_over(path)
        if fd is None:
            continue
        try:
            count += _recover_file(path, fd, sink, vm, counters, log, written)
        finally:
            os.close(fd)
    _sweep(folder)
    return count


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


def lines_left(boot: str, issued: int, slots: list[Left], vm: str) -> Iterator[tuple[str, str, bytes]]:
    """Kind (``interrupted``, ``waiting``), id and bytes of each line that a dead process owes, in order of ``seq``."""
    owed: list[tuple[int, str, str, bytes]] = []
    next_seq = issued
    for left in slots:
        seq = left.seq
        if not seq:
            next_seq += 1
            seq = next_seq
        try:
            if left.state == LINE:
                owed.append((seq, "waiting", _id_of(left.payload), left.payload))
            else:
                owed.append((seq, "interrupted", f"{boot}-{seq}", interrupted(left, seq, vm)))
        except (ValueError, TypeError, KeyError):
            continue  # killed while it stored the slot: the number stays missing, and is reported so
    for _, kind, line_id, data in sorted(owed, key=lambda entry: entry[0]):
        yield kind, line_id, data


def _recover_file(
    path: Path, fd: int, sink: Sink, vm: str, counters: Counters, log: EventLog, written: set[str]
) -> int:
    try:
        boot, issued, slots = left_in(os.pread(fd, os.fstat(fd).st_size, 0))
    except ValueError:
        log.warning("inflight_file_unreadable", file=path.name)
        path.rename(path.with_suffix(".unreadable"))
        return 0
    if slots:
        written |= _ids_in_tail(sink.path)
    count = 0
    for kind, line_id, data in lines_left(boot, issued, slots, vm):
        if line_id not in written:
            sink.put(data, 0)
            written.add(line_id)
            counters.recovered.add(kind)
            count += 1
    path.unlink(missing_ok=True)
    if count:
        log.warning("calls_recovered", boot=boot, lines=count)
    return count


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


def _ids_in_tail(path: Path) -> set[str]:
    """Ids of whole lines near the end of the log; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return {found.decode("ascii", "replace") for found in WHOLE_LINE_ID.findall(file.read(TAIL_BYTES))}
    except OSError:
        return set()


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
