"""Per-VM usage logs that operators ship with their own tools, into a hub: the same records under the same ids.

The logs are read into a staging ledger beside the hub's, which remembers how far each was read, and go from its journal
to the hub. What a VM pushed itself knows more (which session, which twin), so it stays as it is.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from collector.hub.fleet import FleetLedger
from collector.ingest_log import LogIngest
from collector.ingest_report import IngestReport, Progress
from collector.ledger.sqlite import SqliteLedger
from collector.pricing import Pricer
from shim.allowlist import Allowlist

STAGING: Final = "hub-ingest.db"
BATCH: Final = 5_000
PLACE: Final = "hub ingest"
LOG: Final = re.compile(r"\.jsonl(\.\d+|-\d+)?(\.gz|\.zst)?$")


def logs(where: str) -> list[Path]:
    """The usage logs in a folder and below it, or those that a pattern names."""
    path = Path(where)
    found = path.rglob("*") if path.is_dir() else (Path(name) for name in glob.glob(where, recursive=True))
    return sorted(one for one in found if one.is_file() and (not path.is_dir() or LOG.search(one.name)))


def ingest(
    staging: SqliteLedger,
    store: FleetLedger,
    files: Iterable[Path],
    allowlist: Allowlist,
    pricer: Pricer,
    progress: Progress,
) -> tuple[IngestReport, int]:
    """Read files and hand on what is new: what was read, and how many records of the hub are new or changed."""
    report = IngestReport()
    reader = LogIngest(staging, allowlist, pricer)
    for path in files:
        reader.read(path, report, progress)
    reader.close()
    report.missing_lines = sum(gap.lines for gap in staging.gaps())
    return report, _hand_on(staging, store)


def _hand_on(staging: SqliteLedger, store: FleetLedger) -> int:
    changed = 0
    rows = staging.select("SELECT value FROM setting WHERE name = ?", (PLACE,))
    cursor = int(rows[0][0]) if rows else 0
    while True:
        after, entries = staging.changes(cursor, BATCH)
        if after == cursor:
            return changed
        changed += store.append([replace(entry, withdrawn=None) for entry in entries], keep_known=True)
        with staging.transaction() as tx:
            tx.db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (PLACE, str(after)))
        cursor = after
