"""One number, asked seven ways: CLI, CSV, API, page, status, MCP, metrics. To the last digit, for every window."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from collector.commands.report import KINDS, command
from collector.settings import Settings
from collector.windows import WINDOWS
from tests.e2e.programs import BIN, collector, report
from tests.page.conftest import Collector

KEYS = ("calls", "unknown_calls", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")


@asynccontextmanager
async def agent(served: Collector, *words: str) -> AsyncIterator[Callable[..., Awaitable[dict[str, Any]]]]:
    """The official client on a real ``usage-collector mcp`` process: call it with a tool and its arguments."""
    server = StdioServerParameters(command=str(BIN / "usage-collector"), args=["mcp", *words], env=served.environ)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            answer = await session.call_tool(tool, arguments)
            return json.loads(answer.content[0].text)  # type: ignore[union-attr]

        yield call


def reported(served: Collector, by: str, window: str) -> list[dict[str, Any]]:
    """The rows of the report command, run in this process."""
    settings = Settings.from_env(served.environ)
    done = CliRunner().invoke(command, ["--by", by, "--window", window, "--format", "json"], obj=settings)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows added up as a reader of the API would do it."""
    found: dict[str, Any] = {}
    for key in (*KEYS, "cost_pico"):
        known = [row[key] for row in rows if row[key] is not None]
        found[key] = sum(known) if known else None
    return found


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in (*KEYS, "cost_pico")}


async def test_every_way_gives_the_same_number_for_every_window(served: Collector) -> None:
    summary = httpx.get(f"{served.url}/api/local/summary").json()["rows"]
    async with agent(served) as ask:
        for window in WINDOWS:
            expected = numbers(next(row for row in summary if row["window"] == window))
            ways = {
                "api models": summed(httpx.get(f"{served.url}/api/local/models?window={window}").json()["rows"]),
                "api sessions": summed(
                    httpx.get(f"{served.url}/api/local/sessions?limit=1000&window={window}").json()["rows"]
                ),
                "mcp": numbers((await ask("get_cost_summary", window=window))["rows"][0]),
            }
            for by in KINDS:
                ways[f"report by {by}"] = summed(reported(served, by, window))
            assert expected["calls"], window
            assert {way: found for way, found in ways.items() if found != expected} == {}


async def test_an_agent_asks_a_hub_as_it_asks_its_own_vm(served: Collector, tmp_path: Path) -> None:
    elsewhere = replace(served, environ={**served.environ, "VM_USAGE_DB": str(tmp_path / "none.db")})
    async with agent(served) as own, agent(elsewhere, "--hub", served.url) as hub:
        for tool, arguments in (
            ("get_cost_summary", {}),
            ("get_cost_summary", {"window": "month", "runtime": "picoclaw"}),
            ("list_sessions", {"limit": 5, "sort": "cost"}),
        ):
            assert await hub(tool, **arguments) == await own(tool, **arguments)
        name = (await own("list_sessions", limit=1))["rows"][0]["session_id"]
        for tool in ("get_session", "explain_cost"):
            assert await hub(tool, session_id=name) == await own(tool, session_id=name)


def test_the_real_command_prints_the_same(served: Collector) -> None:
    assert report(served.environ, "model") == httpx.get(f"{served.url}/api/local/models").json()["rows"]


def test_status_says_what_the_summary_says(served: Collector) -> None:
    summary = {row["window"]: row for row in httpx.get(f"{served.url}/api/local/summary").json()["rows"]}
    status = json.loads(collector(served.environ, "status", "--json"))
    assert {row["window"]: row for row in status["windows"]} == {
        row["window"]: summary[row["window"]] for row in status["windows"]
    }


def test_csv_and_metrics_hold_the_exact_cost(served: Collector) -> None:
    total = next(row for row in httpx.get(f"{served.url}/api/local/summary").json()["rows"] if row["window"] == "all")
    rows = csv.DictReader(io.StringIO(collector(served.environ, "report", "--by", "model", "--format", "csv")))
    from_csv = sum(Decimal(row["cost_usd"]) for row in rows if row["cost_usd"])
    metrics = httpx.get(f"{served.url}/metrics").text
    from_metrics = sum(float(value) for value in re.findall(r"^usage_list_cost_usd_total\{.*\} (\S+)$", metrics, re.M))
    assert from_csv == Decimal(total["cost_pico"]) / 10**12
    assert from_metrics == pytest.approx(total["cost_usd"], abs=1e-12)


async def test_mcp_lists_and_explains_sessions(served: Collector) -> None:
    async with agent(served) as ask:
        listed = await ask("list_sessions", limit=3, sort="cost")
        assert len(listed["rows"]) == 3
        dearest = listed["rows"][0]["session_id"]
        session = (await ask("get_session", session_id=dearest))["rows"][0]
        explained = (await ask("explain_cost", session_id=dearest))["rows"][0]
    assert session["calls"] == len(session["records"])
    assert explained["cost_pico"] == session["cost_pico"]
    assert explained["explanation"]
    priced = [call for call in explained["calls_priced_with"] if call["cost_usd"] is not None]
    assert priced
    assert all(call["rates"] for call in priced)
