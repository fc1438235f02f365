"""ClawMetry's ingest of our log: how far it comes in a given time, by how many lines its store holds already.

``python tests/bench/peer.py LOG SECONDS PAUSE`` under an interpreter that has clawmetry (``pip install clawmetry``; it
need not have vm-usage) calls ``sync_vm_usage_log`` again and again and prints JSON lines: lines taken, seconds,
seconds of CPU. PAUSE: seconds from one call's begin to the next's; its service looks every 60 (``family_interval`` in
``sync.py``) and takes at most 5,000 lines then. It stops at the log's end, or at the first call that ends after
SECONDS. Its store lies below ``HOME``. This file imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

CONFIG = {"node_id": "bench", "api_key": None}


def ticks(log: str, seconds: float, pause: float) -> Iterator[dict[str, Any]]:
    """How far it is after each call of ``sync_vm_usage_log``."""
    os.environ["CLAWMETRY_VM_USAGE_LOG"] = log
    os.environ["CLAWMETRY_VM_USAGE_RUNTIME"] = "picoclaw"
    from clawmetry import local_store, sync

    sync._sync_allowed = lambda: True
    local_store.get_store()  # making the store is a matter of starting, not of lines
    state: dict[str, Any] = {}
    lines, began, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        before, looked = state.get("vm_usage_log", {}).get("offset", 0), time.perf_counter()
        lines += sync.sync_vm_usage_log(CONFIG, state, {})
        if state.get("vm_usage_log", {}).get("offset", 0) == before:
            return
        time.sleep(max(0.0, looked + pause - time.perf_counter()))
        yield {
            "lines": lines,
            "seconds": round(time.perf_counter() - began, 2),
            "cpu_seconds": round(time.process_time() - used, 2),
        }


if __name__ == "__main__":
    for tick in ticks(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])):
        print(json.dumps(tick), flush=True)
    sys.stdout.flush()
    os._exit(0)  # its threads are no matter of ours
