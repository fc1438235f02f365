"""Which VMs went quiet or grew tenfold: rules over calls and tokens per day. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Days before the last two that are looked at, and how many of them must have calls to call a VM a regular one.
LOOK_BACK: Final = 14
REGULAR: Final = 3
GROWTH: Final = 10
# A VM says that it lives every five minutes.
SILENT_MS: Final = 3600 * 1000

QUIET: Final = "quiet"
SILENT: Final = "silent"
GREW: Final = "grew"
TRENDS: Final = {
    QUIET: "It had calls on several of the last days and none today or yesterday.",
    SILENT: "It has not been in touch for an hour.",
    GREW: "It used ten times as many tokens today or yesterday as on a usual day before.",
}


def trend(days: Mapping[int, int], today: int, last_contact_ms: int, now_ms: int) -> str | None:
    """What stands out of a VM, ``None`` if nothing does. ``days``: tokens by day number; a day with calls is there."""
    if now_ms - last_contact_ms > SILENT_MS:
        return SILENT
    before = [days[day] for day in days if today - 2 - LOOK_BACK < day <= today - 2]
    latest = [days[day] for day in (today - 1, today) if day in days]
    if len(before) < REGULAR:
        return None
    if not latest:
        return QUIET
    return GREW if max(latest) >= GROWTH * sum(before) / len(before) > 0 else None
