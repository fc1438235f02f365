"""What a hub's ClickHouse ledger is asked: its connection, and every question of ``Ledger`` and ``FleetLedger``.

Reads of duplicates that are not merged yet are right (FINAL).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import clickhouse_connect
import orjson
from clickhouse_connect.driver.exceptions import ClickHouseError

from collector import windows
from collector.hub import fleet
from collector.hub.fleet import VmState
from collector.hub.tokens import Token
from collector.ledger import (
    Contact,
    Entry,
    Group,
    LedgerError,
    SecondPrice,
    Seen,
    SessionHead,
    Total,
    Use,
    clickhouse_settle,
    totals,
)
from collector.ledger import clickhouse_reads as reads
from collector.ledger.clickhouse_reads import Folds
from collector.ledger.clickhouse_schema import FOLD, GONE, RECORD, SETTING, local, statements
from collector.ledger.clickhouse_settle import Settled
from collector.ledger.fleet_schema import TOKEN, VM
from collector.rows import Filter, GapRow, Page, QuarantineRow, RefusedRow, SourceRow

QUERY_BYTES: Final = 2 * 1024 * 1024
FOLDS_SECONDS: Final = 10.0
TOKENS: Final = f"SELECT {', '.join(TOKEN.names)} FROM hub_token FINAL"
STATES: Final = f"SELECT {', '.join(VM.names)} FROM hub_vm FINAL"
# Every insert is whole before it is acknowledged, on the shard's servers too; a batch may span many months.
INSERT: Final = {"max_partitions_per_insert_block": 0}
INSERT_CLUSTER: Final = INSERT | {"insert_quorum": "auto", "distributed_foreground_insert": 1}


class ClickHouseAnswers:
    """The asking half of ``clickhouse.ClickHouseLedger``."""

    def __init__(self, dsn: str, zone_name: str, *, password: str | None = None, cluster: str | None = None) -> None:
        """Connect and make what is missing. Raises ``LedgerError`` where that cannot be done."""
        self.cluster = cluster
        # One process opens an embedded engine and one thread of it writes: nobody writes between a look and a write.
        self._alone = dsn.startswith("chdb:")
        self.calendar = windows.Calendar(windows.zone_of(zone_name))
        self._gone = local(GONE, cluster)
        self._folds: tuple[float, Folds] | None = None
        try:
            self._client = clickhouse_connect.get_client(dsn=dsn, password=password or "")
            for statement in statements(cluster):
                self._client.command(statement)
            self._check_key()
            self._keep_zone(zone_name)
        except (ClickHouseError, OSError) as error:
            raise LedgerError(f"ClickHouse cannot be used ({_short(error)}): see VM_USAGE_CLICKHOUSE.") from error

    def token(self, digest: str) -> Token | None:
        """See ``fleet.FleetLedger.token``."""
        rows = self._ask(f"{TOKENS} WHERE hash = {{hash:String}}", {"hash": digest})
        return _token(rows[0]) if rows else None

    def tokens(self) -> list[Token]:
        """See ``fleet.FleetLedger.tokens``."""
        return [_token(row) for row in self._ask(f"{TOKENS} ORDER BY created, vm, id")]

    def states(self) -> list[VmState]:
        """See ``fleet.FleetLedger.states``."""
        return [VmState(*row) for row in self._ask(f"{STATES} ORDER BY vm")]

    def contacts(self) -> list[Contact]:
        """See ``Ledger.contacts``."""
        return fleet.contacts(self.states(), self._refused_by_vm())

    def groups(self, by: Sequence[str], where: Filter) -> list[Group]:
        """See ``Ledger.groups``."""
        folds = self.folds()
        now = clickhouse_settle.settled(self._ask) if self._alone else Settled()
        return reads.groups(self._ask, by, where, folds, now.live, now.kept)

    def totals(self, by: Sequence[str], where: Filter) -> list[Total]:
        """See ``Ledger.totals``."""
        return totals.of_groups(self.groups(by, where))

    def by_day(self, by: Sequence[str], where: Filter, after: int | None, limit: int) -> tuple[list[Total], int | None]:
        """See ``Ledger.by_day``."""
        return reads.by_day(self.totals, by, where, after, limit)

    def by_vm(self, by: Sequence[str], where: Filter, start: str | None, limit: int) -> tuple[list[Group], str | None]:
        """See ``Ledger.by_vm``."""
        return reads.by_vm(self.groups(("vm", *by), where), start), None

    def keys(self, by: Sequence[str], where: Filter) -> set[tuple[Any, ...]]:
        """See ``Ledger.keys``."""
        return {group.key for group in self.groups(by, where)}

    def sessions(self, where: Filter, page: Page) -> tuple[list[SessionHead], str | None]:
        """See ``Ledger.sessions``."""
        return reads.sessions(self._ask, where, page, self.folds())

    def find_session(self, vm: str | None, runtime: str | None, session_id: str) -> list[SessionHead]:
        """See ``Ledger.find_session``."""
        return reads.find_session(self._ask, vm, runtime, session_id, self.folds())

    def session_groups(self, sessions: Sequence[int], where: Filter) -> list[Group]:
        """See ``Ledger.session_groups``."""
        return reads.session_groups(self._ask, sessions, where, self.folds())

    def records(self, session: int, limit: int) -> list[Entry]:
        """See ``Ledger.records``."""
        return reads.records(self._ask, session, limit, self.folds())

    def second_prices(self, sessions: Sequence[int], where: Filter) -> list[SecondPrice]:
        """See ``Ledger.second_prices``."""
        return []

    def seen(self, by: str) -> list[Seen]:
        """See ``Ledger.seen``."""
        return reads.seen(self._ask, by, self.folds())

    def uses(self, runs: Sequence[tuple[int, int]], vm: str | None = None) -> list[dict[str, Use]]:
        """See ``Ledger.uses``."""
        return reads.uses(self.groups, runs, vm)

    def changes(self, after: int, limit: int) -> tuple[int, list[Entry]]:
        """See ``Ledger.changes``."""
        return reads.changes(self._ask, after, limit)

    def scan(self, where: Filter) -> Iterator[Entry]:
        """See ``Ledger.scan``."""
        query, values = reads.scan_query(where, self.folds())
        with self._client.query_row_block_stream(query, parameters=values) as blocks:
            yield from reads.entries(blocks)

    def gaps(self) -> list[GapRow]:
        """See ``Ledger.gaps``."""
        return fleet.gaps(self.states())

    def refused(self) -> list[RefusedRow]:
        """See ``Ledger.refused``."""
        query = "SELECT vm, reason, count(), min(at), max(at), min(id) FROM hub_refused FINAL GROUP BY vm, reason"
        return fleet.refusals(self.states(), [tuple(row) for row in self._ask(query)])

    def refused_counts(self) -> dict[str, int]:
        """See ``Ledger.refused_counts``."""
        return fleet.counts(self.refused())

    def sources(self) -> list[SourceRow]:
        """See ``Ledger.sources``."""
        return fleet.sources(self.states())

    def quarantine(self, limit: int) -> list[QuarantineRow]:
        """See ``Ledger.quarantine``."""
        query = f"SELECT vm, id, reason, at FROM hub_refused FINAL ORDER BY at DESC, vm, id LIMIT {int(limit)}"
        return fleet.quarantined([tuple(row) for row in self._ask(query)])

    def folds(self, *, now: bool = False) -> Folds:
        """The finished folds; looked up again after some seconds, or ``now``.

        Rows that a fold took are deleted by the next one, an hour later, so a list that is a little old is right too.
        """
        at = time.monotonic()
        if now or self._folds is None or at - self._folds[0] > FOLDS_SECONDS:
            numbers = tuple(row[0] for row in self._ask(f"SELECT no FROM {FOLD.name} FINAL ORDER BY no"))
            self._folds = (at, Folds(numbers, self._gone))
        return self._folds[1]

    def command(self, statement: str) -> None:
        """Run a statement that answers nothing, for upkeep."""
        self._client.command(statement)

    def ask(self, query: str) -> reads.Rows:
        """Rows of a query, for upkeep and tests."""
        return self._ask(query)

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _ask(
        self, query: str, values: Mapping[str, Any] | None = None, more: Mapping[str, Any] | None = None
    ) -> reads.Rows:
        settings = {"max_query_size": QUERY_BYTES, **(more or {})}
        rows: reads.Rows = self._client.query(query, parameters=dict(values or {}), settings=settings).result_rows
        return rows

    def _refused_by_vm(self) -> dict[str, int]:
        return {row[0]: row[1] for row in self._ask("SELECT vm, count() FROM hub_refused FINAL GROUP BY vm")}

    def _states(self, vms: set[str]) -> list[VmState]:
        return [VmState(*row) for row in self._ask(f"{STATES} WHERE vm IN {{vms:Array(String)}}", {"vms": sorted(vms)})]

    def _check_key(self) -> None:
        name = local(RECORD, self.cluster)
        query = "SELECT sorting_key FROM system.tables WHERE database = currentDatabase() AND name = {name:String}"
        if any(row[0] != RECORD.order for row in self._ask(query, {"name": name})):
            raise LedgerError(f"table {name} there is of an earlier version: name an empty database, VMs push again.")

    def _keep_zone(self, zone_name: str) -> None:
        rows = self._ask(f"SELECT value FROM {SETTING.name} FINAL WHERE name = 'zone'")
        if not rows:
            self._write(SETTING.name, [{"name": "zone", "value": zone_name}])
        elif rows[0][0] != zone_name:
            raise LedgerError(f"days there are counted in {rows[0][0]}: set VM_USAGE_TZ={rows[0][0]}.")

    def _write(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows; small tables are told when, so that the latest row of a key stays."""
        written = time.time_ns() // 1000
        stamped = table != "record"
        block = b"\n".join(orjson.dumps({"written": written, **row} if stamped else row) for row in rows)
        if not block:
            return
        settings: dict[str, Any] = dict(INSERT if self.cluster is None else INSERT_CLUSTER)
        settings["insert_deduplication_token"] = hashlib.blake2b(block, digest_size=16).hexdigest()
        self._client.raw_insert(table, insert_block=block, fmt="JSONEachRow", settings=settings)


def _token(row: Sequence[Any]) -> Token:
    number, digest, vm, names, *times = row
    return Token(number, digest, vm, tuple(orjson.loads(names)), *times)


def _short(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]
