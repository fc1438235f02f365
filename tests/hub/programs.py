"""Hubs and VMs as operators run them: real processes, real sockets, everything under one folder."""

from __future__ import annotations

import json
import random
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from shim.line import Line, Tokens, encode
from tests.e2e.programs import BIN, clean_environment, free_port, wait_until_healthy

COLLECTOR = str(BIN / "usage-collector")
NOW = time.time()


def usage_lines(vm: str, count: int, boot: str = "b", seed: int = 0, age: float = 7200) -> list[bytes]:
    """Usage lines of a token-blind runtime, one a second, the first ``age`` seconds ago."""
    draw = random.Random(f"{vm} {seed}")
    return [
        encode(
            Line(
                id=f"{boot}{vm}-{seq}",
                ts=NOW - age + seq,
                vm=vm,
                runtime="picoclaw",
                upstream="openai",
                wire="openai-chat",
                model=draw.choice(["gpt-4o", "gpt-4o-mini", "acme-1"]),
                session=f"s{seq % 7}",
                session_source="header",
                response=None,
                tokens=Tokens(draw.randrange(5000), draw.choice([None, 0, 100]), None, None, draw.randrange(900), None),
                usage="reported",
                outcome="completed",
            )
        )
        for seq in range(1, count + 1)
    ]


@dataclass(frozen=True, slots=True)
class Machine:
    """One VM: its folder and the environment of its collector."""

    name: str
    folder: Path
    environ: dict[str, str]

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [COLLECTOR, *arguments]
        return subprocess.run(command, env=self.environ, check=check, capture_output=True, text=True, timeout=60)

    def write(self, lines: Sequence[bytes]) -> None:
        with (self.folder / "usage.jsonl").open("ab") as log:
            log.write(b"".join(lines))

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        return json.loads(self.run("report", "--format", "json", *arguments).stdout)["rows"]


def machine(folder: Path, name: str, hub: str, token: str | None = None, **settings: str) -> Machine:
    """A VM that pushes to ``hub`` with ``token``."""
    folder = folder / name
    folder.mkdir()
    secret = folder / "hub.token"
    secret.touch(mode=0o600)
    secret.write_text(token or "")
    own = {
        "VM_USAGE_VM": name,
        "VM_USAGE_LOG": str(folder / "usage.jsonl"),
        "VM_USAGE_HOMES": str(folder),
        "VM_USAGE_TZ": "UTC",
        "VM_USAGE_HUB": hub,
        "VM_USAGE_HUB_TOKEN_FILE": str(secret),
        "VM_USAGE_HUB_RATE": "1000000",
    }
    return Machine(name, folder, clean_environment(folder, **own | settings))


@dataclass(slots=True)
class Hub:
    """A hub: its URL, folder and environment, and its process while it runs."""

    url: str
    folder: Path
    environ: dict[str, str]
    tls: Path | None = None
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        output = self.folder / f"hub-{self.url.rpartition(':')[2]}.out"
        with output.open("ab") as file:
            self.process = subprocess.Popen([COLLECTOR, "hub"], env=self.environ, stdout=file, stderr=file)
        verify = ssl.create_default_context(cafile=self.tls) if self.tls else False
        wait_until_healthy(self.process, f"{self.url}/healthz", output, verify)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=20)

    def command(self, *arguments: str) -> str:
        command = [COLLECTOR, "hub", *arguments]
        return subprocess.run(command, env=self.environ, check=True, capture_output=True, text=True, timeout=60).stdout

    def token(self, vm: str, *options: str) -> str:
        return self.command("token", "create", vm, *options).strip()

    def ask(self, path: str, **parameters: str) -> list[dict[str, Any]]:
        # loading the system's authorities for plain HTTP would take longer than the question
        answer = httpx.get(f"{self.url}/api/local/{path}", params=parameters, timeout=30, verify=False)
        answer.raise_for_status()
        return answer.json()["rows"]


@contextmanager
def hubs(folder: Path, count: int = 1, tls: Path | None = None, **settings: str) -> Iterator[list[Hub]]:
    """Hubs that share one store; ``tls``: the certificate that they show."""
    folder.mkdir(exist_ok=True)
    made = []
    for _ in range(count):
        port = free_port()
        own = {"VM_USAGE_STATE": str(folder), "VM_USAGE_HUB_PORT": str(port), "VM_USAGE_TZ": "UTC"}
        scheme = "https" if tls else "http"
        made.append(Hub(f"{scheme}://127.0.0.1:{port}", folder, clean_environment(folder, **own | settings), tls))
    try:
        for hub in made:
            hub.start()
        yield made
    finally:
        for hub in made:
            hub.stop()
