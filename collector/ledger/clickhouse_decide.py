"""Which row is written for an entry, given what the ClickHouse ledger has under its id. Pure.

The rules are those of ``merge.prefer``, as in the SQLite ledger. ClickHouse keeps the row with the greatest version, so
a version is what orders two writers that do not see each other: for a usage line the place in its VM's journal.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from collector.ledger import Entry
from collector.ledger.clash import renamed
from collector.merge import Version, prefer
from shim.line import ID

OLDEST: Final = 1


@dataclass(frozen=True, slots=True)
class Offer:
    """An entry with its rank: ``(born << 64) | place in the journal``, see ``rank``."""

    entry: Entry
    rank: int
    keep_known: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """The row that is written: an entry and its version."""

    entry: Entry
    version: int


class ForeignRecord(Exception):
    """A usage line under an id that another VM's line has."""


def rank(born_ms: int, place: int) -> int:
    """A later ledger of a VM comes after an earlier one, and within one the later place in its journal."""
    return (born_ms << 64) | place


def told_apart(offers: Sequence[Offer], known: Mapping[str, Entry]) -> list[Offer] | None:
    """The offers where some lines of one VM share an id, of which the earliest keeps it: the others, also one that is
    held, get ids of their own (``clash``). ``None`` where there are none. ``known``: what is held, by id."""
    held = [Offer(entry, OLDEST, keep_known=True) for entry in known.values()]
    owner: dict[str, Entry] = {}
    for offer in (*held, *offers):
        entry = offer.entry
        if ID.fullmatch(entry.id) and entry.vm == owner.setdefault(entry.id, entry).vm:
            owner[entry.id] = min(owner[entry.id], entry, key=_moment)
    told = [replace(offer, entry=renamed(offer.entry)) if _gives_way(offer.entry, owner) else offer for offer in offers]
    names = {offer.entry.id for offer in told}
    for offer in held:
        if _gives_way(offer.entry, owner) and (moved := renamed(offer.entry)).id not in names:
            told.append(replace(offer, entry=moved))
    return told if told != list(offers) else None


def _moment(entry: Entry) -> int:
    return entry.ts_ms or 0


def _gives_way(entry: Entry, owner: Mapping[str, Entry]) -> bool:
    """Whether an earlier call of its VM has the id of this line."""
    first = owner.get(entry.id)
    return first is not None and first.vm == entry.vm and _moment(first) < _moment(entry)


def choose(
    offers: Iterable[Offer], known: Mapping[str, Written], gone: Container[str], raised: Callable[[Written], Written]
) -> tuple[dict[str, Written], set[str]]:
    """The rows to write by id, and the ids that belong to another VM. ``known``: what is held, ``gone``: what expired;
    ``raised`` gives a row a version above all that ever stood under its id."""
    written: dict[str, Written] = {}
    foreign: set[str] = set()
    for offer in offers:
        name = offer.entry.id
        if name in gone:
            continue
        try:
            found = decide(offer, written.get(name) or known.get(name))
        except ForeignRecord:
            foreign.add(name)
            continue
        if found is not None:
            written[name] = raised(found)
    return written, foreign


def decide(offer: Offer, known: Written | None) -> Written | None:
    """The row to write, ``None`` where what is known stays. Raises ``ForeignRecord``."""
    if known is None:
        return Written(offer.entry, OLDEST if offer.keep_known else offer.rank)
    if ID.fullmatch(offer.entry.id):
        return _line(offer, known)
    return _record(offer, known)


def _line(offer: Offer, known: Written) -> Written | None:
    if offer.entry.vm != known.entry.vm:
        raise ForeignRecord
    if _moment(offer.entry) < _moment(known.entry):
        return Written(offer.entry, max(offer.rank, known.version + 1))  # what is held has an id of its own by now
    # The same content from a later place is written too: what another hub holds back from between may not replace it.
    same_place = offer.rank == known.version
    if offer.keep_known or offer.rank < known.version or (same_place and offer.entry == known.entry):
        return None
    return Written(offer.entry, offer.rank + same_place)


def _record(offer: Offer, known: Written) -> Written | None:
    mine = replace(offer.entry, vm=known.entry.vm)  # who reported it first keeps it
    if mine == known.entry:
        return None
    new, old = version(mine), version(known.entry)
    same = (new.session_id, new.revision, new.content) == (old.session_id, old.revision, old.content)
    if prefer(new, old) or (same and not offer.keep_known):
        return Written(mine, max(offer.rank, known.version + 1))
    return None


def version(entry: Entry) -> Version:
    """What decides between two versions of a store's record."""
    counts = (entry.tokens.output_tokens, entry.tokens.total, entry.acu_micro)
    content = tuple(-1 if count is None else count for count in counts)
    return Version(entry.session_id, entry.owner_ms, entry.revision, content)
