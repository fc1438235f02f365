"""How commands open what they need: the ledger, the query layer, a pass over the sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collector import memory, windows
from collector.ledger.sqlite import SqliteLedger
from collector.query import Query
from collector.settings import Settings
from shim import allowlist

if TYPE_CHECKING:
    from collector.ingest import Ingest


def open_ledger(settings: Settings) -> SqliteLedger:
    """The ledger for writing, made if there is none, its days in the settings' zone. Raises ``LedgerError``."""
    return SqliteLedger(settings.db, windows.zone_name(settings.zone))


def open_query(settings: Settings) -> Query:
    """The query layer over the ledger as it is, for reading. Raises ``LedgerError``."""
    ledger = SqliteLedger(settings.db, read_only=True)
    return Query(ledger, ledger.calendar)


def open_ingest(
    settings: Settings,
    ledger: SqliteLedger,
    *,
    logs: Sequence[Path] | None = None,
    homes: Sequence[Path] | None = None,
    follow: bool = False,
) -> Ingest:
    """Passes over the sources that the settings or the arguments name. Raises ``ConfigError``."""
    # Imported here: a report needs neither runtime readers nor prices.
    from collector.ingest import Ingest
    from collector.pricelists import pricer

    permitted = allowlist.load(settings.allowlist, settings.allow)
    prices = pricer(settings)
    memory.collect_rarely()
    return Ingest(ledger, settings, permitted, prices, logs=logs, homes=homes, follow=follow)
