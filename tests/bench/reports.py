"""How long every endpoint and report takes over a big ledger: ``python -m tests.bench.reports PATH [--calls N]``.

The ledger at PATH is made if it is not there (``tests.bench.grown``); one with ``--vms`` above 1 is a hub's. Each
question is asked once cold (the file's pages are dropped from the system's cache and the connection is new), then five
times; what is shown is the median, in ms and in ms of processor time, which other work on the machine does not change.
Endpoints are answered as the API does, JSON and all; reports are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from collector import memory, metrics, windows
from collector.agent_tools import server
from collector.api.endpoints import ENDPOINTS
from collector.api.openapi import document
from collector.commands.report import EVERYTHING, FORMS, KINDS, SHOWN_SESSIONS, write
from collector.commands.status import WINDOWS
from collector.export import otlp
from collector.hub.fleet import VmState
from collector.ledger.sqlite import SqliteLedger
from collector.ledger.sqlite_fleet import SqliteFleet
from collector.query import Query
from collector.rows import SORTS, Filter
from tests.bench.grown import BLIND, DAY_MS, LAST_DAY, MODELS, OWN, grown

NOW = (LAST_DAY * DAY_MS + DAY_MS // 2) / 1000
SPANS = ("today", "7d", "30d", "all")
FILTERS: tuple[dict[str, str], ...] = (
    {},
    {"runtime": BLIND[0]},
    {"runtime": OWN[-1]},
    {"model": MODELS[3]},
    {"vm": "vm-000"},
)
LIMIT_MS, SESSION_LIMIT_MS = 50, 100
Question = Callable[[Query], Any]


def endpoint(name: str, **values: Any) -> tuple[str, Question]:
    """An endpoint's URL and its answer's bytes."""
    shown = "&".join(f"{key}={value}" for key, value in values.items())
    return f"{name}?{shown}" if shown else name, lambda query: orjson.dumps(ENDPOINTS[name].answer(query, values))


def questions(session: dict[str, str], middle: str) -> Iterator[tuple[str, Question]]:
    """Everything that is asked; ``session`` names one, ``middle`` is a cursor of the journal."""
    for name, span, where in itertools.product(("total", "aggregates", "models", "runtimes", "vms"), SPANS, FILTERS):
        yield endpoint(name, window=span, **where)
    for by, span, where in itertools.product(("runtime", "model"), SPANS, FILTERS[:2] + FILTERS[-1:]):
        yield endpoint("aggregates", by=by, window=span, **where)
        yield endpoint("aggregates", by=by, window=span, cursor="2026-06-01", **where)
    for span, where in itertools.product(SPANS, FILTERS[:2]):
        yield endpoint("groups", window=span, **where)
        yield endpoint("groups", window=span, cursor="vm-250", **where)
    for where in FILTERS:
        yield endpoint("summary", **where)
    for sort, span, where in itertools.product(SORTS, SPANS, FILTERS):
        yield endpoint("sessions", sort=sort, window=span, limit=50, **where)
    both = {"runtime": BLIND[0], "model": MODELS[3]}
    for sort in SORTS:
        yield endpoint("sessions", sort=sort, window="30d", limit=50, **both)
        yield f"sessions?sort={sort}, its tenth page", _tenth_page(sort)
    for name, since in itertools.product(("models", "runtimes", "vms", "total", "aggregates"), ("2026-02-01",)):
        yield endpoint(name, since=since)
    yield endpoint("sessions", sort="cost", since="2026-02-01", limit=50)
    yield endpoint("sessions", sort="cost", since="2026-02-01", until="2026-02-14", limit=50)
    yield endpoint("session", session_id=session["session_id"])
    yield endpoint("session", **session)
    for cursor in ("0", middle):
        yield endpoint("records", cursor=cursor, limit=1000)
    for name in ("refused", "gaps", "sources", "quarantine", "states"):
        yield endpoint(name)
    yield "/metrics", metrics.Exposition()
    yield "/openapi.json", lambda _: orjson.dumps(document("1.0", token=False))
    yield "status", lambda query: (query.summary(WINDOWS), query.sources(), query.refused(), query.gaps())
    yield (
        "doctor",
        lambda query: (query.sources(), query.gaps(), query.quarantine(5), query.refused(), query.ledger.seen("vm")),
    )
    yield from reports()
    yield from tools(session)
    for span in SPANS:
        yield f"export {span}, its first 1000 records", _exported(span)
    yield "export otlp, its first request", lambda query: next(_otlp(query))


def reports() -> Iterator[tuple[str, Question]]:
    """What ``usage-collector report`` prints, in each form; for a script sessions of a day only, for it gets all."""
    for by, span, form in itertools.product(KINDS, SPANS, FORMS):
        if by != "session" or form == "table" or span == "today":
            yield f"report --by {by} --window {span} --format {form}", _reported(by, span, form)


def _reported(by: str, span: str, form: str) -> Question:
    def ask(query: Query) -> str:
        where = Filter(query.window(span))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            limit = SHOWN_SESSIONS if form == "table" and by == "session" else EVERYTHING
            write(KINDS[by], KINDS[by].ask(query, where, limit + 1), query.total(where), form, limit)
        return out.getvalue()

    return ask


def tools(session: dict[str, str]) -> Iterator[tuple[str, Question]]:
    """What an agent asks over MCP."""
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        ("get_cost_summary", {}),
        *(("get_cost_summary", {"window": span}) for span in SPANS),
        *(("list_sessions", {"sort": sort, "limit": 200}) for sort in SORTS),
        ("get_session", dict(session)),
        ("explain_cost", dict(session)),
    )
    for tool, arguments in asked:
        shown = ", ".join(f"{name}={value}" for name, value in arguments.items() if name not in session)
        yield f"mcp {tool}({shown})", _called(tool, arguments)


def _called(tool: str, arguments: dict[str, Any]) -> Question:
    return lambda query: asyncio.run(_served(query).call_tool(tool, arguments))


@lru_cache(1)
def _served(query: Query) -> Any:
    """The tools of a ledger, which are there before somebody asks."""
    return server(query)


def _otlp(query: Query) -> Iterator[dict[str, Any]]:
    return otlp.requests(query.groups(Filter(query.window("30d"))), "latest", 0, NOW)


def _tenth_page(sort: str) -> Question:
    def ask(query: Query) -> Any:
        cursor = _cursors[sort]
        return orjson.dumps(ENDPOINTS["sessions"].answer(query, {"sort": sort, "limit": 50, "cursor": cursor}))

    return ask


_cursors: dict[str, str] = {}


def _find_cursors(query: Query) -> None:
    for sort in SORTS:
        values: dict[str, Any] = {"sort": sort, "limit": 50}
        for _ in range(9):
            values["cursor"] = ENDPOINTS["sessions"].answer(query, values)["next_cursor"]
        _cursors[sort] = values["cursor"]


def _exported(span: str) -> Question:
    return lambda query: list(itertools.islice(query.ledger.scan(Filter(query.window(span))), 1000))


def opened(path: Path, vms: int, *, cold: bool = False) -> Query:
    """A reader of the ledger; ``cold``: nothing of the file is in the system's cache."""
    if cold:
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
    ledger = (SqliteFleet if vms > 1 else SqliteLedger)(path, read_only=True)
    return Query(ledger, windows.Calendar(windows.UTC), clock=lambda: NOW)


def _timed(question: Question, query: Query) -> tuple[float, float, Any]:
    began, used = time.perf_counter(), time.process_time()
    answer = question(query)
    return (time.perf_counter() - began) * 1000, (time.process_time() - used) * 1000, answer


def asked(path: Path, vms: int) -> list[tuple[str, Question]]:
    """Every question of a ledger, by name."""
    query = opened(path, vms)
    row = ENDPOINTS["sessions"].answer(query, {"limit": 1})["rows"][0]
    session = {name: row[name] for name in ("session_id", "vm", "runtime")}
    middle = str(query.ledger.select("SELECT max(no) / 2 FROM change")[0][0] << 24)  # type: ignore[attr-defined]
    _find_cursors(query)
    query.ledger.close()
    return list(questions(session, middle))


def measure(path: Path, vms: int, only: str) -> None:
    """Print a line per question: ms cold, median ms, median ms of processor time, bytes of the answer."""
    print("| question | cold ms | ms | CPU ms | answer |\n|---|---|---|---|---|")
    over = 0
    for name, question in asked(path, vms):
        if only not in name:
            continue
        query = opened(path, vms, cold=True)
        cold = _timed(question, query)
        times = [_timed(question, query) for _ in range(5)]
        query.ledger.close()
        spent, used = (statistics.median(one[place] for one in times) for place in (0, 1))
        limit = SESSION_LIMIT_MS if name.startswith("session?") else LIMIT_MS
        size = f"{len(cold[2]):,} B" if isinstance(cold[2], bytes) else ""
        over += used > limit
        mark = " **over**" if used > limit else ""
        print(f"| {name} | {cold[0]:.0f} | {spent:.1f} | {used:.1f}{mark} | {size} |", flush=True)
    print(f"{over} over {LIMIT_MS} ms ({SESSION_LIMIT_MS} ms for one session) of processor time")


def enrol(ledger: SqliteFleet, vms: int) -> None:
    """Have a hub know its VMs, as if each had just pushed."""
    now = int(NOW * 1000)
    with ledger.transaction() as tx:
        for place in range(vms):
            state = VmState(f"vm-{place:03d}", now, 1, now - 86_400_000, now, 3, "1.0", 0, "{}")
            values = [getattr(state, name) for name in VmState.__dataclass_fields__ if hasattr(state, name)]
            tx.db.execute(f"INSERT OR REPLACE INTO hub_vm VALUES ({', '.join('?' * len(values))})", values)


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--sessions", type=int, default=200_000)
    parser.add_argument("--days", type=int, default=400)
    parser.add_argument("--vms", type=int, default=1)
    parser.add_argument("--only", default="", help="Only questions with this in their name.")
    chosen = parser.parse_args()
    ledger = grown(chosen.path, chosen.calls, chosen.sessions, chosen.days, chosen.vms)
    if isinstance(ledger, SqliteFleet):
        enrol(ledger, chosen.vms)
    ledger.close()
    memory.collect_rarely()  # as every command does
    print(f"{chosen.path.stat().st_size / 1e6:,.0f} MB")
    measure(chosen.path, chosen.vms, chosen.only)


if __name__ == "__main__":
    main()
