"""A store's list of sessions into the ledger: who, when, which model.

For a token-blind runtime the list is all that its store can tell. It gives usage lines their session (by the times of
turns, by opaque references); and a turn without a line is a call that nobody metered: a record without tokens stands
in for it until a line turns up, so that nothing is hidden and no sum pretends to be complete.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Final

from collector.call import MAX_TS
from collector.ledger import Kind
from collector.ledger.interning import Shape
from collector.ledger.schema import UNDATED
from collector.ledger.settle import STAND_IN, Settler
from collector.ledger.writer import AT, Listing, Transaction
from collector.merge import Version
from collector.record import Session
from shim.allowlist import Allowlist
from shim.identity import reference

KEY_BYTES: Final = 16
OTHER_VMS: Final = "SELECT DISTINCT vm FROM shape WHERE vm <> ?"
OWN_CALLS: Final = "SELECT 1 FROM session WHERE no = ? AND calls"
LISTED_THERE: Final = """SELECT 1 FROM session WHERE vm = ? AND runtime = ? AND session_id = ? AND started IS ?
    AND (listed OR calls)"""
UNMETERED: Final = Kind("missing", "completed", "unavailable", None, None, None, "no_usage", True)


def record_key(runtime: str, key: str) -> bytes:
    """The fixed-size key of a store's record: the same in every copy, home and VM."""
    return hashlib.blake2b(f"{runtime}\0{key}".encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def epoch_ms(ts: float | None) -> int | None:
    """Epoch seconds as ms; ``None`` for what is no time."""
    return int(ts * 1000 + 0.5) if ts is not None and math.isfinite(ts) and 0 < ts < MAX_TS else None


class SessionLists:
    """Session lists of one VM on their way into one transaction. ``keys``: those that references may be made with."""

    def __init__(self, tx: Transaction, vm: str, allowlist: Allowlist, keys: Sequence[bytes], settler: Settler) -> None:
        self._tx = tx
        self._vm = vm
        self._allowlist = allowlist
        self._keys = keys
        self._settler = settler
        self._others: list[str] | None = None

    def take(self, session: Session) -> None:
        """Remember one listed session; not that of another VM, whose store a clone has, until it goes on here."""
        number = self._tx.numbers.session(self._vm, session.runtime, session.session_id)
        if not self._is_copy(number, session):
            self._tx.list_session(
                number,
                Listing(
                    epoch_ms(session.started_ts),
                    epoch_ms(session.ended_ts),
                    session.model,
                    session.model_source if session.model else "none",
                    session.parent_session_id,
                ),
            )
        if session.runtime in self._allowlist.token_blind:
            self._token_blind(number, session)

    def _is_copy(self, number: int, session: Session) -> bool:
        """Whether another VM has the session, and this one has no call of it."""
        db = self._tx.db
        if self._others is None:
            self._others = [vm for (vm,) in db.execute(OTHER_VMS, (self._vm,))]
        if not self._others or db.execute(OWN_CALLS, (number,)).fetchone():
            return False
        same = (session.runtime, session.session_id, epoch_ms(session.started_ts))
        return any(db.execute(LISTED_THERE, (vm, *same)).fetchone() for vm in self._others)

    def _token_blind(self, number: int, session: Session) -> None:
        """Turns by which lines find the session, its opaque references, and stand-ins for what nobody metered."""
        references = [reference(key, "session", session.session_id) for key in self._keys]
        self._tx.db.executemany(
            "INSERT OR IGNORE INTO reference VALUES (?, ?, ?, ?)",
            [(self._vm, session.runtime, one, number) for one in references],
        )
        times = {epoch_ms(ts): alias for ts, alias in session.turns if epoch_ms(ts) is not None}
        stand_ins = {ts_ms: self._stand_in(number, session, ts_ms, "call") for ts_ms in times}
        self._tx.db.executemany(
            "INSERT OR IGNORE INTO turn VALUES (?, ?, ?, ?, ?, ?)",
            [
                (self._vm, session.runtime, ts_ms, number, times[ts_ms], record)
                for ts_ms, record in stand_ins.items()
                if record is not None
            ],
        )
        if not times:
            self._stand_in(
                number, session, None if session.started_ts is None else epoch_ms(session.started_ts), "session"
            )
        seeds = [ts_ms for ts_ms in times if ts_ms is not None]
        self._settler.listed(self._vm, session.runtime, number, seeds, references)

    def _stand_in(self, number: int, session: Session, ts_ms: int | None, grain: str) -> int | None:
        """The record that stands in for an unmetered call, ``None`` if there is one already."""
        name = f"{session.session_id}\0{ts_ms if grain == 'call' else ''}"
        key = record_key(session.runtime, f"{STAND_IN}\0{grain}\0{name}")
        if self._tx.stored([key]):
            return None
        record = self._tx.vendor_id()
        shape = Shape(self._vm, session.runtime, "vendor", model_source="none", grain=grain, attribution=STAND_IN)
        row = {
            "id": record,
            "ts": ts_ms,
            "day": UNDATED if ts_ms is None else self._tx.calendar.day(ts_ms / 1000),
            "shape": self._tx.numbers.shape(shape),
            "kind": self._tx.numbers.kind(UNMETERED),
            "session": number,
            "withdrawn": 0,
        }
        self._tx.add([tuple(row.get(name) for name in AT)])
        self._tx.set_versions([(key, record, Version(session.session_id, 0, 0, ()))])
        return record
