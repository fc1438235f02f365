"""Cursor's Admin API: every usage event of a team in a span of time, with tokens and what was charged.

``POST /teams/filtered-usage-events``, Basic authentication with the key as user name
(https://cursor.com/docs/account/teams/admin-api). Facts that shape this client: a page may shift while pages are read,
because events arrive late, so a span is read again until it holds as many events as it says; a request may ask for at
most 30 days; 429 says when to come back; amounts are cents, read as decimals and never as floats.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collector.money import to_pico
from collector.providers import is_loopback
from collector.reconcile import Item, ReconcileError
from shim.line import Tokens
from shim.names import ConfigError

if TYPE_CHECKING:
    import httpx

API: Final = "https://api.cursor.com"
PATH: Final = "/teams/filtered-usage-events"
PAGE_SIZE: Final = 100
MAX_SPAN_MS: Final = 30 * 86_400_000
# Events of the last two days may still arrive; rows of these days are marked open and are fetched anew by every run.
LATE_SECONDS: Final = 2 * 86_400
MAX_TRIES: Final = 6
MAX_WAIT_SECONDS: Final = 120.0
MAX_PASSES: Final = 4


@dataclass(frozen=True, slots=True)
class Event:
    """One usage event. ``tokens`` are unknown for calls that are not billed by token; money in pico-USD."""

    ts: float
    model: str
    tokens: Tokens
    billed_pico: int | None
    value_pico: int | None
    headless: bool
    user: str | None

    def item(self, day: date) -> Item:
        """The event as one side of a comparison, on a local day."""
        return Item(day, self.model, self.tokens, 1, True, self.billed_pico, self.value_pico)


def api_key(settings: Mapping[str, str]) -> str:
    """The admin key from resolved settings: ``VM_USAGE_CURSOR_KEY``, else a file that only its owner can read.

    Raises ``ConfigError``.
    """
    if key := settings.get("VM_USAGE_CURSOR_KEY", "").strip():
        return key
    name = settings.get("VM_USAGE_CURSOR_KEY_FILE")
    if not name:
        raise ConfigError(
            "VM_USAGE_CURSOR_KEY_FILE is not set: put Cursor's admin API key into a 0600 file and name it."
        )
    try:
        with Path(name).open() as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            key = file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"VM_USAGE_CURSOR_KEY_FILE: {name} cannot be read; mend path or owner.") from error
    if mode & 0o077:
        raise ConfigError(f"VM_USAGE_CURSOR_KEY_FILE: others can read {name}; run chmod 600 {name}.")
    if not key or not key.isascii() or any(sign.isspace() for sign in key):
        raise ConfigError(f"VM_USAGE_CURSOR_KEY_FILE: {name} holds no key; write the key and nothing else into it.")
    return key


def base_url(settings: Mapping[str, str]) -> str:
    """``VM_USAGE_CURSOR_API``; a key is sent in the clear to this machine only. Raises ``ConfigError``."""
    url = settings.get("VM_USAGE_CURSOR_API", API).rstrip("/")
    if not url.startswith("https://") and not (url.startswith("http://") and is_loopback(url)):
        raise ConfigError("VM_USAGE_CURSOR_API must be an https:// URL, or http:// on loopback.")
    return url


class CursorAdmin:
    """The API as a stream of events. ``wait`` sleeps (seconds); tests pass their own."""

    def __init__(self, key: str, url: str = API, wait: Callable[[float], None] = time.sleep) -> None:
        import httpx  # when it is needed: a collector that follows sources does not hold it in memory

        self._client: httpx.Client = httpx.Client(base_url=url, auth=(key, ""), timeout=30.0, follow_redirects=False)
        self._wait = wait

    def __enter__(self) -> CursorAdmin:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def events(self, start: float, end: float, email: str | None = None) -> Iterator[Event]:
        """Every event from ``start`` to before ``end`` (epoch seconds). Raises ``ReconcileError``."""
        first, last = int(start * 1000), int(end * 1000)
        while first < last:
            stop = min(first + MAX_SPAN_MS, last)
            yield from (event for raw in self._span(first, stop, email) if (event := _event(raw)).ts * 1000 < stop)
            first = stop

    def _span(self, first: int, stop: int, email: str | None) -> list[dict[str, Any]]:
        """One span read until it is whole: as many events as the API counts, the same count before and after."""
        for _ in range(MAX_PASSES):
            found, counts = self._pages(first, stop, email)
            if len(counts) == 1 and counts <= {None, len(found)}:
                return found
        raise ReconcileError(
            f"Cursor's events of {_iso(first)} to {_iso(stop)} kept changing while they were read: try again later."
        )

    def _pages(self, first: int, stop: int, email: str | None) -> tuple[list[dict[str, Any]], set[int | None]]:
        found: list[dict[str, Any]] = []
        counts: set[int | None] = set()
        page = 1
        while True:
            # both ends are included by the API, so the last millisecond belongs to the next span
            body: dict[str, Any] = {"startDate": first, "endDate": stop - 1, "page": page, "pageSize": PAGE_SIZE}
            answer = self._post(body | ({"email": email} if email else {}))
            events = answer.get("usageEvents", answer.get("usageEventsDisplay", []))
            if not isinstance(events, list):
                raise ReconcileError("Cursor's API answered with something that is not a list of events.")
            found += events
            counts.add(_count(answer.get("totalUsageEventsCount")))
            if not events or not (answer.get("pagination") or {}).get("hasNextPage"):
                return found, counts
            page += 1

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        from httpx import TransportError

        for attempt in range(MAX_TRIES):
            try:
                response = self._client.post(PATH, json=body)
            except TransportError as error:
                self._pause(attempt, None, f"Cursor's API cannot be reached ({type(error).__name__})")
                continue
            if response.status_code == 429 or response.status_code >= 500:
                self._pause(attempt, response.headers.get("retry-after"), f"Cursor's API said {response.status_code}")
                continue
            if response.status_code in (401, 403):
                raise ReconcileError(
                    f"Cursor's API refused the key ({response.status_code}): it must be a team's admin key."
                )
            if response.status_code != 200:
                raise ReconcileError(f"Cursor's API said {response.status_code}: check VM_USAGE_CURSOR_API.")
            return _object(response.content)
        raise AssertionError  # the last attempt raises in _pause

    def _pause(self, attempt: int, retry_after: str | None, what: str) -> None:
        if attempt == MAX_TRIES - 1:
            raise ReconcileError(f"{what}, {MAX_TRIES} times: try again later.")
        self._wait(min(_seconds(retry_after, default=2.0**attempt), MAX_WAIT_SECONDS))


def _event(raw: dict[str, Any]) -> Event:
    usage = raw.get("tokenUsage") or {}
    tokens = Tokens(
        input_tokens=_count(usage.get("inputTokens")),
        cache_read_tokens=_count(usage.get("cacheReadTokens")),
        cache_write_tokens=_count(usage.get("cacheWriteTokens")),
        output_tokens=_count(usage.get("outputTokens")),
    )
    ts = _count(raw.get("timestamp"))
    if ts is None:
        raise ReconcileError("Cursor's API answered with an event that has no time.")
    return Event(
        ts=ts / 1000,
        model=str(raw.get("model") or "unknown"),
        tokens=tokens,
        billed_pico=_cents(raw.get("chargedCents")),
        value_pico=_cents(usage.get("totalCents")),
        headless=bool(raw.get("isHeadless")),
        user=raw.get("userEmail") if isinstance(raw.get("userEmail"), str) else None,
    )


def _count(value: object) -> int | None:
    """A whole number from 0 on, also as text, which is how times are given."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if type(value) is int and value >= 0 else None


def _cents(value: object) -> int | None:
    return to_pico(Decimal(value) / 100) if type(value) in (int, Decimal) else None  # type: ignore[arg-type]


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content, parse_float=Decimal)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ReconcileError("Cursor's API answered with something that is not JSON.")
    return found


def _seconds(retry_after: str | None, default: float) -> float:
    """A Retry-After header: seconds or a date (RFC 9110 10.2.3)."""
    if retry_after is None:
        return default
    if retry_after.strip().isdigit():
        return float(retry_after)
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return default


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
