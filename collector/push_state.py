"""How far the push to the hub is, as the ledger keeps it. Apart from the push: who only asks loads no HTTP client."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import orjson

from collector import windows
from collector.hub.settings import PushSettings
from collector.ledger.sqlite import SqliteLedger


@dataclass(frozen=True, slots=True)
class PushState:
    """How the last push went, for ``doctor``: epoch seconds, the error's sentence if there was one."""

    at: float
    error: str | None
    waiting: int


def last_push(ledger: SqliteLedger) -> PushState | None:
    """How the last push went, ``None`` before the first."""
    rows = ledger.select("SELECT value FROM setting WHERE name = 'push_state'")
    return PushState(**orjson.loads(rows[0][0])) if rows else None


def oldest_waiting(ledger: SqliteLedger, settings: PushSettings | None) -> date | None:
    """The first day of which a record is still to be pushed, ``None`` where none is; such records may not expire."""
    if settings is None:
        return None
    rows = ledger.select("SELECT value FROM setting WHERE name = ?", (place_of(settings.url),))
    day = ledger.first_waiting_day(int(rows[0][0]) if rows else 0)
    return None if day is None else windows.day(day)


def place_of(url: str) -> str:
    """The setting that holds the cursor of a hub."""
    return f"push {url}"
