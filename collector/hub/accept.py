"""Which records of a batch are taken: every value is held to its rule, one bad record never costs the others.

Pure. A record that is refused has a reason: ``not_json``, ``version`` (a newer VM), ``field:<name>``, ``future``,
``other_vm`` (a VM writes as itself alone).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
import orjson

from collector.call import MAX_PLAUSIBLE
from collector.entries import NAMES, entry_of
from collector.honesty import BASES, SOURCES, STATUSES
from collector.hub.batch import VERSION
from collector.ledger import Entry
from collector.ledger.schema import WITHDRAWN
from collector.lines import MAX_SEQ
from collector.record import GRAINS
from collector.record import SOURCES as KINDS_OF_SOURCE
from shim.line import ID, USAGE_STATES

# A VM's clock may be a day ahead, and a call may be as long as two hours; what is later than that is no clock.
MAX_AHEAD_MS: Final = 36 * 3600 * 1000
STORE_ID: Final = re.compile(r"[0-9a-f]{32}")
_FIELD: Final = re.compile(r"`\$\.([a-z0-9_]+)|field `([a-z0-9_]+)`")

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_PLAUSIBLE)]
Money = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Time = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")]
# What vendors name themselves: anything that prints, bounded.
Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f]{1,256}$")]
Codes = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_,]{1,256}$")]

# Closed vocabularies; ``None`` stands among those of a field that may be unknown.
VOCABULARIES: Final[Mapping[str, frozenset[str | None]]] = {
    "source": frozenset(KINDS_OF_SOURCE),
    "usage": frozenset(USAGE_STATES),
    "cost_status": frozenset(STATUSES),
    "cost_source": frozenset({*SOURCES, None}),
    "cost_basis": frozenset({*BASES, None}),
    "grain": frozenset(GRAINS),
    "withdrawn": frozenset({*WITHDRAWN.values(), None}),
}


class Sent(msgspec.Struct):
    """A record as it may be sent: the fields of ``Entry``, ``Tokens`` and ``Kind``, each with its bounds."""

    v: int
    id: Annotated[str, msgspec.Meta(max_length=96)]
    vm: Name
    runtime: Name
    source: str
    session_id: Text
    usage: str
    outcome: Name
    cost_status: str
    counted: bool
    ts_ms: Time | None = None
    input_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    cache_write_1h_tokens: Count | None = None
    output_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    cost_source: str | None = None
    cost_basis: str | None = None
    cost_caveat: Codes | None = None
    reason: Name | None = None
    session_ref: Text | None = None
    session_source: Name | None = None
    attribution: Name | None = None
    model: Text | None = None
    model_source: Name = "log"
    upstream: Text | None = None
    wire: Name | None = None
    service_tier: Text | None = None
    grain: str = "call"
    parent_session_id: Text | None = None
    owner_ms: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] = 0
    revision: Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)] = 0
    ended_ms: Time | None = None
    http_status: Annotated[int, msgspec.Meta(ge=0, le=999)] | None = None
    stream: bool | None = None
    duration_ms: Count | None = None
    ttft_ms: Count | None = None
    response: Name | None = None
    cost_pico: Money | None = None
    acu_micro: Count | None = None
    rates: Annotated[str, msgspec.Meta(max_length=4096)] | None = None
    withdrawn: str | None = None


_decode: Final = msgspec.json.Decoder(Sent).decode


class RecordError(Exception):
    """A record that is refused: its id as far as it is one, and the reason."""

    def __init__(self, record: str, reason: str) -> None:
        super().__init__(reason)
        self.record = record
        self.reason = reason


def accept(lines: Iterable[bytes], names: Collection[str], now_ms: int) -> tuple[list[Entry], list[tuple[str, str]]]:
    """Records of a batch that are taken, and id and reason of those that are not.

    ``names``: as which VMs the sender may write. ``now_ms``: the hub's clock, epoch ms.
    """
    taken, refused = [], []
    for line in lines:
        try:
            taken.append(_record(line, names, now_ms))
        except RecordError as error:
            refused.append((error.record, error.reason))
    return taken, refused


def _record(line: bytes, names: Collection[str], now_ms: int) -> Entry:
    try:
        sent = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _why(line, str(error)) from None
    if reason := _wrong(sent, names, now_ms):
        raise RecordError(sent.id, reason)
    return entry_of({name: getattr(sent, name) for name in NAMES})


def _wrong(sent: Sent, names: Collection[str], now_ms: int) -> str | None:
    if sent.v != VERSION:
        return "version"
    if sent.vm not in names:
        return "other_vm"
    if not _is_id(sent.id, sent.source):
        return "field:id"
    if max(sent.ts_ms or 0, sent.ended_ms or 0) > now_ms + MAX_AHEAD_MS:
        return "future"
    return next((f"field:{name}" for name, known in VOCABULARIES.items() if getattr(sent, name) not in known), None)


def _is_id(text: str, source: str) -> bool:
    """A usage line's id, or a store's; what looks like both is what its source says."""
    if STORE_ID.fullmatch(text):
        return True
    match = ID.fullmatch(text)
    return source == "log" and match is not None and int(match[2]) <= MAX_SEQ


def _why(line: bytes, message: str) -> RecordError:
    """The reason for a line that has not the shape of a record, as exact as it can be told."""
    try:
        value: Any = orjson.loads(line)
    except orjson.JSONDecodeError:
        return RecordError("?", "not_json")
    if not isinstance(value, dict):
        return RecordError("?", "not_json")
    given = value.get("id")
    record = given if isinstance(given, str) and _is_id(given, "log") else "?"
    if value.get("v") != VERSION:
        return RecordError(record, "version")
    match = _FIELD.search(message)
    return RecordError(record, f"field:{match[1] or match[2]}" if match else "field:unknown")
