"""Wheel and sdist: the same sources give the same bytes, and the allowlist comes along."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.deploy.tools import DEPLOY, ROOT

BUILT_FROM = ("shim", "collector", "deploy", "pyproject.toml", "README.md", "LICENSE", "allowlist.yaml", "CHANGELOG.md")


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="needs hatchling")
def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    digests = []
    (tmp_path / "0").mkdir()
    for name in BUILT_FROM:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, tmp_path / "0" / name)
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    for number in ("0", "1"):
        command = [sys.executable, "-m", "hatchling", "build", "-d", "dist"]
        environ = {**os.environ, "SOURCE_DATE_EPOCH": "1796068800", "PYTHONHASHSEED": number, "VM_USAGE_PURE": "1"}
        subprocess.run(command, cwd=tmp_path / number, env=environ, check=True, capture_output=True)
        built = sorted((tmp_path / number / "dist").iterdir())
        digests.append([(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in built])
    assert len(digests[0]) == 2
    assert digests[0] == digests[1]
    wheel = next((tmp_path / "0/dist").glob("*.whl"))
    assert "shim/allowlist.yaml" in zipfile.ZipFile(wheel).namelist()


def test_every_requirement_of_the_package_is_pinned_with_hashes() -> None:
    text = re.sub(r"(?m)^\s*#.*\n", "", (DEPLOY / "requirements.txt").read_text())
    entries = re.split(r"(?m)^(?=\S)", text.replace("\\\n", ""))
    for entry in filter(str.strip, entries):
        assert re.match(r"[a-z0-9.-]+==\S+ ", entry), entry
        assert "--hash=sha256:" in entry


def test_every_dependency_of_the_project_is_among_them_at_a_version_it_allows() -> None:
    wanted = [
        Requirement(text) for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    ]
    pinned = dict(re.findall(r"(?m)^([a-z0-9.-]+)==(\S+)", (DEPLOY / "requirements.txt").read_text()))
    assert [str(one) for one in wanted if pinned.get(one.name.lower()) not in one.specifier] == []
