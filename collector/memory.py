"""Memory that is free inside this process goes back to the system, so that a collector at rest holds what it needs.

The C library keeps what was freed for the next who asks, in a heap for each thread; after a long log or a large answer
that is many megabytes. With another C library than glibc that stays so.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from functools import cache
from typing import Final

# malloc.h
M_ARENA_MAX: Final = -8
NEW_OBJECTS: Final = 50_000


def share_one_heap() -> None:
    """Have all threads take memory from one heap: they run in turns, so more heaps would only hold more.

    To be called before there are threads. https://man7.org/linux/man-pages/man3/mallopt.3.html
    """
    if (mallopt := _function("mallopt")) is not None:
        mallopt(M_ARENA_MAX, 1)


def give_back() -> None:
    """Return free memory; takes about a millisecond. https://man7.org/linux/man-pages/man3/malloc_trim.3.html"""
    if (malloc_trim := _function("malloc_trim")) is not None:
        malloc_trim(0)


def collect_rarely() -> None:
    """Look for cycles among what is new, and not after every few hundred objects.

    Rows by the thousand are made and dropped without a cycle among them; what was imported stays. Looking through it
    all costs a tenth of an ingest, and of a scrape or an export that it falls into half the time.
    """
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


@cache
def _function(name: str) -> Callable[..., int] | None:
    """A function of the C library; ``None`` where there is none, or where a static program cannot look for it."""
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None
    return found
