"""Bytes of a usage line to a ``Call``, fast: the contract of ``shim.line`` with its common case unrolled.

msgspec parses and checks numbers and types in one step; combinations of names (vm, runtime, model ...) that were
validated once are remembered, so only ids and references are looked at again. Whatever is not the common case goes
through ``shim.line.from_object``, which alone decides what is refused and why.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from collector.call import MAX_PLAUSIBLE, MAX_TS, Call
from shim.line import ID, MAX_LINE, NAME, TOKEN_CLASSES, Line, LineError, from_object, parse

MAX_SEQ: Final = 2**40 - 1
MAX_REMEMBERED: Final = 20_000
SHORT: Final = 32

Names = tuple[str | None, ...]
# An id where a line has its own; what is damaged around it does not matter.
TOLD_ID: Final = re.compile(rb'"id"[ \t]*:[ \t]*"(' + ID.pattern.encode() + rb')"')
NAMES: Final = ("vm", "runtime", "upstream", "wire", "model", "session_source", "usage", "outcome", "service_tier")
_decode: Final = msgspec.json.Decoder(Call).decode


def told_id(data: bytes) -> str | None:
    """The id that the bytes of a damaged line still tell, if they tell just one."""
    found = {match[1] for match in TOLD_ID.finditer(data)}
    return found.pop().decode() if len(found) == 1 else None


class LineReader:
    """Reads lines; remembers which names are valid. One per ingest, not shared by threads."""

    def __init__(self) -> None:
        self._forms: dict[Names, int] = {}
        self._next_form = 1
        self._boots: set[str] = set()
        self._sessions: set[str] = set()

    def read(self, data: bytes) -> Call:
        """One line without its newline. Raises ``LineError`` with the reason for quarantine."""
        if len(data) < MAX_LINE:
            try:
                call = _decode(data)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return self._careful(data)
            if self._is_common(call):
                return call
        return self._careful(data)

    def _is_common(self, call: Call) -> bool:
        """Whether every name was seen before and the rest is as it must be; completes the call."""
        boot, _, seq = call.id.rpartition("-")
        names = (
            call.vm,
            call.runtime,
            call.upstream,
            call.wire,
            call.model,
            call.session_source,
            call.usage,
            call.outcome,
            call.service_tier,
        )
        if (
            call.v != 1
            or (form := self._forms.get(names)) is None
            or boot not in self._boots
            or not (seq.isdecimal() and seq.isascii())
            or (call.session not in self._sessions and not self._is_session(call.session))
            or ((response := call.response) is not None and not _is_name(response))
            or call.reported_cost_usd is not None
        ):
            return False
        call.boot, call.seq, call.form = boot, int(seq), form
        return call.seq <= MAX_SEQ

    def _is_session(self, session: str) -> bool:
        if NAME.fullmatch(session) is None:
            return False
        if len(self._sessions) >= MAX_REMEMBERED:
            self._sessions.clear()
        self._sessions.add(session)
        return True

    def _careful(self, data: bytes) -> Call:
        value = parse(data + b"\n")
        call = _from_line(from_object(value))
        if max(len(self._forms), len(self._boots)) >= MAX_REMEMBERED:
            self._forms.clear()
            self._boots.clear()
        names = tuple(getattr(call, name) for name in NAMES)
        call.form = self._forms.get(names, 0)
        if not call.form:
            call.form, self._next_form = self._next_form, self._next_form + 1
            if all(value.get(name) == own for name, own in zip(NAMES, names, strict=True)):
                self._forms[names] = call.form
        self._boots.add(call.boot)
        return call


def _is_name(text: str) -> bool:
    """Whether a text is a name; references are plain letters and digits, and that is seen sooner."""
    return (text.isalnum() and text.isascii() and len(text) <= SHORT) or NAME.fullmatch(text) is not None


def _from_line(line: Line) -> Call:
    counts = {name: getattr(line.tokens, name) for name in TOKEN_CLASSES}
    for name, count in counts.items():
        if count is not None and count > MAX_PLAUSIBLE:
            raise LineError(f"field:{name}")
    if line.seq > MAX_SEQ:
        raise LineError("field:id")
    if line.ts >= MAX_TS:
        raise LineError("field:ts")
    same = ("id", "ts", "session", "response", "duration_ms", "ttft_ms", "http_status", "stream", "reported_cost_usd")
    kept = {name: getattr(line, name) for name in (*same, *NAMES)}
    return Call(v=1, **kept, **counts, boot=line.boot, seq=line.seq)
