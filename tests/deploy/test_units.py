"""Units, users, folders, rotation: valid, little exposed, and set to what the code expects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shim.names import KNOWN
from tests.deploy.tools import DEPLOY, ROOT, needs, needs_analyze, said

UNITS = DEPLOY / "systemd"
SCRIPTS = sorted(
    path
    for folder in (DEPLOY, ROOT / ".ci")
    for path in folder.rglob("*")
    if path.is_file() and re.match(rb"#!.*\b(sh|bash)\n", path.read_bytes())
)
SERVICES = ("usage-shim", "usage-collector", "usage-hub")


@pytest.fixture
def as_installed(tmp_path: Path) -> Path:
    """The units with programs that exist: where they are installed is nobody's here."""
    for unit in UNITS.iterdir():
        text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(text.replace("file:/usr/share/doc/vm-usage", "https://example.com"))
    return tmp_path


@needs_analyze()
def test_units_are_valid(as_installed: Path) -> None:
    assert said("systemd-analyze", "verify", *sorted(as_installed.iterdir())) == ""


@needs_analyze()
@pytest.mark.parametrize("service", SERVICES)
def test_exposure_is_at_most_one_and_a_half(service: str) -> None:
    said("systemd-analyze", "security", "--offline=yes", "--threshold=15", UNITS / f"{service}.service")


@needs_analyze()
def test_the_limit_would_be_noticed(tmp_path: Path) -> None:
    loose = re.sub(
        r"(?m)^(ProtectSystem|PrivateUsers|NoNewPrivileges)=.*$", "", (UNITS / "usage-shim.service").read_text()
    )
    (tmp_path / "loose.service").write_text(loose)
    said("systemd-analyze", "security", "--offline=yes", "--threshold=15", tmp_path / "loose.service", code=1)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_never_given_up_and_has_no_capability(service: str) -> None:
    lines = (UNITS / f"{service}.service").read_text().splitlines()
    for wanted in (
        "StartLimitIntervalSec=0",
        "Restart=always",
        "Type=notify",
        "CapabilityBoundingSet=",
        "AmbientCapabilities=",
    ):
        assert wanted in lines
    assert any(line.startswith("WatchdogSec=") for line in lines)


def test_no_unit_sets_a_variable_that_does_not_exist() -> None:
    names = {name for unit in UNITS.iterdir() for name in re.findall(r"\b(VM_USAGE_[A-Z_]+)=", unit.read_text())}
    assert names <= KNOWN
    assert names


def test_the_drain_ends_before_systemd_loses_patience() -> None:
    from shim.settings import Settings

    unit = (UNITS / "usage-shim.service").read_text()
    patience = re.search(r"(?m)^TimeoutStopSec=(\d+)$", unit)
    assert patience is not None
    assert int(patience[1]) > Settings.__dataclass_fields__["drain_seconds"].default


def test_rotation_renames_and_never_copies() -> None:
    words = {line.split()[0] for line in (DEPLOY / "logrotate.d/vm-usage").read_text().splitlines() if line.strip()}
    assert "create" in words
    assert "copytruncate" not in words


@needs("shellcheck")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_clean(path: Path) -> None:
    said("shellcheck", "--external-sources", "--check-sourced", "--source-path", ROOT, path)


def test_every_shell_script_is_among_them() -> None:
    assert {"build_deb", "by-hand", "cursor-agent", "postinst", "run"} <= {path.name for path in SCRIPTS}
