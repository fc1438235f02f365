"""The ClickHouse ledger of a hub: embedded (``chdb:///path``: one process per path) or a server or cluster (``https://``).

Records are inserted in bulk as JSONEachRow, one insert for all that waits. An insert that is repeated is known by its
deduplication token, a record that is repeated by its id.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any, Final

import orjson

from collector import windows
from collector.hub import fleet
from collector.hub.batch import Answer
from collector.hub.fleet import MAX_REFUSED, Delivery
from collector.hub.tokens import Token
from collector.ledger import Entry, clickhouse_settle
from collector.ledger import clickhouse_days as days
from collector.ledger import clickhouse_reads as reads
from collector.ledger.clickhouse_answers import ClickHouseAnswers
from collector.ledger.clickhouse_decide import Offer, Written, choose, rank, told_apart
from collector.ledger.clickhouse_fold import clean, fold
from collector.ledger.clickhouse_schema import RECORD, SETTLED, all_replicas, local
from collector.ledger.clickhouse_settle import OPEN_DAYS, Settled
from collector.ledger.fleet_schema import REFUSED, TOKEN, VM
from collector.ledger.schema import UNDATED

LOOK_UP: Final = 5_000
# A record is on most replicas of its shard when its insert returns, so among those that answer one has it.
REACHABLE: Final = {"skip_unavailable_shards": 1}


class ClickHouseLedger(ClickHouseAnswers):
    """See ``Ledger`` and ``fleet.FleetLedger``. Not shared by threads: open one per thread."""

    # As the writer knows it, who alone changes it.
    _settled: Settled | None = None

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


def _refused(delivery: Delivery, foreign: set[str]) -> list[tuple[str, str]]:
    """What a VM is told of records that were not taken."""
    return [*delivery.refused, *((entry.id, "other_vm") for entry in delivery.entries if entry.id in foreign)]
