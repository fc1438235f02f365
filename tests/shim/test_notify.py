"""What systemd is told, on a real datagram socket, and the sockets it hands over."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from shim.notify import Notify, listen_sockets

OTHER = str(os.getpid() + 1)  # another process's id; ours may be 1, in a container


@pytest.fixture
def systemd(tmp_path: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(2)
        yield receiver


def test_each_state_is_one_datagram(systemd):
    notify = Notify({"NOTIFY_SOCKET": systemd.getsockname()})
    notify.ready("1 in flight")
    notify.alive()
    notify.stopping()
    assert [systemd.recv(100) for _ in range(3)] == [b"READY=1\nSTATUS=1 in flight", b"WATCHDOG=1", b"STOPPING=1"]


def test_a_reload_carries_the_monotonic_time_that_systemd_wants(systemd):
    Notify({"NOTIFY_SOCKET": systemd.getsockname()}).reloading()
    state, monotonic = systemd.recv(100).decode().split("\n")
    assert (state, monotonic.partition("=")[0]) == ("RELOADING=1", "MONOTONIC_USEC")


def test_an_abstract_address_is_understood():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0vm-usage-test-{os.getpid()}")
        receiver.settimeout(2)
        Notify({"NOTIFY_SOCKET": f"@vm-usage-test-{os.getpid()}"}).ready()
        assert receiver.recv(100) == b"READY=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/notify"}])
def test_without_systemd_nothing_happens(environ):
    Notify(environ).ready()


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": OTHER}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_pinged_at_half_its_time(environ, seconds):
    assert Notify(environ).watchdog_seconds == seconds


def test_no_socket_is_taken_that_is_for_another_process():
    environ = {"LISTEN_PID": OTHER, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "shim"}
    assert listen_sockets(environ) == []
    assert environ == {}


def test_an_inherited_socket_accepts():
    code = (
        "import os; from shim.notify import listen_sockets\n"
        "os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "(one,) = listen_sockets(os.environ); one.setblocking(True)\n"
        "peer, _ = one.accept(); peer.sendall(b'taken'); assert not os.get_inheritable(3)"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.set_inheritable(listener.fileno(), True)
        command = [sys.executable, "-c", f"import os; os.dup2({listener.fileno()}, 3)\n{code}"]
        environ = {**os.environ, "LISTEN_FDS": "1"}
        with subprocess.Popen(command, env=environ, pass_fds=(listener.fileno(),)) as process:
            with socket.create_connection(listener.getsockname(), timeout=10) as client:
                assert client.recv(10) == b"taken"
            assert process.wait(10) == 0
