"""The ledger for agents: four read-only MCP tools over the query layer, spoken on standard input and output.

An agent gets the same numbers as a person, to the last digit, with the sentences that say what each is worth, so that
it cannot report an unknown cost as zero. Needs the ``mcp`` extra.
"""

from __future__ import annotations

from typing import Any, Final

from mcp.server import MCPServer

from collector import honesty, windows
from collector.query import Query
from collector.rows import CallRow, Filter, Page, SessionDetail, SessionRow, Sums, as_json, second_estimate
from shim import __version__

INSTRUCTIONS: Final = (
    "Token usage and cost of the agent runtimes on this VM or fleet. cost_usd null means unknown: say so, never 0. "
    "With unknown_calls above 0 the figure is a lower bound. Days are local days of the ledger's time zone."
)


PRICED_WITH: Final = (
    "id",
    "model",
    "cost_usd",
    "rates",
    "cost_status",
    "cost_caveat",
    "second_estimate_at",
    "second_estimate_usd",
    "second_estimate_status",
    "second_estimate_rates",
)


def server(query: Query) -> MCPServer[Any]:
    """The MCP server over one query layer."""
    server: MCPServer[Any] = MCPServer("vm-usage", version=__version__, instructions=INSTRUCTIONS)
    tools = Tools(query)
    for tool in (tools.get_cost_summary, tools.list_sessions, tools.get_session, tools.explain_cost):
        server.add_tool(tool)
    return server


class Tools:
    """What an agent can ask: names, parameters and descriptions of the methods are those of the tools."""

    def __init__(self, query: Query) -> None:
        self._query = query

    async def get_cost_summary(
        self,
        window: str | None = None,
        since: str | None = None,
        until: str | None = None,
        runtime: str | None = None,
        model: str | None = None,
        vm: str | None = None,
    ) -> dict[str, Any]:
        """Cost and tokens of one window (today, week, month, 7d, 30d, all) or from since to until (YYYY-MM-DD),
        or of every window where none is given; narrowed by runtime, model and vm."""
        if window is None and since is None and until is None:
            rows = self._query.summary(where=Filter(runtime=runtime, model=model, vm=vm))
            return {"rows": [explained(row) for row in rows]}
        total = self._query.total(filter_of(self._query, window, since, until, runtime, model, vm))
        return {"rows": [{"window": window, "since": since, "until": until, **explained(total)}]}

    async def list_sessions(
        self,
        limit: int = 20,
        cursor: str | None = None,
        sort: str = "recent",
        window: str = "all",
        runtime: str | None = None,
        model: str | None = None,
        vm: str | None = None,
    ) -> dict[str, Any]:
        """Sessions with their cost, a page at a time; sort is recent, cost, tokens or calls."""
        where = filter_of(self._query, window, None, None, runtime, model, vm)
        page = self._query.sessions(where, Page(max(1, min(limit, 200)), cursor, sort))
        return {"rows": [as_json(row) for row in page.rows], "next_cursor": page.next_cursor}

    async def get_session(self, session_id: str, vm: str | None = None, runtime: str | None = None) -> dict[str, Any]:
        """One session with its records: time, model, tokens, cost of each call."""
        return {
            "rows": [
                {**as_json(one.session), "records": [as_json(call) for call in one.calls], "more": one.more}
                for one in self._found(session_id, vm, runtime)
            ]
        }

    async def explain_cost(self, session_id: str, vm: str | None = None, runtime: str | None = None) -> dict[str, Any]:
        """Why a session's cost is what it is: what its status promises, each caveat, the rates of each call."""
        return {
            "rows": [
                {**explained(one.session), "calls_priced_with": [_priced_with(call) for call in one.calls]}
                for one in self._found(session_id, vm, runtime)
            ]
        }

    def _found(self, session_id: str, vm: str | None, runtime: str | None) -> list[SessionDetail]:
        found = self._query.session(session_id, vm, runtime, limit=200)
        if not found:
            raise ValueError(f"no session {session_id!r}; list_sessions shows those there are")
        return found


def _priced_with(call: CallRow) -> dict[str, Any]:
    return {name: getattr(call, name) for name in PRICED_WITH}


def filter_of(
    query: Query,
    window: str | None,
    since: str | None,
    until: str | None,
    runtime: str | None,
    model: str | None,
    vm: str | None,
) -> Filter:
    """The filter of a tool call. Raises ``ValueError`` with what is allowed."""
    if window is not None and (since or until):
        raise ValueError("window and since/until exclude each other; give one of them")
    span = query.window(window) if window is not None else windows.between(since, until)
    return Filter(span, runtime, model, vm)


def explained(row: Sums) -> dict[str, Any]:
    """A row with the sentences behind its status, basis and caveats."""
    state = next(state for state in honesty.STATES if state.name == row.cost_status)
    sentences = [state.when, state.promise]
    if row.unknown_calls:
        sentences.append(f"{row.unknown_calls} of {row.calls} calls are missing from the figure.")
    if row.cost_basis:
        sentences.append(honesty.BASES[row.cost_basis])
    sentences += [honesty.CAVEATS.get(code, code) for code in (row.cost_caveat or "").split(",") if code]
    if isinstance(row, SessionRow) and (second := second_estimate(row)):
        sentences.append(second)
    return {**as_json(row), "explanation": sentences}
