"""Memory that is free inside this process goes back to the system, so that a collector at rest holds what it needs.

The C library keeps what was freed for the next who asks, in a heap for each thread; after a long log or a large answer
that is many megabytes. With another C library than glibc nothing here does anything.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

# malloc.h
M_ARENA_MAX: Final = -8


def share_one_heap() -> None:
    """Have all threads take memory from one heap: they run in turns, so more heaps would only hold more.

    To be called before there are threads. https://man7.org/linux/man-pages/man3/mallopt.3.html
    """
    if (mallopt := getattr(_library(), "mallopt", None)) is not None:
        mallopt(M_ARENA_MAX, 1)


def give_back() -> None:
    """Return free memory; takes about a millisecond. https://man7.org/linux/man-pages/man3/malloc_trim.3.html"""
    if (malloc_trim := getattr(_library(), "malloc_trim", None)) is not None:
        malloc_trim(0)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)
