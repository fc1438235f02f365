"""Entries of other ledgers into this one (a hub's side of the push): the same records under the same ids.

An entry that is not known is added. A usage line that is known is replaced by what its VM says now (a new session, a
withdrawal), unless it is of another moment: then two calls have one id, of which the earlier keeps it (``clash``), and
both count. Of two versions of a store's record ``merge.prefer`` decides; the VM that reported it first keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from collector.ledger import Entry, clash
from collector.ledger.interning import Shape
from collector.ledger.schema import COUNTS, RECORD, UNDATED, WITHDRAWN
from collector.ledger.writer import AT, Row, Stored, Transaction, content
from collector.merge import Version, prefer
from shim.line import ID, TOKEN_CLASSES

STATES: Final = {None: COUNTS} | {name: number for number, name in WITHDRAWN.items()}


def append(tx: Transaction, entries: Iterable[Entry], *, keep_known: bool = False) -> int:
    """Add or replace records by id (see ``Ledger.append``); how many changed.

    Raises ``ValueError`` for an id that is none of ours.
    """
    lines: list[Entry] = []
    records: dict[bytes, Entry] = {}
    for entry in entries:
        if ID.fullmatch(entry.id):
            lines.append(entry)
        else:
            records[bytes.fromhex(entry.id)] = entry
    return _append_lines(tx, lines, keep_known) + _append_records(tx, records, keep_known)


def _append_lines(tx: Transaction, entries: Sequence[Entry], keep_known: bool) -> int:
    added: dict[int, Row] = {}
    again: dict[int, list[Entry]] = {}
    for entry in entries:
        boot, _, seq = entry.id.rpartition("-")
        base, note = tx.boot(boot, entry.vm)
        number = base + int(seq)
        if note(int(seq)):
            added[number] = _row(tx, number, entry, entry.vm)
        else:
            again.setdefault(number, []).append(entry)
    stored = tx.rows(again.keys() - added.keys())
    changed: dict[int, Row] = {}
    apart: list[Entry] = []
    moved: set[int] = set()
    for number, told in again.items():
        for entry in told:
            old = added.get(number) or changed.get(number) or stored.get(number)
            if old is None:
                break  # a line that is known and not here has expired
            row, later = _row(tx, number, entry, entry.vm), (entry.ts_ms or 0) - (old[AT["ts"]] or 0)
            if later > 0:
                apart.append(clash.renamed(entry))
            elif number in added:
                if later and (other := _own_number(tx, entry, old)) is not None:
                    added[other] = (other, *old[1:])
                added[number] = row
            elif later and (other := _own_number(tx, entry, old)) is not None:
                tx.renumber(number, other)
                moved.add(other)
                stored[other] = (other, *stored.pop(number)[1:])
                changed[other] = (other, *old[1:])
                changed.pop(number, None)
                added[number] = row
            elif later or not keep_known:
                changed[number] = row
    changed = {number: row for number, row in changed.items() if row != stored[number]}
    tx.add(list(added.values()))
    tx.replace(list(changed.values()))
    return len(added) + len(moved | changed.keys()) + (_append_lines(tx, apart, keep_known) if apart else 0)


def _own_number(tx: Transaction, entry: Entry, row: Row) -> int | None:
    """The number of a record whose id an earlier call, ``entry``, has; ``None`` where it is here under it already."""
    boot, _, seq = entry.id.rpartition("-")
    base, note = tx.boot(clash.boot_of(boot, int(seq), clash.content_of_row(row, AT)), entry.vm)
    return base + clash.FIRST if note(clash.FIRST) else None


def _append_records(tx: Transaction, entries: dict[bytes, Entry], keep_known: bool) -> int:
    stored, expired = tx.stored(entries), tx.expired(entries)
    added, replaced, versions = [], [], []
    for key, entry in entries.items():
        if key in expired:
            continue
        old = stored.get(key)
        number, vm = (old.id, old.vm) if old else (tx.vendor_id(), entry.vm)
        row = _row(tx, number, entry, vm)
        mine = Version(entry.session_id, entry.owner_ms, entry.revision, content(row))
        if old is None:
            added.append(row)
        elif (row, mine) != (old.row, old.version) and _replaces(mine, old, keep_known):
            replaced.append(row)
        else:
            continue
        versions.append((key, number, mine))
    tx.add(added)
    tx.replace(replaced)
    tx.set_versions(versions)
    return len(versions)


def _replaces(mine: Version, old: Stored, keep_known: bool) -> bool:
    """Whether a version may stand for what is stored: it is preferred, or the same one with a new price or state."""
    same = (mine.session_id, mine.revision, mine.content) == (
        old.version.session_id,
        old.version.revision,
        old.version.content,
    )
    return prefer(mine, old.version) or (same and not keep_known)


def _row(tx: Transaction, number: int, entry: Entry, vm: str) -> Row:
    shape = Shape(
        vm,
        entry.runtime,
        entry.source,
        entry.model,
        entry.model_source,
        entry.upstream,
        entry.wire,
        entry.service_tier,
        entry.grain,
        entry.session_source,
        entry.attribution,
    )
    numbers = tx.numbers
    session = numbers.session(vm, entry.runtime, entry.session_id)
    if entry.parent_session_id is not None:
        tx.set_parent(session, entry.parent_session_id)
    ref = entry.session_ref
    cell = {name: getattr(entry.tokens, name) for name in TOKEN_CLASSES} | {
        "id": number,
        "ts": entry.ts_ms,
        "day": UNDATED if entry.ts_ms is None else tx.calendar.day(entry.ts_ms / 1000),
        "shape": numbers.shape(shape),
        "kind": numbers.kind(entry.kind),
        "session": session,
        "ref": None if ref is None else numbers.session(vm, entry.runtime, ref),
        "cost": entry.cost_pico,
        "rates": numbers.rates(entry.rates),
        "acu": entry.acu_micro,
        "http_status": entry.http_status,
        "stream": None if entry.stream is None else int(entry.stream),
        "duration_ms": entry.duration_ms,
        "ttft_ms": entry.ttft_ms,
        "response": entry.response,
        "ended": entry.ended_ms,
        "withdrawn": STATES[entry.withdrawn],
    }
    return tuple(cell[name] for name in RECORD)
