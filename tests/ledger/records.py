"""Records for tests of ledgers: usage lines and stores' records with what matters given and the rest plain."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from collector.ledger import Entry, Kind
from shim.line import Tokens

EXACT = Kind("reported", "completed", "exact", "derived", "list_price", None, None, True)
UNKNOWN = Kind("missing", "upstream_closed", "unavailable", None, None, None, "no_usage", True)


def ms(text: str) -> int:
    """An ISO time as epoch ms."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


NOON = ms("2026-11-18T12:00:00+00:00")


def line(seq: int = 1, vm: str = "vm1", boot: str = "boot", cost: int | None = 5, **rest: Any) -> Entry:
    """A priced usage line."""
    plain = Entry(
        id=f"{boot}-{seq}", vm=vm, runtime="picoclaw", source="log", session_id="ref", ts_ms=NOON + seq * 1000,
        tokens=Tokens(100, 20, None, None, 7, 0), kind=EXACT, session_ref="ref", session_source="header",
        model="gpt-4o", upstream="openai", wire="openai-chat", http_status=200, stream=True, duration_ms=900,
        cost_pico=cost, rates='{"book":"b1"}',
    )  # fmt: skip
    return replace(plain, **rest)


def record(number: int = 1, vm: str = "vm1", **rest: Any) -> Entry:
    """A self-reporting runtime's record."""
    plain = Entry(
        id=f"{number:032x}", vm=vm, runtime="claude_code", source="vendor", session_id="s1",
        ts_ms=NOON + number * 1000, tokens=Tokens(10, None, 0, None, 3, None), kind=EXACT, model="claude-sonnet-4-5",
        owner_ms=NOON, revision=1, cost_pico=9, rates='{"book":"b1"}',
    )  # fmt: skip
    return replace(plain, **rest)
