"""Calls in flight, kept where they outlive the process: a memory-mapped file of slots in the state folder.

A call takes a slot before it goes upstream and gives it back once its line is in the log; both are stores to mapped
memory, so ``kill -9`` loses nothing and no call costs a system call. A line that has to wait, for disk space or for the
end of a background response, is copied into its slot: beside what was there, where both fit, and one store switches
from one to the other. The file is locked for as long as its process lives: the next start takes over the files whose
lock is free (``shim.recovery``).

The blocks are reserved when the file is made or grown, so a full disk cannot fault a store. Where that is refused, the
slots are plain memory: calls go on and are not recovered, which is counted. Slots hold what a line may hold, no more.

    header   magic 8 | length of boot name 2 | boot name 64 | seq issued 8, at ISSUED_AT
    board    counters of this process for its siblings, length 4 and CRC-32 4 first, at BOARD_AT
    slots    length 2 | state 1 | - 1 | offset of the payload 2 | - 2 | seq 8 | payload, from SLOTS_AT
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import orjson

from shim.counters import Counters
from shim.ids import Boot
from shim.line import MAX_LINE

MAGIC: Final = b"vmuslot1"
SUFFIX: Final = ".slots"
NO_SLOT: Final = -1

ISSUED_AT: Final = 80
BOARD_AT: Final = 4096
SLOTS_AT: Final = 65536
SLOT_SIZE: Final = 16 + MAX_LINE
FIRST_SLOTS: Final = 256
MAX_SLOTS: Final = 32_768

FREE: Final = 0
CALL: Final = 1
LINE: Final = 2
PENDING: Final = 3
ENDED: Final = 4

HEADER: Final = struct.Struct("<8sH64s")
COUNT: Final = struct.Struct("<Q")
SLOT: Final = struct.Struct("<HB5xQ")  # of a slot just taken: its payload is at offset 0
SLOT_AT: Final = struct.Struct("<HBxH2xQ")
BOARD: Final = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Left:
    """What a dead process left in one slot.

    ``payload``: for a ``CALL`` the JSON list that ``Inflight.begin`` stored; for a ``LINE`` an encoded line that
    waited for disk space; for ``PENDING`` the line's JSON object without an id, of a background response whose end was
    not seen, and for ``ENDED`` of one whose line was about to be written. ``seq``: the number of its line in
    ``boot``, 0 where none was issued.
    """

    boot: str
    seq: int
    state: int
    payload: bytes


class Inflight:
    """The slots of this process. ``folder``: where their file is; ``None`` or unusable: plain memory."""

    def __init__(self, folder: Path | None, boot: Boot, counters: Counters) -> None:
        self._boot = boot
        self._counters = counters
        self._folder = folder
        self._fd = -1
        self.path: Path | None = None
        self.trouble: str | None = None
        size = SLOTS_AT + FIRST_SLOTS * SLOT_SIZE
        self._try_file(size)
        # Private where there is no file: shared anonymous memory cannot be grown.
        flags = mmap.MAP_SHARED if self._fd >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._map = mmap.mmap(self._fd, size, flags=flags)
        self._free = list(range(FIRST_SLOTS - 1, -1, -1))
        self._slots = FIRST_SLOTS
        self.used = 0
        self._held = 0
        self.name_boot()

    @property
    def durable(self) -> bool:
        """Whether the slots outlive the process."""
        return self._fd >= 0

    @property
    def calls(self) -> int:
        """Calls in flight that have a slot; lines that wait, for whatever, are not counted."""
        return self.used - self._held

    def begin(
        self,
        runtime: str,
        upstream: str,
        wire: str,
        model: str | None,
        ts: float,
        session: str,
        session_source: str,
        stream: bool | None,
    ) -> int:
        """Take a slot for a call that is about to go upstream; ``NO_SLOT`` where none is left.

        ``ts`` in epoch seconds; the rest as in ``Line``, so ``model`` has passed ``model_or_none``.
        """
        payload = orjson.dumps((runtime, upstream, wire, model, ts, session, session_source, stream))
        return self._take(CALL, 0, payload)

    def issue(self, slot: int, seq: int) -> None:
        """The line with number ``seq`` was begun, for the call in ``slot`` or for none."""
        COUNT.pack_into(self._map, ISSUED_AT, seq)
        if slot >= 0:
            COUNT.pack_into(self._map, SLOTS_AT + slot * SLOT_SIZE + 8, seq)

    def hold(self, slot: int, seq: int, data: bytes) -> int:
        """Keep an encoded line that has to wait in ``slot``, or in one taken for it; the slot it is in."""
        return self._keep(slot, LINE, seq, data)

    def pend(self, slot: int, data: bytes, *, ended: bool = False) -> int:
        """Keep the line's JSON object of a background response in ``slot``, or in one taken for it; the slot it is in.

        ``ended``: the line is written next, so a start that finds the slot is to write it.
        """
        return self._keep(slot, ENDED if ended else PENDING, 0, data)

    def end(self, slot: int) -> None:
        """Give a slot back: its line is written, or the call wants none. ``NO_SLOT`` and a free slot are ignored."""
        if slot < 0:
            return
        states, state_at = self._map, SLOTS_AT + slot * SLOT_SIZE + 2
        state = states[state_at]
        if state != FREE:
            self._held -= state != CALL
            states[state_at] = FREE
            self._free.append(slot)
            self.used -= 1

    def name_boot(self) -> None:
        """Write the header for the boot as it is now."""
        name = self._boot.name.encode()
        HEADER.pack_into(self._map, 0, MAGIC, len(name), name)
        COUNT.pack_into(self._map, ISSUED_AT, self._boot.issued)

    def make_durable(self) -> bool:
        """Move from plain memory to a file, where one was wanted and can be had by now; whether it did."""
        if self._fd >= 0 or self._folder is None:
            return False
        self._try_file(len(self._map))
        if self._fd < 0:
            return False
        file = mmap.mmap(self._fd, len(self._map))
        file[:] = self._map[:]
        self._map.close()
        self._map = file
        return True

    def post(self, board: bytes) -> None:
        """Show ``board`` to the other processes of the folder; what does not fit is not shown."""
        if len(board) <= SLOTS_AT - BOARD_AT - BOARD.size:
            self._map[BOARD_AT + BOARD.size : BOARD_AT + BOARD.size + len(board)] = board
            BOARD.pack_into(self._map, BOARD_AT, len(board), zlib.crc32(board))

    def close(self) -> None:
        """Let go of the file; removed where nothing is left in it, else the next start takes it over."""
        if self._fd >= 0 and self.path is not None and self.used == 0:
            self.path.unlink(missing_ok=True)
        self._map.close()
        self._forget_file()

    def _take(self, state: int, seq: int, payload: bytes) -> int:
        if len(payload) > MAX_LINE or (not self._free and not self._grow()):
            self._counters.untracked.add()
            return NO_SLOT
        slot = self._free.pop()
        self.used += 1
        self._held += state != CALL
        self._store(slot, state, seq, payload)
        return slot

    def _keep(self, slot: int, state: int, seq: int, data: bytes) -> int:
        """Replace what is in a slot. Killed at any point, the slot says the one or the other where both fit in it."""
        if slot < 0:
            return self._take(state, seq, data)
        start = SLOTS_AT + slot * SLOT_SIZE
        length, before, offset, _ = SLOT_AT.unpack_from(self._map, start)
        behind = offset + length
        at = 0 if len(data) <= offset or behind + len(data) > MAX_LINE else behind
        self._map[start + SLOT.size + at : start + SLOT.size + at + len(data)] = data
        self._map[start : start + SLOT.size] = SLOT_AT.pack(len(data), state, at, seq)
        self._held += before == CALL
        return slot

    def _store(self, slot: int, state: int, seq: int, payload: bytes) -> None:
        start = SLOTS_AT + slot * SLOT_SIZE
        self._map[start + SLOT.size : start + SLOT.size + len(payload)] = payload
        SLOT.pack_into(self._map, start, len(payload), state, seq)

    def _try_file(self, size: int) -> None:
        """Have a file, or say in ``trouble`` why not."""
        if self._folder is None:
            return
        try:
            self._create(self._folder, size)
            self.trouble = None
        except OSError as error:
            self.trouble = errno.errorcode.get(error.errno or 0, "OSError")
            self._forget_file()

    def _create(self, folder: Path, size: int) -> None:
        """Make the file under its lock: a start that looks for dead processes never sees it unlocked."""
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        self.path = folder / (self._boot.name + SUFFIX)
        hidden = self.path.with_suffix(".new")
        self._fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._fd, 0, size)
            hidden.rename(self.path)
        except OSError:
            hidden.unlink(missing_ok=True)
            raise

    def _grow(self) -> bool:
        """Double the slots; ``False`` at the bound or where the disk has no room."""
        slots = self._slots * 2
        size = SLOTS_AT + slots * SLOT_SIZE
        if slots > MAX_SLOTS:
            return False
        try:
            if self._fd >= 0:
                os.posix_fallocate(self._fd, 0, size)
            self._map.resize(size)
        except (OSError, SystemError):
            return False
        self._free.extend(range(slots - 1, self._slots - 1, -1))
        self._slots = slots
        return True

    def _forget_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self.path = None


def boards(folder: Path, but: Path | None) -> Iterator[bytes]:
    """The boards that live siblings show in ``folder``; ``but``: this process's own file."""
    for path in sorted(folder.glob("*" + SUFFIX)):
        if path == but:
            continue
        with contextlib.suppress(OSError), path.open("rb") as file:
            if board := _board_in(file):
                yield board


def _board_in(file: BinaryIO) -> bytes:
    """The board in a sibling's file, empty where its process is gone or it was being changed."""
    if not _is_locked(file.fileno()):
        return b""
    file.seek(BOARD_AT)
    length, check = BOARD.unpack(file.read(BOARD.size))
    board = file.read(min(length, SLOTS_AT))
    return board if zlib.crc32(board) == check else b""


def left_in(data: bytes) -> tuple[str, int, list[Left]]:
    """Boot, seq issued and used slots of the file of a dead process.

    Raises ``ValueError`` for bytes that are not such a file. A slot that was being stored is left out.
    """
    if len(data) < SLOTS_AT or not data.startswith(MAGIC):
        raise ValueError("not an in-flight file")
    _, length, name = HEADER.unpack_from(data)
    boot = name[:length].decode("ascii", "replace")
    found = []
    for start in range(SLOTS_AT, len(data) - SLOT_SIZE + 1, SLOT_SIZE):
        size, state, offset, seq = SLOT_AT.unpack_from(data, start)
        if state in (CALL, LINE, PENDING, ENDED) and size and offset + size <= MAX_LINE:
            at = start + SLOT.size + offset
            found.append(Left(boot, seq, state, data[at : at + size]))
    (issued,) = COUNT.unpack_from(data, ISSUED_AT)
    return boot, issued, found


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
