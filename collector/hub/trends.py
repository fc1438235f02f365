"""Which VMs went quiet or grew tenfold: rules over calls and tokens per day. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from collector.ledger import Use

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


# Days counted from today, first and last: those before, and those that are looked at against them.
BEFORE: Final = (-1 - LOOK_BACK, -2)
LATEST: Final = ((-1, -1), (0, 0))


def trend(before: Use | None, latest: Sequence[Use], last_contact_ms: int, now_ms: int) -> str | None:
    """What stands out of a VM, ``None`` if nothing does. ``before``: its use in ``BEFORE``, ``latest``: in ``LATEST``.

    Days without calls are no part of a use; where there are none at all it is ``None`` or left out.
    """
    if now_ms - last_contact_ms > SILENT_MS:
        return SILENT
    if before is None or before.days < REGULAR:
        return None
    if not latest:
        return QUIET
    return GREW if max(use.tokens for use in latest) >= GROWTH * before.tokens / before.days > 0 else None
