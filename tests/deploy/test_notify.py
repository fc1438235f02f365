"""What the collector tells systemd: that it serves, that it lives, that it stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.programs import free_port

SECONDS = 20


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that systemd would listen on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(SECONDS)
        yield listener


def test_the_collector_serves_lives_and_stops(tmp_path: Path, systemd: socket.socket) -> None:
    port = free_port()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("VM_USAGE_")}
    environ |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000", "HOME": str(tmp_path)}
    environ |= {"VM_USAGE_STATE": str(tmp_path), "VM_USAGE_API_PORT": str(port)}
    with subprocess.Popen([sys.executable, "-m", "collector", "run"], env=environ) as collector:
        assert systemd.recv(100) == b"READY=1"
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).status_code == 200
        assert systemd.recv(100) == b"WATCHDOG=1"
        collector.send_signal(signal.SIGTERM)
        while (said := systemd.recv(100)) == b"WATCHDOG=1":
            pass
        assert said == b"STOPPING=1"
        assert collector.wait(SECONDS) == 0
