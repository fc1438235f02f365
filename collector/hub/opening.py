"""How a hub opens its store: ClickHouse where one is named, else one SQLite file beside the VM's own ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from collector import windows
from collector.hub.fleet import FleetLedger, TokenStore
from collector.hub.settings import HubSettings
from collector.ledger import LedgerError
from collector.ledger.sqlite_fleet import SqliteFleet
from collector.query import Query
from collector.secret_file import read_secret
from collector.settings import Settings

if TYPE_CHECKING:
    from collector.ledger.clickhouse import ClickHouseLedger


def open_fleet(settings: Settings, hub: HubSettings) -> FleetLedger:
    """The hub's store for writing, made if there is none. Raises ``LedgerError`` or ``ConfigError``."""
    zone = windows.zone_name(settings.zone)
    if hub.clickhouse is None:
        return SqliteFleet(ledger_file(settings), zone)
    return _clickhouse(hub, zone)


def open_tokens(settings: Settings, hub: HubSettings) -> TokenStore:
    """Where tokens are kept: with the records, but for an embedded ClickHouse, which a second process cannot open."""
    if hub.clickhouse is None or hub.embedded:
        return SqliteFleet(ledger_file(settings), windows.zone_name(settings.zone))
    return _clickhouse(hub, windows.zone_name(settings.zone))


def open_fleet_query(settings: Settings, hub: HubSettings) -> Query:
    """The query layer over the hub's store, for reading."""
    if hub.clickhouse is None:
        ledger = SqliteFleet(ledger_file(settings), read_only=True)
        return Query(ledger, ledger.calendar)
    return Query(_clickhouse(hub, windows.zone_name(settings.zone)), windows.Calendar(settings.zone))


def ledger_file(settings: Settings) -> Path:
    """The hub's SQLite file: VM_USAGE_DB, else hub.db in the state folder (ledger.db is the VM's own)."""
    return settings.db if settings.environ.get("VM_USAGE_DB") else settings.state / "hub.db"


def _clickhouse(hub: HubSettings, zone: str) -> ClickHouseLedger:
    assert hub.clickhouse is not None
    try:
        from collector.ledger.clickhouse import ClickHouseLedger
    except ImportError:
        raise LedgerError("ClickHouse needs: pip install 'vm-usage[fleet]', or unset VM_USAGE_CLICKHOUSE.") from None
    password = read_secret(hub.password_file, "VM_USAGE_CLICKHOUSE_PASSWORD_FILE") if hub.password_file else None
    return ClickHouseLedger(hub.clickhouse, zone, password=password, cluster=hub.cluster)
