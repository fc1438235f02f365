"""The README's first command on a fresh Debian 12, as root and as an ordinary user.

The machine has no network: packages come from a folder of wheels that the host fetched, everything else is as in the
README. (The second command, the tests, runs in CI on such a system; it takes the time of the tests.)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

from tests.vm.machine import Machine
from tests.vm.packages import ROOT

CHECKOUT = ("shim", "collector", "deploy", "allowlist.yaml", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")
BUILD = ("hatchling", "editables")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with nothing of ours, a checkout in two places, and the wheels that pip would fetch."""
    folder = tmp_path_factory.mktemp("fresh")
    made = Machine(folder)
    wheels = made.root / "opt/wheels"
    # The machine's Python, whatever runs these tests: Debian 12 has 3.11.
    pip = [sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "--python-version", "3.11"]
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in CHECKOUT:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, checkout / name)
    subprocess.run([*pip, "-d", wheels, *BUILD, *_dependencies()], check=True)
    for home in ("root", "home/dev"):
        shutil.copytree(checkout, made.root / home / "vm-usage", ignore=shutil.ignore_patterns("__pycache__"))
    made.boot()
    made.sh("useradd -s /bin/sh dev; chown -R dev: /home/dev")
    yield made
    made.stop()


def _dependencies() -> list[str]:
    found: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return found


@pytest.mark.parametrize(("user", "home"), [("root", "/root"), ("dev", "/home/dev")])
def test_the_main_job_from_nothing(fresh: Machine, user: str, home: str) -> None:
    script = f"cd {home}/vm-usage && sh deploy/quickstart --once"
    said = fresh.sh(script, user=user, HOME=home, PIP_NO_INDEX="1", PIP_FIND_LINKS="/opt/wheels")
    assert "picoclaw" in said
    assert '"output_tokens":150' in said.replace(" ", "")
    assert fresh.run("pgrep", "-f", "usage-(shim|collector)", check=False).stdout == ""
