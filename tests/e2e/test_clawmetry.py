"""ClawMetry's hosted-VM ingest reads our log as it is and sees the same tokens (CONTRACTS 3).

It runs in a process of its own over a temporary home, because it keeps its store there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shim.line import Tokens, encode
from tests.shim.test_line import LINE

pytest.importorskip("clawmetry.sync", reason="the clawmetry extra is not installed: pip install 'vm-usage[clawmetry]'")

INGEST = """
import json
from clawmetry import local_store, sync
sync._sync_allowed = lambda: True
seen = []
class Store:
    def ingest_many(self, rows): seen.extend(rows)
    def ingest_session(self, row): pass
    def flush(self): pass
local_store.get_store = lambda: Store()
count = sync.sync_vm_usage_log({"node_id": "vm-7", "api_key": None}, {}, {})
print(json.dumps([count, [[row["model"], row["session_id"], row["data"]["usage"]] for row in seen]]))
"""


@pytest.mark.clawmetry
def test_clawmetry_sees_the_same_tokens(tmp_path: Path) -> None:
    log = tmp_path / "usage.jsonl"
    second = replace(LINE, id="b-2", tokens=Tokens(5, 0, 7, None, 9, None), session="s2")
    log.write_bytes(encode(LINE) + encode(second))
    environ = {
        "HOME": str(tmp_path),
        "CLAWMETRY_VM_USAGE_LOG": str(log),
        "CLAWMETRY_VM_USAGE_RUNTIME": "picoclaw",
    }
    done = subprocess.run([sys.executable, "-c", INGEST], env=environ, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    count, rows = json.loads(done.stdout.splitlines()[-1])
    assert count == 2
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert [[usage[name] for name in names] for _, _, usage in rows] == [[176, 150, 1024, 0], [5, 9, 0, 7]]
    assert [session for _, session, _ in rows] == ["picoclaw:vmusage:s0a1b2", "picoclaw:vmusage:s2"]
