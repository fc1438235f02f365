"""doctor on a VM with something wrong: each trouble is found, with a command that mends it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.programs import Shim, clean_environment, collector, free_port, running_shim
from tests.shim.test_line import GOLDEN

FIRST = GOLDEN.replace(b'-17"', b'-1"')
FIXTURES = Path(__file__).parent.parent


def examined(environ: dict[str, str], status: int = 1) -> dict[str, list[dict[str, Any]]]:
    """The findings of doctor by check."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(collector(environ, "doctor", "--json", status=status))["rows"]:
        found.setdefault(row["check"], []).append(row)
    return found


def wrong(findings: list[dict[str, Any]]) -> list[str]:
    return [finding["text"] for finding in findings if finding["level"] == "wrong"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A VM with a log, an ingested ledger and no shim."""
    log = tmp_path / "usage.jsonl"
    log.write_bytes(FIRST)
    log.chmod(0o640)
    (tmp_path / "home").mkdir()
    made = clean_environment(
        tmp_path,
        VM_USAGE_LOG=str(log),
        VM_USAGE_HOMES=str(tmp_path / "home"),
        VM_USAGE_VM="vm-7",
        VM_USAGE_SHIM_PORT=str(free_port()),
    )
    collector(made, "ingest")
    return made


@pytest.fixture
def healthy(tmp_path: Path, environ: dict[str, str]) -> Iterator[Shim]:
    log = {"VM_USAGE_HOMES": environ["VM_USAGE_HOMES"], "VM_USAGE_VM": "vm-7"}
    with running_shim(tmp_path, {}, **log) as shim:
        yield shim


def test_a_healthy_vm_has_nothing_wrong(healthy: Shim) -> None:
    found = examined(healthy.environ, status=0)
    assert [text for findings in found.values() for text in wrong(findings)] == []
    assert {"opt-in", "shim", "allowlist", "permissions", "clock", "disk", "ledger", "prices"} <= set(found)


def test_every_wrong_finding_comes_with_a_command(environ: dict[str, str]) -> None:
    found = examined(environ)
    assert wrong(found["shim"]) == [f"no shim answers on 127.0.0.1:{environ['VM_USAGE_SHIM_PORT']}"]
    assert all(row["mend"] for findings in found.values() for row in findings if row["level"] == "wrong")


def test_a_vm_that_is_not_opted_in_is_told_how(environ: dict[str, str]) -> None:
    del environ["VM_USAGE_LOG"]
    assert "VM_USAGE_LOG is not set" in wrong(examined(environ)["opt-in"])[0]


def test_a_log_that_everybody_can_read_is_wrong(environ: dict[str, str]) -> None:
    Path(environ["VM_USAGE_LOG"]).chmod(0o644)
    assert "is open to every user (0644)" in wrong(examined(environ)["permissions"])[0]


def test_missing_and_broken_lines_are_wrong(environ: dict[str, str]) -> None:
    log = Path(environ["VM_USAGE_LOG"])
    log.write_bytes(FIRST + b"no json\n" + FIRST.replace(b'-1"', b'-20"'))
    collector(environ, "ingest")
    texts = wrong(examined(environ)["lines"])
    assert any(text.startswith("18 usage lines are missing") for text in texts)
    assert f"put aside (not_json): {log} at byte {len(FIRST)}" in texts


def test_calls_from_the_future_are_wrong(environ: dict[str, str]) -> None:
    later = FIRST.replace(b"1796068800.123", b"2796068800.123").replace(b'-1"', b'-2"')
    Path(environ["VM_USAGE_LOG"]).write_bytes(FIRST + later)
    collector(environ, "ingest")
    assert "in the future" in wrong(examined(environ)["clock"])[0]


def test_a_broken_allowlist_is_named_with_its_line(environ: dict[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "allowlist.yaml"
    broken.write_text("version: 1\ntoken_blid: {}\n")
    environ["VM_USAGE_ALLOWLIST"] = str(broken)
    assert f"{broken}:2: token_blid is not a section" in wrong(examined(environ)["allowlist"])[0]


def test_a_picoclaw_that_points_elsewhere_is_told_how_to_come_back(environ: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "runtimes/picoclaw/home", tmp_path / "home", dirs_exist_ok=True)
    (finding,) = [row for row in examined(environ)["picoclaw"] if row["level"] == "wrong"]
    assert "past the shim" in finding["text"]
    assert finding["mend"].startswith("usage-shim provision picoclaw --config")


def test_a_store_that_cannot_be_read_is_named(environ: dict[str, str], tmp_path: Path) -> None:
    store = tmp_path / "home/.local/share/opencode/opencode.db"
    store.parent.mkdir(parents=True)
    store.write_bytes(b"not a database" * 100)
    collector(environ, "ingest")
    assert any(str(store) in text for text in wrong(examined(environ)["stores"]))


def test_a_damaged_ledger_is_said_with_the_way_back(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "state/vm-usage/ledger.db").write_bytes(b"x" * 8192)
    for part in ("ledger.db-wal", "ledger.db-shm"):
        (tmp_path / "state/vm-usage" / part).unlink(missing_ok=True)
    (finding,) = [row for row in examined(environ)["ledger"] if row["level"] == "wrong"]
    assert "usage-collector ingest" in finding["text"] + finding["mend"]
