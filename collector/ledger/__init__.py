"""The ledger's interface: what the query layer, the push and the hub need of a store, whichever engine keeps it.

An ``Entry`` is one merged, priced record with all its names spelled out: what is pushed to a hub and what ``append``
takes. ``Group`` is the unit of every answer: sums over records that agree on the asked dimensions *and* on their
``Kind``, so that the query layer can say what a sum is worth (``collector.honesty``) without seeing single records.
Both engines pass the same contract tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from collector.rows import Filter, GapRow, Page, QuarantineRow, RefusedRow, SourceRow
from shim.line import Tokens

DIMENSIONS: Final = ("day", "runtime", "model", "vm", "source", "upstream")


class Kind(NamedTuple):
    """What decides the worth of a record's numbers: how its usage ended and how it was priced (``honesty``)."""

    usage: str
    outcome: str
    cost_status: str
    cost_source: str | None
    cost_basis: str | None
    cost_caveat: str | None
    reason: str | None
    counted: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the ledger in full. Times in epoch ms, money in pico-USD, ACU in millionths.

    ``id``: ``<boot>-<seq>`` of a usage line, or 32 hex digits (keyed by runtime and the store's own key). ``ts_ms`` is
    ``None`` where the source knows no time. ``session_ref``: a line's opaque reference. ``attribution``: how a line
    found its session, or ``stand_in`` for a call that nobody metered. ``withdrawn``: why the record counts nowhere
    (``twin``, ``metered``, ``taken_back``), ``None`` while it counts. ``rates``: the canonical JSON of the rates used.
    """

    id: str
    vm: str
    runtime: str
    source: str
    session_id: str
    ts_ms: int | None
    tokens: Tokens
    kind: Kind
    session_ref: str | None = None
    session_source: str | None = None
    attribution: str | None = None
    model: str | None = None
    model_source: str = "log"
    upstream: str | None = None
    wire: str | None = None
    service_tier: str | None = None
    grain: str = "call"
    parent_session_id: str | None = None
    owner_ms: int = 0
    revision: int = 0
    ended_ms: int | None = None
    http_status: int | None = None
    stream: bool | None = None
    duration_ms: int | None = None
    ttft_ms: int | None = None
    response: str | None = None
    cost_pico: int | None = None
    acu_micro: int | None = None
    rates: str | None = None
    withdrawn: str | None = None


@dataclass(slots=True)  # not frozen: a report makes thousands, and a frozen one takes four times as long to make
class Group:
    """Sums over the records of one key and one kind.

    ``sums`` and ``known`` follow ``TOKEN_CLASSES``: tokens of each class, how many records know it. ``cost_pico`` sums
    the ``priced`` records. ``without_tokens``: records of which no class is known.
    """

    key: tuple[Any, ...]
    kind: Kind
    calls: int
    sums: tuple[int, ...]
    known: tuple[int, ...]
    without_tokens: int
    priced: int
    cost_pico: int
    acu_known: int
    acu_micro: int


@dataclass(slots=True)  # not frozen, as a group is not
class Total:
    """Sums over the records of one key, whatever their kinds; what of them a sum may claim is in ``counted``.

    ``unknown``: counted calls whose cost is not, or not wholly, in ``cost_pico``. ``without_tokens`` and ``cost_pico``
    are of counted kinds alone. ``counted``: the kinds that count; ``priced``: those of them that have a cost.
    """

    key: tuple[Any, ...]
    calls: int
    sums: tuple[int, ...]
    known: tuple[int, ...]
    without_tokens: int
    unknown: int
    cost_pico: int
    acu_known: int
    acu_micro: int
    counted: frozenset[Kind]
    priced: frozenset[Kind]


@dataclass(frozen=True, slots=True)
class SessionHead:
    """What a ledger knows of a session beside its sums; ``number`` identifies it within this ledger."""

    number: int
    vm: str
    runtime: str
    session_id: str
    session_ref: str | None
    model: str | None
    model_source: str
    started_ms: int | None
    ended_ms: int | None
    parent_session_id: str | None
    source: str
    ambiguous: int


@dataclass(frozen=True, slots=True)
class Seen:
    """First and last record (epoch ms) and number of sessions of one vm or runtime."""

    name: str
    first_ms: int | None
    last_ms: int | None
    sessions: int


@dataclass(frozen=True, slots=True)
class Contact:
    """What a hub knows of a VM that pushes. Times in epoch ms; ``skew_ms``: how far the VM's clock is ahead of ours.

    ``waiting``: records that the VM has not pushed yet. ``missing``: usage lines that never arrived there, ``refused``
    what counts nowhere there, ``quarantined`` what the hub refused of it.
    """

    vm: str
    first_ms: int
    last_ms: int
    skew_ms: int | None
    version: str | None
    waiting: int
    missing: int
    refused: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """A second price: when it was made (epoch ms), pico-USD, what it is worth, and the rates as JSON."""

    made_ms: int
    cost_pico: int | None
    kind: Kind
    rates: str | None


class SecondPrice(NamedTuple):
    """The latest second price of a record (``Entry.id``) of a session, and what it cost first (pico-USD)."""

    session: int
    record: str
    first_pico: int | None
    estimate: Estimate


class Use(NamedTuple):
    """On how many days there were records, and their tokens."""

    days: int
    tokens: int


class LedgerError(Exception):
    """A ledger that cannot be used: of a newer version, damaged, not writable. One sentence with the way back."""


class Ledger(Protocol):
    """One store of records. Every write is a transaction; reading never blocks on writing."""

    def append(self, entries: Iterable[Entry], *, keep_known: bool = False) -> int:
        """Add or replace records by id (``merge.prefer`` decides between two versions); how many changed.

        ``keep_known``: what is known and of the same version stays as it is (the entries are older than that).
        """

    def changes(self, after: int, limit: int) -> tuple[int, list[Entry]]:
        """New and changed records since a cursor, oldest first, and the next cursor."""

    def groups(self, by: Sequence[str], where: Filter) -> list[Group]:
        """Sums by ``DIMENSIONS`` (days as day numbers, ``None`` without a time), from rollups."""

    def totals(self, by: Sequence[str], where: Filter) -> list[Total]:
        """What ``groups`` says, one row per key (``totals.of_groups``): what most answers show."""

    def by_day(self, by: Sequence[str], where: Filter, after: int | None, limit: int) -> tuple[list[Total], int | None]:
        """The totals by day and ``by`` in order, a page at a time, and the day with which the next page begins.

        Whole days from day number ``after`` on (``None``: all, first what has no time), at least one, and no more of
        them than make ``limit`` totals.
        """

    def by_vm(self, by: Sequence[str], where: Filter, start: str | None, limit: int) -> tuple[list[Group], str | None]:
        """The groups by vm and ``by``, VM after VM from ``start`` on, a page at a time, and the VM of the next page.

        Whole VMs, at least one, and not more than make ``limit`` groups; all of them where a part would cost what the
        whole costs.
        """

    def keys(self, by: Sequence[str], where: Filter) -> set[tuple[Any, ...]]:
        """The keys that ``groups`` would have, without their sums."""

    def sessions(self, where: Filter, page: Page) -> tuple[list[SessionHead], str | None]:
        """One page of sessions that have records in ``where`` or are listed by a store, and the next cursor."""

    def find_session(self, vm: str | None, runtime: str | None, session_id: str) -> list[SessionHead]:
        """The sessions of that id (more than one only where vm or runtime is left open)."""

    def session_groups(self, sessions: Sequence[int], where: Filter) -> list[Group]:
        """Sums with key ``(session number, model)``."""

    def records(self, session: int, limit: int) -> list[Entry]:
        """The records of one session, oldest first."""

    def second_prices(self, sessions: Sequence[int], where: Filter) -> list[SecondPrice]:
        """The latest second prices of these sessions' records; they are kept where they were made and not pushed."""

    def seen(self, by: str) -> list[Seen]:
        """First, last and number of sessions per ``vm`` or ``runtime``."""

    def uses(self, runs: Sequence[tuple[int, int]], vm: str | None = None) -> list[dict[str, Use]]:
        """For each run of days (first and last day number): what each VM, or that one, used in it; not those that have
        no records there."""

    def refused(self) -> list[RefusedRow]:
        """What was refused, by reason, runtime and vm."""

    def refused_counts(self) -> dict[str, int]:
        """How much ``refused`` lists for each reason."""

    def gaps(self) -> list[GapRow]:
        """Runs of missing usage lines."""

    def sources(self) -> list[SourceRow]:
        """What is read, and how that went last time."""

    def quarantine(self, limit: int) -> list[QuarantineRow]:
        """Lines that are no usage lines, newest first."""

    def contacts(self) -> list[Contact]:
        """The VMs that push to this ledger; none where it is not a hub's."""

    def scan(self, where: Filter) -> Iterator[Entry]:
        """Every counted record of a filter in order of time, for exports; streams."""

    def close(self) -> None:
        """Let go of the store."""
