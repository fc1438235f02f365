"""What sessions are known by, kept where it outlives the process: a memory-mapped table that all workers share.

An entry says that a hash (of a response id, a conversation's head or a message) belongs to a session; both are keyed
hashes, so the file tells nothing to whoever has not the key. The table never grows: a hash has four places, and the one
used longest ago makes way. Reads and writes are stores to mapped memory without a lock; an entry that two processes
wrote at once fails its check and is empty.

    place    hash 16 | written at, epoch seconds 4 | session 24 | CRC-32 of the rest 4
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import Final

from shim.log import EventLog

FILE: Final = "sessions.map"
PLACE: Final = struct.Struct("<16sI24s")
PLACE_SIZE: Final = PLACE.size + 4
WRITTEN: Final = struct.Struct("<I")
WAYS: Final = 4
SET_SIZE: Final = WAYS * PLACE_SIZE
SETS: Final = 8192
SIZE: Final = SETS * SET_SIZE  # 1.5 MiB
FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class SessionStore:
    """The table in the file at ``path``. Raises ``OSError`` where it cannot be made, mapped or given its room."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        fd = os.open(path, FLAGS, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # siblings start together
            size = os.fstat(fd).st_size
            if size not in (0, SIZE):
                # Another release's table: never cut short what a process of that release may have mapped.
                path.unlink()
                os.close(fd)
                fd = os.open(path, FLAGS, 0o600)
            if size != SIZE:
                os.posix_fallocate(fd, 0, SIZE)  # no store may meet a full disk
            fcntl.flock(fd, fcntl.LOCK_UN)  # the map keeps a descriptor of its own, and with it the lock
            self._map = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)

    def get(self, key: bytes) -> str | None:
        """The session under a 16-byte hash; empty where two sessions had it, ``None`` where it is not known."""
        _, places = self._set(key)
        at = places.find(key)
        if at < 0 or at % PLACE_SIZE:
            return None
        entry = places[at : at + PLACE.size]
        if int.from_bytes(places[at + PLACE.size : at + PLACE_SIZE], "little") != zlib.crc32(entry):
            return None
        return PLACE.unpack(entry)[2].rstrip(b"\0").decode("ascii", "replace")  # type: ignore[no-any-return]

    def put(self, key: bytes, session: str, now: float) -> None:
        """Set the session under a 16-byte hash. ``session``: at most 24 ASCII characters; ``now``: epoch seconds."""
        start, places = self._set(key)
        at = places.find(key)
        if at < 0 or at % PLACE_SIZE:
            at = min(range(0, len(places), PLACE_SIZE), key=lambda place: WRITTEN.unpack_from(places, place + 16))
        entry = PLACE.pack(key, int(now) & 0xFFFFFFFF, session.encode("ascii"))
        self._map[start + at : start + at + PLACE_SIZE] = entry + zlib.crc32(entry).to_bytes(4, "little")

    def _set(self, key: bytes) -> tuple[int, bytes]:
        """The four places of a hash: where they start, and what is in them."""
        # Not the first byte: it may say what kind of hash this is.
        start = int.from_bytes(key[4:8], "little") % SETS * SET_SIZE
        return start, self._map[start : start + SET_SIZE]


def open_store(folder: Path, log: EventLog) -> SessionStore | None:
    """The table in the state folder; ``None`` where there can be none: sessions are then this process's own."""
    try:
        return SessionStore(folder / FILE)
    except OSError as error:
        log.warning("sessions_not_durable", folder=str(folder), error=errno.errorcode.get(error.errno or 0, "OSError"))
        return None
