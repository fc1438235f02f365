"""A hub's ledger in one SQLite file: several hubs on one host may share it. Every delivery is one synced commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import orjson

from collector.hub import fleet
from collector.hub.batch import Answer
from collector.hub.fleet import MAX_REFUSED, Delivery, VmState
from collector.hub.tokens import Token
from collector.ledger import Contact
from collector.ledger.append import append
from collector.ledger.fleet_schema import REFUSED, TOKEN, VM
from collector.ledger.sqlite import SqliteLedger
from collector.ledger.writer import Transaction
from collector.rows import GapRow, QuarantineRow, RefusedRow, SourceRow
from shim.line import ID

# A list of hundreds of VMs looks at some eight thousand pages: a fifth of its time is reading them again each time.
FLEET_CACHE_KIB: Final = 32 * 1024
SAVE_VM: Final = f"INSERT OR REPLACE INTO hub_vm VALUES ({', '.join('?' * len(VM.names))})"
SAVE_TOKEN: Final = f"INSERT INTO hub_token VALUES ({', '.join('?' * len(TOKEN.names))})"
SAVE_REFUSED: Final = f"INSERT OR IGNORE INTO hub_refused VALUES ({', '.join('?' * len(REFUSED.names))})"
TOKENS: Final = f"SELECT {', '.join(TOKEN.names)} FROM hub_token"
STATES: Final = f"SELECT {', '.join(VM.names)} FROM hub_vm"


class SqliteFleet(SqliteLedger):
    """See ``fleet.FleetLedger``."""

    def __init__(self, path: Path, zone_name: str | None = None, *, read_only: bool = False) -> None:
        """Open or make the ledger; see ``SqliteLedger``."""
        super().__init__(path, zone_name, read_only=read_only)
        if read_only:
            self._db.execute(f"PRAGMA cache_size = -{FLEET_CACHE_KIB}")
        else:  # what was acknowledged must survive a power cut: the VM will not send it again
            self._db.execute("PRAGMA synchronous = FULL")

    def take(self, deliveries: Sequence[Delivery]) -> list[Answer]:
        """See ``FleetLedger.take``."""
        with self.transaction() as tx:
            return [_take(tx, delivery) for delivery in deliveries]

    def settle(self, today: date) -> int:
        """See ``fleet.FleetLedger.settle``: rollups are kept with every record here."""
        return 0

    def states(self) -> list[VmState]:
        """See ``FleetLedger.states``."""
        return [VmState(*row) for row in self.select(f"{STATES} ORDER BY vm")]

    def add_token(self, token: Token) -> None:
        """See ``FleetLedger.add_token``."""
        names = orjson.dumps(token.names).decode()
        row = (token.id, token.hash, token.vm, names, token.created, token.expires, token.revoked)
        with self.transaction() as tx:
            tx.db.execute(SAVE_TOKEN, row)

    def token(self, digest: str) -> Token | None:
        """See ``FleetLedger.token``."""
        rows = self.select(f"{TOKENS} WHERE hash = ?", (digest,))
        return _token(rows[0]) if rows else None

    def tokens(self) -> list[Token]:
        """See ``FleetLedger.tokens``."""
        return [_token(row) for row in self.select(f"{TOKENS} ORDER BY created, vm, id")]

    def revoke(self, name: str, now: int) -> int:
        """See ``FleetLedger.revoke``."""
        query = "UPDATE hub_token SET revoked = ? WHERE (id = ? OR vm = ?) AND revoked IS NULL"
        with self.transaction() as tx:
            return tx.db.execute(query, (now, name, name)).rowcount

    def contacts(self) -> list[Contact]:
        """See ``Ledger.contacts``."""
        counts = dict(self.select("SELECT vm, count(*) FROM hub_refused GROUP BY vm"))
        return fleet.contacts(self.states(), counts)

    def gaps(self) -> list[GapRow]:
        """See ``Ledger.gaps``."""
        return fleet.gaps(self.states())

    def refused(self) -> list[RefusedRow]:
        """See ``Ledger.refused``."""
        query = "SELECT vm, reason, count(*), min(at), max(at), min(id) FROM hub_refused GROUP BY vm, reason"
        return fleet.refusals(self.states(), self.select(query))

    def refused_counts(self) -> dict[str, int]:
        """See ``Ledger.refused_counts``."""
        return fleet.counts(self.refused())

    def sources(self) -> list[SourceRow]:
        """See ``Ledger.sources``."""
        return fleet.sources(self.states())

    def quarantine(self, limit: int) -> list[QuarantineRow]:
        """See ``Ledger.quarantine``."""
        query = "SELECT vm, id, reason, at FROM hub_refused ORDER BY at DESC, vm, id LIMIT ?"
        return fleet.quarantined(self.select(query, (limit,)))


def _take(tx: Transaction, delivery: Delivery) -> Answer:
    head = delivery.head
    row = tx.db.execute(f"{STATES} WHERE vm = ?", (head.vm,)).fetchone()
    known = VmState(*row) if row else None
    if (have := fleet.behind(known, head)) is not None:
        return Answer(have)
    own, foreign = _own(tx, delivery)
    append(tx, own, keep_known=fleet.is_stale(known, head))
    refused = [*delivery.refused, *foreign]
    _refuse(tx.db, head.vm, refused, delivery.at_ms)
    state = fleet.next_state(known, delivery)
    tx.db.execute(SAVE_VM, tuple(getattr(state, name) for name in VM.names))
    return Answer(head.after, refused)


def _own(tx: Transaction, delivery: Delivery) -> tuple[list[Any], list[tuple[str, str]]]:
    """Records that are the sender's; a start of a shim belongs to the VM that reported it first."""
    own, foreign = [], []
    owners: dict[str, str | None] = {}
    for entry in delivery.entries:
        match = ID.fullmatch(entry.id)
        if match is not None and match[1] not in owners:
            row = tx.db.execute("SELECT vm FROM boot WHERE name = ?", (match[1],)).fetchone()
            owners[match[1]] = row[0] if row else entry.vm
        if match is not None and owners[match[1]] != entry.vm:
            foreign.append((entry.id, "other_vm"))
        else:
            own.append(entry)
    return own, foreign


def _refuse(db: sqlite3.Connection, vm: str, refused: Sequence[tuple[str, str]], at_ms: int) -> None:
    if refused:
        room = MAX_REFUSED - db.execute("SELECT count(*) FROM hub_refused WHERE vm = ?", (vm,)).fetchone()[0]
        db.executemany(SAVE_REFUSED, [(vm, record, reason, at_ms) for record, reason in refused[: max(0, room)]])


def _token(row: tuple[Any, ...]) -> Token:
    number, digest, vm, names, *times = row
    return Token(number, digest, vm, tuple(orjson.loads(names)), *times)
