"""What a test sees of a running shim from outside."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.programs import Shim
from tests.faults.upstream import TAIL


def eventually(true: Callable[[], Any], seconds: float = 10.0) -> Any:
    """The first true value of ``true``; fails when none comes within ``seconds``."""
    end = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.02)
    return value


def post(shim: Shim, marker: str, what: str = "plain", runtime: str = "picoclaw") -> httpx.Response:
    """One whole call."""
    body = {"model": marker, "messages": [{"role": "user", "content": "hello"}]}
    return httpx.post(f"{shim.url}/{runtime}/openai/{what}/{TAIL}", json=body, timeout=20)


def status(shim: Shim) -> dict[str, Any]:
    """``/-/status``."""
    shown: dict[str, Any] = httpx.get(shim.url + "/-/status", timeout=10).json()
    return shown


def metric(shim: Shim, name: str) -> float:
    """The sum of a metric's samples, 0 where it has none."""
    text = httpx.get(shim.url + "/-/metrics", timeout=10).text
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    """The events of a name that the shim logged."""
    lines = (folder / "shim.err").read_text().splitlines()
    return [event for event in map(json.loads, filter(lambda x: x.startswith("{"), lines)) if event["event"] == name]


def resident_bytes(pid: int) -> int:
    """Resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def outcomes(lines: list[dict[str, Any]]) -> dict[str, str]:
    """Outcome by marker; fails where a call has two lines."""
    found = {line["model"]: line["outcome"] for line in lines}
    assert len(found) == len(lines), "a call was written twice"
    return found
