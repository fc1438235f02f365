"""What code defines is documented: derived files are fresh, and every setting, metric, state and verb is in README."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from collector.api.endpoints import ENDPOINTS
from collector.cli import COMMANDS
from collector.honesty import BASES, CAVEATS, STATES
from collector.metrics import FAMILIES
from collector.runtimes.table import READERS
from shim.allowlist import RUNTIMES, TOKEN_BEARING
from shim.cli import shim
from shim.counters import DURATION
from shim.counters import FAMILIES as SHIM_FAMILIES
from shim.line import KEYS, OUTCOMES, TOKEN_CLASSES, WIRES
from shim.names import ALIASES, SETTINGS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BY_HAND = ROOT / "deploy/README.md"


def test_derived_files_are_fresh() -> None:
    done = subprocess.run([sys.executable, ROOT / "deploy/generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "names",
    [
        [setting.name for setting in SETTINGS],
        list(ALIASES),
        [state.name for state in STATES],
        list(BASES),
        list(CAVEATS),
        list(TOKEN_CLASSES),
        list(KEYS),
        list(WIRES),
        list(OUTCOMES),
        [f"usage-collector {name}" for name in COMMANDS],
        [f"usage-shim {name}" for name in shim.list_commands(click.Context(shim))],
        [f"`{name}`" for name in sorted(RUNTIMES)],
    ],
    ids=lambda names: names[0],
)
def test_every_name_is_in_the_readme(names: list[str]) -> None:
    assert [name for name in names if name not in README] == []


def test_every_endpoint_is_in_the_readme() -> None:
    assert [name for name in ENDPOINTS if f"`{name}`" not in README] == []


def test_every_metric_is_in_the_operations_page() -> None:
    page = BY_HAND.read_text()
    names = [family.metric for family in (*SHIM_FAMILIES, DURATION)] + [family.name for family in FAMILIES]
    assert [name for name in names if name not in page] == []


def test_every_runtime_has_a_reader_and_token_bearing_ones_are_never_token_blind() -> None:
    assert {reader.runtime for reader in READERS} == RUNTIMES
    assert {"cursor", "picoclaw"} == RUNTIMES - TOKEN_BEARING


@pytest.mark.parametrize("command", ["quickstart", "selftest"])
def test_the_readme_names_the_two_commands(command: str) -> None:
    assert f"sh deploy/{command}" in README


def test_every_page_that_the_readme_names_is_there() -> None:
    for path in re.findall(r"\]\((deploy/[\w./-]+)\)|`(deploy/[\w./-]+\.\w+)`", README):
        assert (ROOT / next(filter(None, path))).exists()
