"""One batch of a store on its way into one transaction: merged, priced, inserted, settled.

A self-reporting runtime's records count, each once, for the session that paid; a record of a token-blind runtime that
has tokens is evidence and is not added.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collector.call import MAX_PLAUSIBLE
from collector.ingest_sessions import SessionLists, epoch_ms, record_key
from collector.ledger.interning import Shape
from collector.ledger.schema import COUNTS, TAKEN_BACK, UNDATED
from collector.ledger.settle import Settler, side_of
from collector.ledger.writer import AT, Row, Stored, Transaction
from collector.merge import Version, is_evidence, prefer, version
from collector.pricing import Pricer
from collector.quotes import kind_of
from collector.record import Record
from collector.runtimes import Batch
from shim.allowlist import Allowlist
from shim.identity import reference
from shim.line import TOKEN_CLASSES, Tokens


class BatchStep:
    """One batch of a store on its way into one transaction."""

    def __init__(self, tx: Transaction, vm: str, allowlist: Allowlist, pricer: Pricer, keys: Sequence[bytes]) -> None:
        self._tx = tx
        self._vm = vm
        self._allowlist = allowlist
        self._pricer = pricer
        self._keys = keys
        self._settler = Settler(tx)
        self._lists = SessionLists(tx, vm, allowlist, keys, self._settler)
        self.changed = 0
        self.known = 0
        self.evidence = 0

    def take(self, batch: Batch) -> None:
        """Merge records and sessions of one batch, and settle which usage lines they concern."""
        best: dict[bytes, tuple[Version, Record]] = {}
        copies: list[tuple[bytes, int]] = []
        for record in batch.records:
            record = sane(record)
            if is_evidence(record, self._allowlist):
                self._keep(record)
                continue
            key, mine = record_key(record.runtime, record.key), version(record)
            other = best.get(key)
            if other is None or prefer(mine, other[0]):
                best[key] = (mine, record)
            copies.append((key, self._session(record)))
        self._merge(best, copies)
        for session in batch.sessions:
            self._lists.take(session)
        self._settler.settle()

    def _session(self, record: Record, vm: str | None = None) -> int:
        return self._tx.numbers.session(vm or self._vm, record.runtime, record.session_id)

    def _merge(self, best: dict[bytes, tuple[Version, Record]], holders: list[tuple[bytes, int]]) -> None:
        stored, expired = self._tx.stored(best), self._tx.expired(best)
        added, replaced, versions = [], [], []
        paid: dict[bytes, int] = {}
        for key, (mine, record) in best.items():
            old = stored.get(key)
            if key in expired:
                self.known += 1
                continue
            if old is not None and not prefer(mine, old.version):
                self.known += 1
                paid[key] = old.row[AT["session"]]
                continue
            number, vm = (old.id, old.vm) if old else (self._tx.vendor_id(), self._vm)
            row = self._row(number, vm, record)
            paid[key] = row[AT["session"]]
            versions.append((key, number, mine))
            self._seed(vm, record, row, old)
            if old is None:
                added.append(row)
            else:
                replaced.append(row)
                holders.append((key, old.row[AT["session"]]))
        self._tx.add(added)
        self._tx.replace(replaced)
        self._tx.set_versions(versions)
        self._tx.note_copies((one for one in holders if one[1] != paid.get(one[0], one[1])), paid.items())
        self.changed += len(added) + len(replaced)

    def _seed(self, vm: str, record: Record, row: Row, old: Stored | None) -> None:
        """Lines that could be of the same call, now or as the record was before, are looked at again."""
        if record.grain == "session":
            return
        for values in (row, old.row if old else None):
            if values is not None and values[AT["ts"]] is not None and values[AT["withdrawn"]] != TAKEN_BACK:
                cell = dict(zip(AT, values, strict=True))
                tokens = Tokens(*(cell[name] for name in TOKEN_CLASSES))
                side = side_of(
                    cell["id"],
                    vm,
                    cell["ts"],
                    cell["duration_ms"],
                    cell["ended"],
                    record.model,
                    tokens,
                    cell["response"],
                )
                self._settler.record(side)

    def _row(self, number: int, vm: str, record: Record) -> Row:
        ts_ms = epoch_ms(record.ts)
        shape = Shape(
            vm,
            record.runtime,
            "vendor",
            record.model,
            record.model_source if record.model else "none",
            record.provider,
            None,
            record.service_tier,
            record.grain,
        )
        session = self._session(record, vm)
        if record.parent_session_id is not None:
            self._tx.set_parent(session, record.parent_session_id)
        cost, kind, rates = self._price(record)
        return (
            number,
            ts_ms,
            UNDATED if ts_ms is None else self._tx.calendar.day(record.ts),
            self._tx.numbers.shape(shape),
            kind,
            session,
            None,
            *(getattr(record.tokens, name) for name in TOKEN_CLASSES),
            cost,
            rates,
            record.acu_micro,
            None,
            None,
            record.duration_ms,
            None,
            self._response(record),
            epoch_ms(record.ended_ts),
            TAKEN_BACK if record.taken_back else COUNTS,
        )

    def _price(self, record: Record) -> tuple[int | None, int, int | None]:
        priced = self._pricer.price(record)
        kind = kind_of(record.usage, record.outcome, priced)
        rates = self._tx.numbers.rates(priced.card.data if priced.card else None)
        return priced.cost_pico, self._tx.numbers.kind(kind), rates

    def _response(self, record: Record) -> str | None:
        if record.response_id is None or not self._keys:
            return None
        return reference(self._keys[0], "response", record.response_id)

    def _keep(self, record: Record) -> None:
        key = record_key(record.runtime, record.key)
        counts = [getattr(record.tokens, name) for name in TOKEN_CLASSES]
        row = (key, self._vm, record.runtime, record.session_id, epoch_ms(record.ts), record.model, *counts)
        if self._tx.keep_evidence([row]):
            self.evidence += 1
            self._tx.refuse("token_blind_record", record.runtime, self._vm, key.hex(), epoch_ms(record.ts))


def sane(record: Record) -> Record:
    """The record without counts that no call can have."""
    counts = [getattr(record.tokens, name) for name in TOKEN_CLASSES]
    if all(count is None or 0 <= count <= MAX_PLAUSIBLE for count in counts):
        return record
    tokens = Tokens(*(count if count is None or 0 <= count <= MAX_PLAUSIBLE else None for count in counts))
    return msgspec.structs.replace(record, tokens=tokens)
