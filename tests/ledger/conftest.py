"""Every test of a ledger's contract runs against both engines: SQLite, and ClickHouse embedded (the real engine)."""

from __future__ import annotations

import pytest

from collector.ledger.clickhouse_schema import STORES
from collector.ledger.sqlite_fleet import SqliteFleet

clickhouse = pytest.importorskip("collector.ledger.clickhouse")

ZONE = "Europe/Berlin"


@pytest.fixture(scope="session")
def engine_folder(tmp_path_factory):
    """The embedded engine takes one folder per process, so tests share it and empty its tables."""
    return tmp_path_factory.mktemp("chdb")


@pytest.fixture
def chdb(engine_folder):
    ledger = clickhouse.ClickHouseLedger(f"chdb://{engine_folder}", ZONE)
    yield ledger
    for store in STORES:
        ledger.command(f"TRUNCATE TABLE {store.name}")
    ledger.close()


@pytest.fixture
def sqlite(tmp_path):
    ledger = SqliteFleet(tmp_path / "ledger.db", ZONE)
    yield ledger
    ledger.close()


@pytest.fixture(params=["sqlite", "chdb"])
def ledger(request):
    return request.getfixturevalue(request.param)
