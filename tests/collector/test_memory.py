"""A collector at rest holds little: free memory goes back, pages are let go of, and no client is loaded for nothing."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from collector.ledger.sqlite import FOLLOWER_CACHE_KIB, SqliteLedger
from collector.memory import give_back, share_one_heap
from collector.query import ALL_RECORDS

BLOCK, COUNT = 60_000, 1_000
UNUSED = ("httpx", "prometheus_client", "genai_prices", "rich.progress")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_what_was_freed_goes_back_to_the_system():
    share_one_heap()
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    blocks = [library.malloc(ctypes.c_size_t(BLOCK)) for _ in range(COUNT)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    for block in blocks[:-1]:  # the last one keeps the end of the heap where it is
        library.free(ctypes.c_void_p(block))
    held = resident_bytes()
    give_back()
    assert resident_bytes() < held - BLOCK * COUNT // 2
    library.free(ctypes.c_void_p(blocks[-1]))


def test_where_the_c_library_cannot_be_asked_nothing_happens():
    """As in a static program, whose ``dlopen`` fails."""
    code = """import ctypes
def refuse(name): raise OSError("Dynamic loading not supported")
ctypes.CDLL = refuse
from collector.memory import give_back, share_one_heap
share_one_heap(), give_back()"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_ledger_at_rest_lets_go_of_its_pages_and_answers_as_before(tmp_path):
    ledger = SqliteLedger(tmp_path / "ledger.db", "UTC")
    ledger.rest()
    assert ledger.select("PRAGMA cache_size") == [(-FOLLOWER_CACHE_KIB,)]
    assert ledger.totals((), ALL_RECORDS) == []
    ledger.close()


def test_following_without_a_hub_loads_nothing_that_it_does_not_use():
    code = f"""import sys, collector.cli, collector.commands.run, collector.ingest, collector.pricelists
print([name for name in {UNUSED} if name in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
