"""What can be asked: one table of endpoints, each a function of the query layer and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from collector import honesty
from collector.api.parameters import MAX_LIMIT, ParameterError, filter_of, page_of
from collector.entries import flat
from collector.query import SENT, Query
from collector.rows import (
    DayRow,
    GapRow,
    ModelRow,
    QuarantineRow,
    RefusedRow,
    RuntimeRow,
    SessionRow,
    SourceRow,
    SummaryRow,
    TotalRow,
    VmRow,
    as_json,
)

PREFIX: Final = "/api/local/"
WINDOWED: Final = ("window", "since", "until", "runtime", "model", "vm")
# A cursor of the journal is a number that a database can hold.
CURSOR_DIGITS: Final = 19
Values = dict[str, Any]
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One URL below ``PREFIX``: what it answers, with which parameters, and the class of its rows for the document."""

    name: str
    help: str
    parameters: tuple[str, ...]
    row: type | None
    answer: Callable[[Query, Values], Body]


def _rows(found: Any) -> Body:
    return {"rows": [as_json(row) for row in found]}


def _aggregates(query: Query, values: Values) -> Body:
    where = filter_of(values, query.window)
    if "by" not in values:
        if wrong := next((name for name in ("limit", "cursor") if name in values), None):
            raise ParameterError(wrong, f"{wrong} goes with by: without it all days are given at once")
        return {**_rows(query.aggregates(where)), "next_cursor": None}
    try:
        page = query.breakdown(values["by"], where, values.get("limit", MAX_LIMIT), values.get("cursor"))
    except ValueError as error:
        raise ParameterError("cursor", str(error)) from None
    return {**_rows(page.rows), "next_cursor": page.next_cursor}


def _sessions(query: Query, values: Values) -> Body:
    try:
        found = query.sessions(filter_of(values, query.window), page_of(values))
    except ValueError as error:
        raise ParameterError("cursor", str(error)) from None
    return {**_rows(found.rows), "next_cursor": found.next_cursor}


def _session(query: Query, values: Values) -> Body:
    if "session_id" not in values:
        raise ParameterError("session_id", "session_id is needed")
    details = query.session(values["session_id"], values.get("vm"), values.get("runtime"))
    return {
        "rows": [
            {**as_json(detail.session), "records": [as_json(call) for call in detail.calls], "more": detail.more}
            for detail in details
        ]
    }


def _summary(query: Query, values: Values) -> Body:
    return _rows(query.summary(where=filter_of(values, query.window)))


def _records(query: Query, values: Values) -> Body:
    """A part of the journal: records whole, each again where it changed later; for exports from elsewhere."""
    text = values.get("cursor", "0")
    cursor = int(text) if text.isdecimal() and len(text) < CURSOR_DIGITS else None
    if cursor is None:
        raise ParameterError("cursor", "cursor must be the next_cursor of the page before")
    after, entries = query.ledger.changes(cursor, values.get("limit", MAX_LIMIT))
    rows = [flat(entry) for entry in entries]
    return {"rows": rows, "next_cursor": str(after) if after != cursor else None}


def _groups(query: Query, values: Values) -> Body:
    """The sums behind the rows, by what an OpenTelemetry export tells apart and by what decides their worth."""
    where, limit = filter_of(values, query.window), values.get("limit", MAX_LIMIT)
    groups, following = query.ledger.by_vm(SENT, where, values.get("cursor"), limit)
    return {"rows": [as_json(group) | {"kind": group.kind._asdict()} for group in groups], "next_cursor": following}


def _states(query: Query, values: Values) -> Body:
    """The texts behind every status, source, basis and caveat: the page shows them as they are."""
    return {
        "states": {
            state.name: {"when": state.when, "promise": state.promise, "badge": state.badge} for state in honesty.STATES
        },
        "sources": honesty.SOURCES,
        "bases": honesty.BASES,
        "caveats": honesty.CAVEATS,
        "reasons": honesty.REASONS,
    }


ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    endpoint.name: endpoint
    for endpoint in (
        Endpoint(
            "aggregates", "Sums per local day, oldest first; broken down with by, then whole days a page at a time.",
            (*WINDOWED, "by", "limit", "cursor"), DayRow, _aggregates,
        ),
        Endpoint(
            "models", "Sums per model, the costliest first.", WINDOWED, ModelRow,
            lambda query, values: _rows(query.models(filter_of(values, query.window))),
        ),
        Endpoint(
            "runtimes", "Sums per runtime, the costliest first.", WINDOWED, RuntimeRow,
            lambda query, values: _rows(query.runtimes(filter_of(values, query.window))),
        ),
        Endpoint(
            "sessions", "Sessions, a page at a time.", (*WINDOWED, "limit", "cursor", "sort"), SessionRow, _sessions
        ),
        Endpoint(
            "groups", "Sums by vm, runtime, upstream, model and worth, whole VMs a page at a time.",
            (*WINDOWED, "limit", "cursor"), None, _groups,
        ),
        Endpoint("records", "Records whole, in the order of the journal.", ("limit", "cursor"), None, _records),
        Endpoint("session", "One session with its records.", ("session_id", "vm", "runtime"), SessionRow, _session),
        Endpoint("summary", "Sums of every named window.", ("runtime", "model", "vm"), SummaryRow, _summary),
        Endpoint(
            "total", "The sum over everything asked for, as one row.", WINDOWED, TotalRow,
            lambda query, values: _rows([query.total(filter_of(values, query.window))]),
        ),
        Endpoint(
            "vms", "Sums per VM.", WINDOWED, VmRow,
            lambda query, values: _rows(query.vms(filter_of(values, query.window))),
        ),
        Endpoint("refused", "What was refused, and why.", (), RefusedRow, lambda query, _: _rows(query.refused())),
        Endpoint("gaps", "Usage lines that never arrived.", (), GapRow, lambda query, _: _rows(query.gaps())),
        Endpoint("sources", "What is read, and how it went.", (), SourceRow, lambda query, _: _rows(query.sources())),
        Endpoint(
            "quarantine", "Lines that are no usage lines, newest first.", ("limit",), QuarantineRow,
            lambda query, values: _rows(query.quarantine(values.get("limit", 100))),
        ),
        Endpoint("states", "What each cost_status, basis and caveat means.", (), None, _states),
    )
}  # fmt: skip
