"""A hub inside the test's process, on a real socket, over SQLite."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from collector.api.access import Access
from collector.api.server import application
from collector.hub import tokens
from collector.hub.batch import CONTENT_TYPE, PATH, VERSION, Facts, Head, encode
from collector.hub.limits import Rates
from collector.hub.server import Ingest
from collector.hub.writer import Writer
from collector.ledger.sqlite_fleet import SqliteFleet
from collector.query import Query
from collector.retention import Retention

BORN = 1_700_000_000_000


@dataclass(slots=True)
class TestHub:
    """Its URL, an HTTP session, the ledger file, and one VM's token."""

    __test__ = False
    url: str
    http: aiohttp.ClientSession
    file: Path
    token: str
    last_headers: Any = None

    def enrol(self, vm: str, *also: str, days: int | None = None, now: float | None = None) -> str:
        clear, token = tokens.new(vm, also, int(now or time.time()), days)
        ledger = SqliteFleet(self.file, "UTC")
        ledger.add_token(token)
        ledger.close()
        return clear

    async def post(self, body: bytes, token: str | None = None, kind: str = CONTENT_TYPE) -> tuple[int, Any]:
        headers = {"Content-Type": kind, "Authorization": f"Bearer {token or self.token}"}
        async with self.http.post(self.url + PATH, data=io.BytesIO(body), headers=headers) as answer:
            self.last_headers = answer.headers
            return answer.status, await answer.json()

    async def push(self, entries: Any, before: int = 0, after: int = 1, **rest: Any) -> tuple[int, Any]:
        token = rest.pop("token", None)
        return await self.post(batch(entries, before, after, **rest), token)

    async def rows(self, name: str) -> list[dict[str, Any]]:
        async with self.http.get(f"{self.url}/api/local/{name}") as answer:
            return (await answer.json())["rows"]


def batch(
    entries: Any, before: int = 0, after: int = 1, vm: str = "vm1", born: int = BORN, facts: Facts | None = None,
    sent_at: float | None = None,
) -> bytes:  # fmt: skip
    now = sent_at if sent_at is not None else time.time()
    return encode(Head(VERSION, vm, born, before, after, now, facts or Facts("1.0")), entries)


@pytest.fixture
async def hub(tmp_path):
    file = tmp_path / "hub.db"
    writer = Writer(lambda: SqliteFleet(file, "UTC"), lambda: SqliteFleet(file, "UTC"), Retention(None))
    writer.start()

    def open_query() -> Query:
        ledger = SqliteFleet(file, read_only=True)
        return Query(ledger, ledger.calendar)

    ingest = web.post(PATH, Ingest(writer, Rates(time.monotonic, rate=1000.0, burst=3000.0)).take)
    runner = web.AppRunner(application(open_query, Access.of(), own=(ingest,)), access_log=None, lingering_time=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as http:
        made = TestHub(f"http://127.0.0.1:{port}", http, file, "")
        made.token = made.enrol("vm1")
        yield made
    await runner.cleanup()
    writer.stop()
