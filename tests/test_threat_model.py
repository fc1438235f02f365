"""The threat model names tests that exist, and every part has all it claims to cover."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "THREAT_MODEL.md").read_text()


def test_every_test_that_is_named_exists():
    named = set(re.findall(r"`([a-z0-9_]+/test_[a-z0-9_]+\.py)`", TEXT))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / "tests" / name).exists()] == []


def test_every_threat_says_what_shows_that_it_is_stopped():
    rows = [line.split(" | ") for line in TEXT.splitlines() if re.match(r"\| [STRIDE] \|", line)]
    assert len(rows) > 50
    assert [row[1] for row in rows if len(row) != 4 or not row[2].strip()] == []
    silent = [row[1] for row in rows if "test_" not in row[3] and "open" not in row[3] and "See " not in row[2]]
    assert silent == []
