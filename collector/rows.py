"""What the query layer answers: one frozen dataclass per kind of row, the same for CLI, API, page, MCP and exports.

``null``/``None`` is *not determinable*, ``0`` is *the source said zero*. Token numbers are sums over the calls that
know the class, ``None`` where none does. ``unknown_calls`` are the calls whose cost is not, or not wholly, in
``cost_usd``: a row with any is never complete. Times are ISO 8601 UTC with milliseconds and ``Z``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final

from collector.windows import ALL, Window

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC, written with a Z
SORTS: Final = ("recent", "cost", "tokens", "calls")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records a question is about; ``None`` does not narrow. ``window`` is in whole local days."""

    window: Window = ALL
    runtime: str | None = None
    model: str | None = None
    vm: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of sessions: ``limit`` rows after ``cursor`` (as given by the page before, opaque), by ``sort``."""

    limit: int = 50
    cursor: str | None = None
    sort: str = "recent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """The numbers of every row. ``cost_pico`` is the exact integer (1 USD = 10**12); ``cost_usd`` the same as a float.

    ``calls_without_tokens``: calls of which no token class is known. ``acu``: Devin's agent compute units.
    """

    calls: int
    unknown_calls: int
    calls_without_tokens: int
    input_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cache_write_1h_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    total_tokens: int | None
    cost_usd: float | None
    cost_pico: int | None
    cost_status: str
    cost_source: str | None
    cost_basis: str | None
    cost_caveat: str | None
    acu: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalRow(Sums):
    """The sum over everything a filter selects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRow(Sums):
    """One local day (``YYYY-MM-DD``); ``None`` gathers what has no time."""

    day: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakdownRow(DayRow):
    """One local day of one runtime or one model; the other of the two is ``None``."""

    runtime: str | None
    model: str | None


@dataclass(frozen=True, slots=True)
class DayPage:
    """Rows of whole days; ``next_cursor`` is the day with which the next page begins, ``None`` on the last."""

    rows: list[BreakdownRow]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow(Sums):
    """One model; ``None`` gathers calls whose model is not known."""

    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRow(Sums):
    """One runtime. ``source``: ``log``, ``vendor``, or ``None`` where both kinds stand side by side."""

    runtime: str
    source: str | None
    sessions: int
    last_seen: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VmRow(Sums):
    """One VM. ``missing_lines``: usage lines that its sequence numbers show to be lost.

    The rest is known to a hub alone: when the VM was last in touch, its version, how far its clock is ahead, how many
    records wait there, how many count nowhere there (``refused``) or were not taken by the hub (``quarantined``), and
    what stands out of it (``collector.hub.trends``).
    """

    vm: str
    runtimes: tuple[str, ...]
    sessions: int
    first_seen: str | None
    last_seen: str | None
    missing_lines: int
    last_contact: str | None = None
    version: str | None = None
    clock_skew_ms: int | None = None
    waiting: int | None = None
    refused: int | None = None
    quarantined: int | None = None
    trend: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow(Sums):
    """One named window of ``windows.WINDOWS`` with its first and last day."""

    window: str
    since: str | None
    until: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow(Sums):
    """One session, unique by vm, runtime and session_id; ``model`` is the one used last.

    ``session_ref``: the lines' own opaque reference where one stands beside ``session_id``, else ``None``.
    ``ambiguous_calls``: lines that more than one session of the runtime could own; they stay under their reference.
    ``second_estimate_*``: what ``reprice --apply`` wrote beside the first prices of ``second_estimate_calls`` of the
    calls: the latest second prices, what they are worth, when the last was made, and what those calls cost by their
    first prices. No sum has any of it.
    """

    session_id: str
    session_ref: str | None
    vm: str
    runtime: str
    model: str | None
    models: tuple[str, ...]
    model_source: str
    started_at: str | None
    ended_at: str | None
    parent_session_id: str | None
    source: str
    ambiguous_calls: int
    second_estimate_calls: int = 0
    second_estimate_at: str | None = None
    second_estimate_usd: float | None = None
    second_estimate_status: str | None = None
    second_estimate_first_usd: float | None = None


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Rows of one page; ``next_cursor`` is ``None`` on the last."""

    rows: list[SessionRow]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One record of the ledger as a person may audit it: tokens, money, rates and where they came from.

    ``second_estimate_*``: its latest later price (``reprice --apply``), beside the first and in no sum.
    """

    id: str
    at: str | None
    model: str | None
    model_source: str
    upstream: str | None
    wire: str | None
    service_tier: str | None
    grain: str
    source: str
    usage: str
    outcome: str
    http_status: int | None
    stream: bool | None
    duration_ms: int | None
    ttft_ms: int | None
    session_ref: str | None
    input_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cache_write_1h_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: float | None
    cost_pico: int | None
    cost_status: str
    cost_source: str | None
    cost_basis: str | None
    cost_caveat: str | None
    rates: dict[str, Any] | None
    book: str | None
    second_estimate_at: str | None = None
    second_estimate_usd: float | None = None
    second_estimate_status: str | None = None
    second_estimate_caveat: str | None = None
    second_estimate_rates: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SessionDetail:
    """A session with its records, oldest first; ``more`` tells that the list was cut at its limit."""

    session: SessionRow
    calls: list[CallRow]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """What was refused for one reason; ``examples`` are ids or opaque references, never content."""

    reason: str
    runtime: str
    vm: str
    count: int
    first_at: str | None
    last_at: str | None
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """A run of usage lines that were written, going by their numbers, and never arrived, not even damaged."""

    vm: str
    boot: str
    first_seq: int
    last_seq: int
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One file or store that is read. ``error`` is ``None`` while it can be; ``lag_bytes`` are not yet read."""

    path: str
    kind: str
    runtime: str | None
    last_read_at: str | None
    ok: bool
    error: str | None
    lag_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRow:
    """A line that is no usage line: where it stands and why it counts nowhere.

    ``line``: the id that its bytes still tell, if they do; such a line is here and therefore in no ``GapRow``.
    """

    path: str
    offset: int
    reason: str
    at: str | None
    line: str | None = None


def second_estimate(row: SessionRow) -> str | None:
    """What ``reprice --apply`` wrote beside a session's first prices, as a sentence; ``None`` if it wrote nothing."""
    if not row.second_estimate_calls:
        return None
    second, first = (
        "unknown" if usd is None else f"${usd:.6f}" for usd in (row.second_estimate_usd, row.second_estimate_first_usd)
    )
    return (
        f"Second estimate of {(row.second_estimate_at or '')[:10]}, in no sum: {second} "
        f"({row.second_estimate_status}) for {row.second_estimate_calls:,} of the calls, priced {first} first."
    )


def as_json(row: Any) -> dict[str, Any]:
    """A row as a JSON object: what identifies it first, then the numbers."""
    kind = type(row)
    names, values = _shown.get(kind) or _shown.setdefault(kind, _fields_of(kind))
    return dict(zip(names, values(row), strict=True))


Shown = tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]
_shown: Final[dict[type, Shown]] = {}


def _fields_of(kind: type) -> Shown:
    """The names of a row's fields in the order in which they are shown, and what takes their values out of a row."""
    names = [f.name for f in fields(kind)]
    shared = {f.name for f in fields(Sums)} if issubclass(kind, Sums) else frozenset()
    ordered = (*(name for name in names if name not in shared), *(name for name in names if name in shared))
    return ordered, attrgetter(*ordered)


def iso(ms: int | None) -> str | None:
    """Epoch milliseconds as ``2026-08-18T08:00:00.000Z``; ``None`` stays ``None``."""
    return None if ms is None else f"{(_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec='milliseconds')}Z"
