"""Bytes of a usage line to a ``Call``, fast: the contract of ``shim.line`` with its common case unrolled.

Nine lines in ten repeat the names of the line before (vm, runtime, model ...): combinations that were validated once
are remembered, so only numbers and references are looked at again. Whatever is not the common case goes through
``shim.line.from_object``, which alone decides what is refused and why.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final, NamedTuple

import orjson

from shim.line import MAX_LINE, NAME, TOKEN_CLASSES, Line, LineError, Tokens, from_object, parse

# Impossible for one call, and small enough that sums over a million hostile lines stay inside 64 bits.
MAX_PLAUSIBLE: Final = 10**13
MAX_SEQ: Final = 2**40 - 1
MAX_TS: Final = 253_370_764_800  # the year 9999: later days have no calendar
MAX_REMEMBERED: Final = 20_000


class Call(NamedTuple):
    """One validated usage line: ``shim.line.Line`` flat, with its id in two parts. ``ts`` in epoch seconds."""

    boot: str
    seq: int
    ts: float
    session: str
    response: str | None
    input_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cache_write_1h_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    duration_ms: int | None
    ttft_ms: int | None
    http_status: int | None
    stream: bool | None
    reported_cost_usd: float | None
    vm: str
    runtime: str
    upstream: str
    wire: str
    model: str | None
    session_source: str
    usage: str
    outcome: str
    service_tier: str | None

    @property
    def id(self) -> str:
        """The line's id as it was written."""
        return f"{self.boot}-{self.seq}"

    @property
    def tokens(self) -> Tokens:
        """The token classes."""
        return Tokens(*self[5:11])


NUMBERS: Final = ("ts", "session", "response", *TOKEN_CLASSES, "duration_ms", "ttft_ms")
NAMES: Final = ("vm", "runtime", "upstream", "wire", "model", "session_source", "usage", "outcome", "service_tier")
_pick: Final = itemgetter("v", "id", *NUMBERS, "http_status", "stream", "reported_cost_usd", *NAMES)
_COUNTS: Final = slice(5, 13)  # token classes, duration_ms and ttft_ms in what _pick gives


class LineReader:
    """Reads lines; remembers which names are valid. One per ingest, not shared by threads."""

    def __init__(self) -> None:
        self._names: set[tuple[str | None, ...]] = set()
        self._boots: set[str] = set()

    def read(self, data: bytes) -> Call:
        """One line with its newline. Raises ``LineError`` with the reason for quarantine."""
        if len(data) <= MAX_LINE:
            try:
                found = self._common(data)
            except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError):
                found = None
            if found is not None:
                return found
        return self._careful(data)

    def _common(self, data: bytes) -> Call | None:
        """The call if every key is there and every name was seen before, else ``None``: look at it with care."""
        picked = _pick(orjson.loads(data))
        boot, _, seq = picked[1].rpartition("-")
        ts, session, response = picked[2:5]
        status, stream, cost = picked[13:16]
        if (
            picked[16:] not in self._names
            or boot not in self._boots
            or type(picked[0]) is not int
            or picked[0] != 1
            or not seq.isdecimal()
            or (number := int(seq)) > MAX_SEQ
            or type(ts) not in (float, int)
            or not 0 <= ts < MAX_TS
            or NAME.fullmatch(session) is None
            or (response is not None and NAME.fullmatch(response) is None)
            or (status is not None and (type(status) is not int or not 0 <= status <= 999))
            or (stream is not None and type(stream) is not bool)
            or cost is not None
        ):
            return None
        for count in picked[_COUNTS]:
            if count is not None and (type(count) is not int or not 0 <= count <= MAX_PLAUSIBLE):
                return None
        return Call._make((boot, number, *picked[2:]))

    def _careful(self, data: bytes) -> Call:
        value = parse(data)
        call = _from_line(from_object(value))
        if all(value.get(name) == getattr(call, name) for name in NAMES):
            if max(len(self._names), len(self._boots)) >= MAX_REMEMBERED:
                self._names.clear()
                self._boots.clear()
            self._names.add(call[16:])
            self._boots.add(call.boot)
        return call


def _from_line(line: Line) -> Call:
    tokens = line.tokens
    for name in TOKEN_CLASSES:
        if (getattr(tokens, name) or 0) > MAX_PLAUSIBLE:
            raise LineError(f"field:{name}")
    if line.seq > MAX_SEQ:
        raise LineError("field:id")
    if line.ts >= MAX_TS:
        raise LineError("field:ts")
    counts = (getattr(tokens, name) for name in TOKEN_CLASSES)
    names = (getattr(line, name) for name in NAMES)
    numbers = (line.duration_ms, line.ttft_ms, line.http_status, line.stream, line.reported_cost_usd)
    return Call._make((line.boot, line.seq, line.ts, line.session, line.response, *counts, *numbers, *names))
