"""What a store must be able to do for a hub, whichever engine it is: a ledger that takes batches and keeps tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, Protocol

import msgspec

from collector.hub.batch import Answer, Facts, Head
from collector.hub.tokens import Token
from collector.ledger import Contact, Entry, Ledger
from collector.rows import GapRow, QuarantineRow, RefusedRow, SourceRow, iso
from collector.windows import Calendar

# One VM may fill only so much of the hub with records that are refused; more are told to the VM and not kept.
MAX_REFUSED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """One batch that passed ``accept``. ``at_ms``: when it came."""

    head: Head
    entries: Sequence[Entry]
    refused: Sequence[tuple[str, str]]
    at_ms: int


@dataclass(frozen=True, slots=True)
class VmState:
    """What the hub keeps of a VM (the columns of ``fleet_schema.VM``)."""

    vm: str
    born: int
    cursor: int
    first: int
    last: int
    skew: int | None
    version: str | None
    waiting: int
    facts: str

    @property
    def told(self) -> Facts:
        """What the VM said of itself."""
        return msgspec.json.decode(self.facts, type=Facts)


class FleetLedger(Ledger, Protocol):
    """A hub's store; ``calendar`` is that of its days."""

    calendar: Calendar

    def take(self, deliveries: Sequence[Delivery]) -> list[Answer]:
        """Make deliveries durable, together; what each VM is told."""

    def expire(self, before: date) -> int:
        """Let the records of days before ``before`` go while every total stays; how many."""

    def settle(self, today: date) -> int:
        """Sum days that are over, a month at a time, so that sums over all time are quick; how many, 0 when done.

        No answer changes.
        """

    def states(self) -> list[VmState]:
        """What is known of the VMs that push."""


class TokenStore(Protocol):
    """Where a hub keeps its tokens."""

    def add_token(self, token: Token) -> None:
        """Keep a new token."""

    def token(self, digest: str) -> Token | None:
        """The token of a hash."""

    def tokens(self) -> list[Token]:
        """Every token, the oldest first."""

    def revoke(self, name: str, now: int) -> int:
        """Revoke the token of this id, or all tokens of this VM; how many were valid until now."""

    def close(self) -> None:
        """Let go of the store."""


def behind(known: VmState | None, head: Head) -> int | None:
    """From where a VM must go on because the hub lacks what was before this batch; ``None`` if it lacks nothing."""
    have = known.cursor if known is not None and known.born == head.born else 0
    return have if head.before > have else None


def is_stale(known: VmState | None, head: Head) -> bool:
    """Whether the hub has this batch already, so that what it says of known records may be old."""
    return known is not None and known.born == head.born and head.after <= known.cursor


def next_state(known: VmState | None, delivery: Delivery) -> VmState:
    """What is known of a VM after a delivery."""
    head, at = delivery.head, delivery.at_ms
    stale = is_stale(known, head)
    return VmState(
        vm=head.vm,
        born=head.born,
        cursor=known.cursor if known is not None and stale else head.after,
        first=known.first if known is not None else at,
        last=max(at, known.last) if known is not None else at,
        skew=round(head.sent_at * 1000) - at,
        version=head.facts.version or None,
        waiting=head.facts.waiting,
        facts=msgspec.json.encode(head.facts).decode(),
    )


def contacts(states: Sequence[VmState], refused: dict[str, int]) -> list[Contact]:
    """What ``Ledger.contacts`` says; ``refused``: records of each VM that the hub did not take."""
    found = []
    for state in states:
        told = state.told
        missing = sum(gap.last - gap.first + 1 for gap in told.gaps)
        aside = sum(row.count for row in told.refused)
        quarantined = refused.get(state.vm, 0)
        found.append(
            Contact(
                state.vm, state.first, state.last, state.skew, state.version, state.waiting, missing, aside, quarantined
            )
        )
    return found


def gaps(states: Sequence[VmState]) -> list[GapRow]:
    """What ``Ledger.gaps`` says: the VMs' own findings, for a line that a VM refused is no gap."""
    rows = [(state.vm, gap) for state in states for gap in state.told.gaps]
    return [
        GapRow(vm=vm, boot=gap.boot, first_seq=gap.first, last_seq=gap.last, lines=gap.last - gap.first + 1)
        for vm, gap in sorted(rows, key=lambda row: (row[0], row[1].boot, row[1].first))
    ]


def refusals(states: Sequence[VmState], refused: Sequence[tuple[str, str, int, int, int, str]]) -> list[RefusedRow]:
    """What ``Ledger.refused`` says: what the VMs refused and what the hub did (vm, reason, count, first, last, id)."""
    told = [
        RefusedRow(
            reason=row.reason, runtime=row.runtime, vm=state.vm, count=row.count, first_at=None, last_at=None,
            examples=(),
        )
        for state in states
        for row in state.told.refused
    ]  # fmt: skip
    own = [
        RefusedRow(
            reason=f"hub:{reason}", runtime="", vm=vm, count=count, first_at=iso(first), last_at=iso(last),
            examples=(example,),
        )
        for vm, reason, count, first, last, example in refused
    ]  # fmt: skip
    return told + own


def counts(rows: Iterable[RefusedRow]) -> dict[str, int]:
    """What ``Ledger.refused_counts`` says."""
    found: Counter[str] = Counter()
    for row in rows:
        found[row.reason] += row.count
    return dict(found)


def sources(states: Sequence[VmState]) -> list[SourceRow]:
    """What ``Ledger.sources`` says: a hub's sources are its VMs."""
    return [
        SourceRow(
            path=state.vm, kind="vm", runtime=None, last_read_at=iso(state.last), ok=True, error=None, lag_bytes=0
        )
        for state in sorted(states, key=lambda state: state.vm)
    ]


def quarantined(rows: Sequence[tuple[str, str, str, int]]) -> list[QuarantineRow]:
    """What ``Ledger.quarantine`` says (vm, id, reason, at)."""
    return [
        QuarantineRow(path=f"{vm}/{record}", offset=0, reason=reason, at=iso(at)) for vm, record, reason, at in rows
    ]
