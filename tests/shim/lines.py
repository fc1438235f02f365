"""A usage line to write in tests of what writes lines."""

from __future__ import annotations

import errno
import os

from shim.line import Line, LineError, Tokens, decode

LINE = Line(
    id="",
    ts=1_796_000_000.123,
    vm="vm-1",
    runtime="picoclaw",
    upstream="openai",
    wire="openai-chat",
    model="gpt-5.2",
    session="5f" * 16,
    session_source="conversation",
    response="c0" * 16,
    tokens=Tokens(input_tokens=100, cache_read_tokens=0, output_tokens=7),
    usage="reported",
    outcome="completed",
    http_status=200,
    stream=True,
    duration_ms=1200,
    ttft_ms=300,
)
CALL = ("picoclaw", "openai", "openai-chat", "gpt-5.2", LINE.ts, LINE.session, "conversation", True)


class Events:
    """A logger that keeps the names of events."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def debug(self, event: str, /, **keys: object) -> None:
        self.said.append(event)

    info = warning = error = debug


def read_log(data: bytes) -> tuple[list[Line], list[str]]:
    """Whole lines and the quarantine reasons of the rest, as a reader of the contract sees a log."""
    *parts, unfinished = data.split(b"\n")
    lines, refused = [], ["torn"] if unfinished else []
    for part in filter(None, parts):
        try:
            lines.append(decode(part))
        except LineError as error:
            refused.append(error.reason)
    return lines, refused


class Disk:
    """``os.write`` on a disk that fills up, or fails with an errno of choice."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.error = 0

    def write(self, fd: int, data: bytes) -> int:
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = os.write(fd, data if self.room is None else data[: self.room])
        if self.room is not None:
            self.room -= taken
        return taken
