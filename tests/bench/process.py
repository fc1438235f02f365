"""The programs that are measured: how each is started, what processor time and memory it has used."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.programs import BIN, clean_environment, free_port

NGINX = """worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
events {{ worker_connections 4096; }}
http {{ access_log off; client_max_body_size 0; client_body_temp_path {folder}; proxy_temp_path {folder};
fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder}; keepalive_requests 1000000;
upstream provider {{ server 127.0.0.1:{upstream}; keepalive 512; }}
server {{ listen 127.0.0.1:{port} backlog=1024; location / {{ proxy_pass http://provider; proxy_http_version 1.1;
proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 300s; }} }} }}
"""


@dataclass(slots=True)
class Proxy:
    """A running program. ``prefix``: what its paths begin with."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    prefix: str = ""

    def cpu_seconds(self) -> float:
        """Processor time of the program and its children so far."""
        return sum(_clock(pid) for pid in _tree(self.process.pid))

    def megabytes(self, field: str) -> float:
        """``VmRSS`` (now) or ``VmHWM`` (at most) of the program and its children."""
        return sum(_status(pid, field) for pid in _tree(self.process.pid)) / 1024

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def start_shim(folder: Path, upstream: int, command: list[str] | None = None) -> Proxy:
    """The shim as it is used: allowlist, guard, metering and log on."""
    port = free_port()
    environ = clean_environment(
        folder,
        VM_USAGE_LOG=str(folder / "usage.jsonl"),
        VM_USAGE_SHIM_PORT=str(port),
        VM_USAGE_UPSTREAM_OPENAI=f"http://127.0.0.1:{upstream}",
    )
    return _started("usage-shim", port, command or [str(BIN / "usage-shim"), "run"], environ, "/picoclaw/openai")


def start_naive(folder: Path, upstream: int) -> Proxy:
    """An aiohttp proxy that meters nothing."""
    port = free_port()
    command = [sys.executable, "-m", "tests.bench.naive", str(port), f"http://127.0.0.1:{upstream}"]
    return _started("naive aiohttp", port, command, clean_environment(folder))


def start_nginx(folder: Path, upstream: int) -> Proxy:
    """nginx with keep-alive to the provider, unbuffered, without a log."""
    port = free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(NGINX.format(folder=folder, port=port, upstream=upstream))
    return _started("nginx", port, ["nginx", "-c", str(configuration)], clean_environment(folder))


def start_provider(folder: Path) -> Proxy:
    """What all of them forward to."""
    port = free_port()
    return _started(
        "provider", port, [sys.executable, "-m", "tests.bench.provider", str(port)], clean_environment(folder)
    )


def starters() -> list[Callable[[Path, int], Proxy]]:
    """Every program that can be measured on this machine."""
    return [*([start_nginx] if shutil.which("nginx") else []), start_naive, start_shim]


def _started(name: str, port: int, command: list[str], environ: dict[str, str], prefix: str = "") -> Proxy:
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    for _ in range(200):
        if process.poll() is not None:
            raise SystemExit(f"{name} ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return Proxy(name, port, process, prefix)
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{name} does not listen")


def _tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in _tree(int(child)))]


def _clock(pid: int) -> float:
    # The processor clock of a process, clock_getcpuclockid(3); /proc/PID/stat counts in hundredths of a second.
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9


def _status(pid: int, field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


def machine() -> str:
    """One line on where this was measured."""
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} x {model[1] if model else 'unknown processor'}, Python {sys.version.split()[0]}"
