"""The ClickHouse ledger of a hub: embedded (``chdb:///path``: one process per path) or a server or cluster (``https://``).

Records are inserted in bulk as JSONEachRow, one insert for all that waits. An insert that is repeated is known by its
deduplication token, a record that is repeated by its id. Reads of duplicates that are not merged yet are right (FINAL).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any, Final

import clickhouse_connect
import orjson
from clickhouse_connect.driver.exceptions import ClickHouseError

from collector import windows
from collector.hub import fleet
from collector.hub.batch import Answer
from collector.hub.fleet import MAX_REFUSED, Delivery, VmState
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
from collector.ledger import clickhouse_days as days
from collector.ledger import clickhouse_reads as reads
from collector.ledger.clickhouse_decide import Offer, Written, choose, rank, told_apart
from collector.ledger.clickhouse_fold import clean, fold
from collector.ledger.clickhouse_reads import Folds
from collector.ledger.clickhouse_schema import FOLD, GONE, RECORD, SETTING, SETTLED, all_replicas, local, statements
from collector.ledger.clickhouse_settle import OPEN_DAYS, Settled
from collector.ledger.fleet_schema import REFUSED, TOKEN, VM
from collector.ledger.schema import UNDATED
from collector.rows import Filter, GapRow, Page, QuarantineRow, RefusedRow, SourceRow

LOOK_UP: Final = 5_000
QUERY_BYTES: Final = 2 * 1024 * 1024
FOLDS_SECONDS: Final = 10.0
TOKENS: Final = f"SELECT {', '.join(TOKEN.names)} FROM hub_token FINAL"
STATES: Final = f"SELECT {', '.join(VM.names)} FROM hub_vm FINAL"
# Every insert is whole before it is acknowledged, on the shard's servers too; a batch may span many months.
INSERT: Final = {"max_partitions_per_insert_block": 0}
# A record is on most replicas of its shard when its insert returns, so among those that answer one has it.
REACHABLE: Final = {"skip_unavailable_shards": 1}
INSERT_CLUSTER: Final = INSERT | {"insert_quorum": "auto", "distributed_foreground_insert": 1}


class ClickHouseLedger:
    """See ``Ledger`` and ``fleet.FleetLedger``. Not shared by threads: open one per thread."""

    def __init__(self, dsn: str, zone_name: str, *, password: str | None = None, cluster: str | None = None) -> None:
        """Connect and make what is missing. Raises ``LedgerError`` where that cannot be done."""
        self.cluster = cluster
        # One process opens an embedded engine and one thread of it writes: nobody writes between a look and a write.
        self._alone = dsn.startswith("chdb:")
        self.calendar = windows.Calendar(windows.zone_of(zone_name))
        self._gone = local(GONE, cluster)
        self._folds: tuple[float, Folds] | None = None
        self._settled: Settled | None = None  # as the writer knows it, who alone changes it
        try:
            self._client = clickhouse_connect.get_client(dsn=dsn, password=password or "")
            for statement in statements(cluster):
                self._client.command(statement)
            self._check_key()
            self._keep_zone(zone_name)
        except (ClickHouseError, OSError) as error:
            raise LedgerError(f"ClickHouse cannot be used ({_short(error)}): see VM_USAGE_CLICKHOUSE.") from error

    # What is written.

    def append(self, entries: Iterable[Entry], *, keep_known: bool = False) -> int:
        """See ``Ledger.append``."""
        now = rank(time.time_ns() // 10**6, time.time_ns() % 10**6)
        return self._offer([Offer(entry, now, keep_known) for entry in entries])[0]

    def take(self, deliveries: Sequence[Delivery]) -> list[Answer]:
        """See ``fleet.FleetLedger.take``: records first, then how far each VM is, so that a crash sends again."""
        states = {state.vm: state for state in self._states({delivery.head.vm for delivery in deliveries})}
        offers: list[Offer] = []
        answers: list[Answer | None] = []
        for delivery in deliveries:
            head = delivery.head
            known = states.get(head.vm)
            if (have := fleet.behind(known, head)) is not None:
                answers.append(Answer(have))
                continue
            stale = fleet.is_stale(known, head)
            offers += [Offer(entry, rank(head.born, head.after), stale) for entry in delivery.entries]
            states[head.vm] = fleet.next_state(known, delivery)
            answers.append(None)
        foreign = self._offer(offers)[1]
        taken = [delivery for delivery, answer in zip(deliveries, answers, strict=True) if answer is None]
        told = {id(delivery): _refused(delivery, foreign) for delivery in taken}
        self._refuse([(delivery, told[id(delivery)]) for delivery in taken])
        vms = dict.fromkeys(delivery.head.vm for delivery in taken)
        self._write("hub_vm", ({name: getattr(states[vm], name) for name in VM.names} for vm in vms))
        return [
            answer if answer is not None else Answer(delivery.head.after, told[id(delivery)])
            for delivery, answer in zip(deliveries, answers, strict=True)
        ]

    def _offer(self, offers: Sequence[Offer]) -> tuple[int, set[str]]:
        """Write what of the offers is new or replaces: how many did, and the ids that belong to another VM."""
        names = list(dict.fromkeys(offer.entry.id for offer in offers))
        held = self._held(names)
        known = {name: row for name, rows in held.items() if (row := days.current(rows)) is not None}
        gone = self._gone_ids(names)
        told = told_apart(offers, {name: one.entry for name, one in known.items()})
        if told is not None:
            return self._offer(told)
        rows = {name: Written(row.entry, row.version) for name, row in known.items()}
        written, foreign = choose(offers, rows, gone, lambda one: days.above(one, held.get(one.entry.id, ())))
        self._write_records(written.values(), held)
        changed = sum(name not in known or known[name].entry != one.entry for name, one in written.items())
        return changed, foreign

    def _write_records(self, written: Iterable[Written], held: Mapping[str, Sequence[days.Row]]) -> None:
        """Write records, then take back what they left behind on other days. ``held``: the rows of their ids before.

        On a server another hub may have written the same record at the same time: whoever looks after writing sees it.
        """
        rows = [days.Row(one.entry, self._day(one.entry), one.version) for one in written]
        at = {row.entry.id: row.day for row in rows}
        left = list(days.left_behind(held, at))
        self._unsettle({row.day for row in (*rows, *left)})
        self._write_rows(rows)
        self._write_rows(left)
        if not self._alone:
            self._write_rows(days.left_behind(self._held(list(at), everywhere=True), {}))

    def _write_rows(self, rows: Iterable[days.Row]) -> None:
        self._write("record", (days.cells(row) | {"received": time.time_ns() // 1000} for row in rows))

    def _day(self, entry: Entry) -> int:
        return UNDATED if entry.ts_ms is None else self.calendar.day(entry.ts_ms / 1000)

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

    def _refuse(self, told: Sequence[tuple[Delivery, list[tuple[str, str]]]]) -> None:
        if not any(refused for _, refused in told):
            return
        counts = self._refused_by_vm()
        rows = []
        for delivery, refused in told:
            room = max(0, MAX_REFUSED - counts.get(delivery.head.vm, 0))
            for record, reason in refused[:room]:
                values = (delivery.head.vm, record, reason, delivery.at_ms)
                rows.append(dict(zip(REFUSED.names, values, strict=True)))
        self._write("hub_refused", rows)

    def add_token(self, token: Token) -> None:
        """See ``fleet.FleetLedger.add_token``."""
        names = orjson.dumps(token.names).decode()
        values = (token.id, token.hash, token.vm, names, token.created, token.expires, token.revoked)
        self._write("hub_token", [dict(zip(TOKEN.names, values, strict=True))])

    def revoke(self, name: str, now: int) -> int:
        """See ``fleet.FleetLedger.revoke``."""
        found = [token for token in self.tokens() if name in (token.id, token.vm) and token.revoked is None]
        for token in found:
            self.add_token(replace(token, revoked=now))
        return len(found)

    def expire(self, before: date) -> int:
        """Let the records of days before ``before`` go while their sums stay (``clickhouse_fold``); how many."""
        day = windows.number(before)
        folds = self.folds(now=True)
        self._unsettle({one for one in self._writers_settled().days if one < day})
        where = "" if self.cluster is None else f" ON CLUSTER `{self.cluster}`"
        clean(self._ask, self.command, local(RECORD, self.cluster), where, day, folds)
        count = fold(self._ask, self.command, day, folds)
        self._folds = None
        return count

    def settle(self, today: date) -> int:
        """See ``fleet.FleetLedger.settle``."""
        if not self._alone:
            return 0
        folds, now = self.folds(now=True), self._writers_settled()
        clickhouse_settle.clean(self._ask, self.command, folds, now)
        last = windows.number(today) - OPEN_DAYS
        fold, found = clickhouse_settle.sum_days(self._ask, self.command, last, folds, now)
        self._write_settled(now.with_folds(found, fold))
        return len(found)

    def _unsettle(self, touched: set[int]) -> None:
        """Before rows of these days are written: their sums hold no more."""
        if self._alone and (found := touched.intersection(self._writers_settled().days)):
            self._write_settled(self._writers_settled().with_folds(found, 0))

    def _writers_settled(self) -> Settled:
        if self._settled is None:
            self._settled = clickhouse_settle.settled(self._ask)
        return self._settled

    def _write_settled(self, changes: list[dict[str, Any]]) -> None:
        now = self._writers_settled()
        self._settled = None  # looked up again where this fails
        self._write(SETTLED.name, changes)
        self._settled = now.after(changes)

    # What is asked.

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

    def uses(self, runs: Sequence[tuple[int, int]]) -> list[dict[str, Use]]:
        """See ``Ledger.uses``."""
        return reads.uses(self.groups, runs)

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

    def _held(self, ids: Sequence[str], *, everywhere: bool = False) -> dict[str, list[days.Row]]:
        """The rows that stand under these ids; ``everywhere``: on any replica that answers, not on the next one."""
        table, more = RECORD.name, {}
        if everywhere and self.cluster is not None:
            table, more = all_replicas(RECORD, self.cluster), REACHABLE
        parts = (ids[start : start + LOOK_UP] for start in range(0, len(ids), LOOK_UP))
        return days.latest(row for part in parts for row in reads.held(partial(self._ask, more=more), table, part))

    def _gone_ids(self, ids: Sequence[str]) -> set[str]:
        folds = self.folds()
        parts = (ids[start : start + LOOK_UP] for start in range(0, len(ids), LOOK_UP))
        return {name for part in parts for name in reads.gone(self._ask, part, folds)}

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


def _refused(delivery: Delivery, foreign: set[str]) -> list[tuple[str, str]]:
    """What a VM is told of records that were not taken."""
    return [*delivery.refused, *((entry.id, "other_vm") for entry in delivery.entries if entry.id in foreign)]


def _token(row: Sequence[Any]) -> Token:
    number, digest, vm, names, *times = row
    return Token(number, digest, vm, tuple(orjson.loads(names)), *times)


def _short(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]
