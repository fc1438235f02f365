"""What the ledger holds: one ``Record`` per call, turn or (where a store has nothing finer) session.

Pure data. A record comes from exactly one source: ``log`` (a usage line of a token-blind runtime) or ``vendor`` (a
self-reporting runtime's own store). Money is integer pico-USD (1 USD = 10**12), times are epoch seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from shim.line import Tokens

PICO: Final = 10**12

SOURCES: Final = ("log", "vendor")
GRAINS: Final = ("call", "turn", "session")
MODEL_SOURCES: Final = ("log", "config", "stream", "none")
BASES: Final = ("billed", "runtime_price", "list_price")


class Record(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One call, turn or session as its source tells it, before pricing. A struct: stores give them by the million.

    ``key``: the identity of the call within its runtime, **the same in every copy** (fork, resume, second home, second
    VM); of two records with one key and different sessions the one with the smaller ``owner`` stays (the session that
    paid), of two with one key and one session the one with the larger ``revision`` (a mid-stream row is replaced).
    ``owner``: start of the recording session, epoch seconds. ``grain``: how fine the record is.
    ``vendor_pico``: dollars that the source states, ``None`` where it says nothing trustworthy; 0 only with evidence.
    ``vendor_basis``: ``billed`` or ``runtime_price``. ``caveat``: why a figure is only estimated, else ``None``.
    ``local``: evidence that a local provider served the call, so that its cost is a real zero.
    ``provider``: provider as the source names it. ``response_id``: the provider's id, hashed at ingest, never stored.
    ``taken_back``: the source no longer stands behind the record (another one has the call): it counts nowhere.
    ``acu_micro``: Devin ACU in millionths. ``usage``, ``outcome``: as in a line; stores: ``reported``, ``completed``.
    """

    runtime: str
    key: str
    session_id: str
    ts: float
    tokens: Tokens
    model: str | None = None
    model_source: str = "log"
    provider: str | None = None
    source: str = "vendor"
    grain: str = "call"
    owner: float = 0.0
    revision: int = 0
    parent_session_id: str | None = None
    vendor_pico: int | None = None
    vendor_basis: str | None = None
    caveat: str | None = None
    local: bool = False
    acu_micro: int | None = None
    response_id: str | None = None
    service_tier: str | None = None
    usage: str = "reported"
    outcome: str = "completed"
    duration_ms: int | None = None
    ended_ts: float | None = None
    taken_back: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """A session that a store lists, with or without records of its own.

    For token-blind runtimes this is all there is: who, when, which model; ``turns`` are the times (epoch seconds) of
    its assistant messages with the model alias, by which usage lines find their session.
    """

    runtime: str
    session_id: str
    started_ts: float | None = None
    ended_ts: float | None = None
    model: str | None = None
    model_source: str = "log"
    parent_session_id: str | None = None
    turns: tuple[tuple[float, str | None], ...] = ()
