"""The query layer of a hub (or of another VM's collector) over its HTTP API: the same rows, as objects again.

Only what `report`, `status`, `export`, `reconcile` and `mcp` ask. Windows are those of the other side, its time zone
and its today.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, Final, TypeVar

import httpx
import orjson

from collector import windows
from collector.entries import entry_of
from collector.ledger import Entry, Group, Kind
from collector.query import ALL_RECORDS, MAX_DETAIL
from collector.rows import (
    CallRow,
    DayRow,
    Filter,
    GapRow,
    ModelRow,
    Page,
    RefusedRow,
    RuntimeRow,
    SessionDetail,
    SessionPage,
    SessionRow,
    SourceRow,
    SummaryRow,
    TotalRow,
    VmRow,
)

Row = TypeVar("Row")
PAGE: Final = 1000


class RemoteError(Exception):
    """An answer that is none: one sentence."""


class RemoteQuery:
    """See ``collector.query.Query``. ``token``: what readers of that API need, if they need one."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        loopback = url.startswith("http://")
        self._http = httpx.Client(base_url=url, headers=headers, timeout=60.0, trust_env=not loopback)

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    def window(self, name: str) -> windows.Window:
        """The window of that name there. Raises ``ValueError`` naming the allowed ones."""
        for row in self.summary():
            if row.window == name:
                return windows.between(row.since, row.until)
        raise ValueError(f"window {name!r} is not one of {', '.join(windows.WINDOWS)}")

    def total(self, where: Filter = ALL_RECORDS) -> TotalRow:
        """See ``Query.total``."""
        return self._rows("total", TotalRow, where)[0]

    def aggregates(self, where: Filter = ALL_RECORDS) -> list[DayRow]:
        """See ``Query.aggregates``."""
        return self._rows("aggregates", DayRow, where)

    def models(self, where: Filter = ALL_RECORDS) -> list[ModelRow]:
        """See ``Query.models``."""
        return self._rows("models", ModelRow, where)

    def runtimes(self, where: Filter = ALL_RECORDS) -> list[RuntimeRow]:
        """See ``Query.runtimes``."""
        return self._rows("runtimes", RuntimeRow, where)

    def vms(self, where: Filter = ALL_RECORDS) -> list[VmRow]:
        """See ``Query.vms``."""
        return self._rows("vms", VmRow, where)

    def sessions(self, where: Filter = ALL_RECORDS, page: Page | None = None) -> SessionPage:
        """See ``Query.sessions``; more than the API gives at once is fetched page by page."""
        page = page or Page()
        found: list[SessionRow] = []
        cursor = page.cursor
        while True:
            asked = {"limit": min(PAGE, page.limit - len(found)), "sort": page.sort, "cursor": cursor}
            body = self._ask("sessions", where, asked)
            found += [_row(SessionRow, row) for row in body["rows"]]
            cursor = self._following(body, cursor)
            if cursor is None or len(found) >= page.limit:
                return SessionPage(found, cursor)

    def session(
        self, session_id: str, vm: str | None = None, runtime: str | None = None, limit: int = MAX_DETAIL
    ) -> list[SessionDetail]:
        """See ``Query.session``; the API gives at most ``MAX_DETAIL`` records."""
        found = []
        for row in self._ask("session", Filter(vm=vm, runtime=runtime), {"session_id": session_id})["rows"]:
            calls = [_row(CallRow, call) for call in row["records"]]
            found.append(SessionDetail(_row(SessionRow, row), calls[:limit], row["more"] or len(calls) > limit))
        return found

    def groups(self, where: Filter = ALL_RECORDS) -> Iterator[Group]:
        """See ``Query.groups``."""
        cursor: str | None = None
        while True:
            body = self._ask("groups", where, {"limit": PAGE, "cursor": cursor})
            for row in body["rows"]:
                lists = {name: tuple(row[name]) for name in ("key", "sums", "known")}
                yield _row(Group, {**row, **lists, "kind": Kind(**row["kind"])})
            cursor = self._following(body, cursor)
            if cursor is None:
                return

    def summary(self, names: Sequence[str] = windows.WINDOWS, where: Filter = ALL_RECORDS) -> list[SummaryRow]:
        """See ``Query.summary``."""
        rows = {row.window: row for row in self._rows("summary", SummaryRow, where)}
        return [rows[name] for name in names]

    def refused(self) -> list[RefusedRow]:
        """See ``Query.refused``."""
        return self._rows("refused", RefusedRow)

    def gaps(self) -> list[GapRow]:
        """See ``Query.gaps``."""
        return self._rows("gaps", GapRow)

    def sources(self) -> list[SourceRow]:
        """See ``Query.sources``."""
        return self._rows("sources", SourceRow)

    def scan(self, where: Filter, calendar: windows.Calendar) -> Iterator[Entry]:
        """Every counted record of a filter, in no order; ``calendar`` tells its day. Holds the ids it has given."""
        seen: set[str] = set()
        cursor: str | None = "0"
        while cursor is not None:
            body = self._ask("records", ALL_RECORDS, {"cursor": cursor, "limit": PAGE})
            cursor = self._following(body, cursor)
            for values in body["rows"]:
                if values["id"] in seen:  # it changed while we read; the state given first was already the later one
                    continue
                seen.add(values["id"])
                entry = entry_of(values)
                if _is_asked(entry, where, calendar):
                    yield entry

    def _following(self, body: dict[str, Any], asked: str | None) -> str | None:
        """Where the next page begins; one that begins where this one did would never end."""
        cursor: str | None = body.get("next_cursor")
        if cursor is not None and cursor == asked:
            raise RemoteError(f"{self._http.base_url} gives the same page again and again.")
        return cursor

    def _rows(self, name: str, kind: type[Row], where: Filter = ALL_RECORDS) -> list[Row]:
        return [_row(kind, row) for row in self._ask(name, where)["rows"]]

    def _ask(self, name: str, where: Filter, more: dict[str, Any] | None = None) -> dict[str, Any]:
        span = where.window
        asked = {
            "since": span.since.isoformat() if span.since else None,
            "until": span.until.isoformat() if span.until else None,
            "runtime": where.runtime,
            "model": where.model,
            "vm": where.vm,
        } | (more or {})
        try:
            answer = self._http.get(
                f"/api/local/{name}", params={key: value for key, value in asked.items() if value is not None}
            )
            body: dict[str, Any] = orjson.loads(answer.content)
        except httpx.HTTPError as error:
            raise RemoteError(f"{self._http.base_url} does not answer ({error}).") from error
        except orjson.JSONDecodeError:
            raise RemoteError(f"{self._http.base_url} is no hub: its answer is not JSON.") from None
        if answer.status_code != 200:
            told = body.get("error", {}).get("message", "no reason given")
            raise RemoteError(f"{self._http.base_url} answers {answer.status_code}: {told}")
        return body


def _is_asked(entry: Entry, where: Filter, calendar: windows.Calendar) -> bool:
    """Whether a record counts and a filter selects it."""
    span = where.window
    day = None if entry.ts_ms is None else calendar.day(entry.ts_ms / 1000)
    first, last = span.first, span.last
    if entry.withdrawn is not None or (day is None and (first is not None or last is not None)):
        return False
    if day is not None and ((first is not None and day < first) or (last is not None and day > last)):
        return False
    return all(getattr(where, name) in (None, getattr(entry, name)) for name in ("runtime", "model", "vm", "source"))


def _row(kind: type[Row], values: dict[str, Any]) -> Row:
    """A JSON object as the row that it was; fields of a newer version are left out."""
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    known = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return kind(**{name: value for name, value in known.items() if name in names})
