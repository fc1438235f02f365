"""Tools of the operating system that some tests need; without one they are skipped and say so."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent.parent
DEPLOY: Final = ROOT / "deploy"


def needs(tool: str) -> pytest.MarkDecorator:
    """Skips a test where ``tool`` is not on PATH."""
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"needs {tool}")


def needs_analyze() -> pytest.MarkDecorator:
    """Skips a test without systemd-analyze, or where it cannot work: it wants to make /run/systemd if there is none."""
    usable = shutil.which("systemd-analyze") and (os.geteuid() == 0 or Path("/run/systemd").is_dir())
    return pytest.mark.skipif(not usable, reason="needs systemd-analyze, and root where systemd does not run")


def said(*words: str | Path, code: int = 0) -> str:
    """What a command prints on both streams; its exit status has to be ``code``."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
