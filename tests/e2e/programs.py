"""The two programs as a user runs them: real processes over a temporary folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def clean_environment(folder: Path, **settings: str) -> dict[str, str]:
    """This process's environment without our variables, with ``settings``, everything under ``folder``."""
    kept = {name: value for name, value in os.environ.items() if "VM_USAGE_" not in name}
    return kept | {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "TZ": "UTC"} | settings


def wait_until_healthy(process: subprocess.Popen[bytes], url: str, output: Path, verify: Any = True) -> None:
    for _ in range(400):
        if process.poll() is not None:
            raise AssertionError(f"exit {process.returncode}: {output.read_text()[-2000:]}")
        try:
            if httpx.get(url, timeout=2, verify=verify).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"{url} did not answer: {output.read_text()[-2000:]}")


@dataclass(slots=True)
class Shim:
    """A running ``usage-shim``: its base URL, its log, its process and the environment it runs in."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]
    environ: dict[str, str]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_bytes().splitlines()] if self.log.exists() else []

    def wait_for_lines(self, count: int) -> list[dict[str, Any]]:
        """The lines once there are ``count`` of them; a line may come a moment after its answer."""
        deadline = time.monotonic() + 10
        while len(lines := self.lines()) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        return lines

    def stop(self, number: int = signal.SIGTERM) -> list[dict[str, Any]]:
        """Signal it, wait for its end and give the lines it wrote."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(30)
        return self.lines()


@contextmanager
def running_shim(
    folder: Path, upstreams: Mapping[str, str], runtime: str | None = None, **settings: str
) -> Iterator[Shim]:
    """A shim over ``folder`` with these upstreams (name in upper case to base URL); killed when the block ends."""
    port = free_port()
    log = folder / "usage.jsonl"
    environ = clean_environment(folder, VM_USAGE_LOG=str(log), VM_USAGE_SHIM_PORT=str(port), VM_USAGE_VM="vm-test")
    environ |= {f"VM_USAGE_UPSTREAM_{name}": url for name, url in upstreams.items()}
    environ |= ({"VM_USAGE_RUNTIME": runtime} if runtime else {}) | settings
    output = folder / "shim.err"
    with output.open("ab") as stderr:
        process = subprocess.Popen([BIN / "usage-shim", "run"], env=environ, stdout=stderr, stderr=stderr)
    try:
        wait_until_healthy(process, f"http://127.0.0.1:{port}/-/healthz", output)
        yield Shim(f"http://127.0.0.1:{port}", log, process, environ)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


@contextmanager
def running_collector(environ: Mapping[str, str], folder: Path) -> Iterator[str]:
    """``usage-collector run``, at the base URL that is given; stopped when the block ends."""
    port = free_port()
    output = folder / "collector.err"
    with output.open("wb") as stderr:
        process = subprocess.Popen(
            [BIN / "usage-collector", "run"],
            env={**environ, "VM_USAGE_API_PORT": str(port)},
            stdout=stderr,
            stderr=stderr,
        )
    try:
        wait_until_healthy(process, f"http://127.0.0.1:{port}/healthz", output)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def collector(environ: Mapping[str, str], *arguments: str, status: int = 0) -> str:
    """Run ``usage-collector`` to its end and give its standard output."""
    done = subprocess.run(
        [BIN / "usage-collector", *arguments], env=dict(environ), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == status, done.stderr + done.stdout
    return done.stdout


def report(environ: Mapping[str, str], by: str, *arguments: str) -> list[dict[str, Any]]:
    """The rows of ``usage-collector report --by BY --format json``."""
    rows: list[dict[str, Any]] = json.loads(collector(environ, "report", "--by", by, "--format", "json", *arguments))[
        "rows"
    ]
    return rows
