"""SIGKILL, SIGTERM, restarts: every call that reached the upstream is accounted for, exactly once."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from tests.e2e.programs import BIN, Shim, collector
from tests.faults.client import Call
from tests.faults.conftest import Start
from tests.faults.processes import spawn, wait_for
from tests.faults.shapes import MESSAGES
from tests.faults.upstream import Upstream
from tests.faults.watch import eventually, outcomes, post, status


def open_streams(shim: Shim, count: int, first: int = 1) -> list[Call]:
    """Streams of which the first words have come."""
    calls = [Call(shim, "drip", f"m-{first + n}") for n in range(count)]
    for call in calls:
        call.read_until(b"word 0")
    return calls


def test_kill_with_twenty_streams_open_gives_twenty_interrupted_lines_at_the_next_start(start: Start):
    with start() as shim:
        calls = open_streams(shim, 20)
        assert shim.stop(signal.SIGKILL) == []
    with start() as shim:
        lines = eventually(shim.lines)
        assert outcomes(lines) == {call.marker: "interrupted" for call in calls}
        assert {(line["usage"], line["input_tokens"], line["runtime"]) for line in lines} == {
            ("missing", None, "picoclaw")
        }
        assert status(shim)["recovered"] == [{"kind": "interrupted", "count": 20}]
        shim.stop()
    with start() as shim:
        post(shim, "m-99")
        assert len(eventually(lambda: len(shim.lines()) == 21 and shim.lines())) == 21


def test_ids_of_calls_before_and_after_a_kill_are_unique_and_without_a_gap(start: Start):
    with start() as shim:
        for n in range(3):
            post(shim, f"m-{n}")
        calls = open_streams(shim, 4, first=10)
        shim.stop(signal.SIGKILL)
        assert len(calls) == 4
    with start() as shim:
        post(shim, "m-20")
        lines = eventually(lambda: len(shim.lines()) == 8 and shim.lines())
    boots: dict[str, list[int]] = {}
    for line in lines:
        boot, _, seq = line["id"].rpartition("-")
        boots.setdefault(boot, []).append(int(seq))
    assert sorted(map(sorted, boots.values())) == [[1], [1, 2, 3, 4, 5, 6, 7]]
    audited = collector(shim.environ, "audit", str(shim.log))
    assert "4 interrupted" in audited
    assert "No findings" in audited


def test_a_kill_during_recovery_loses_and_doubles_nothing(start: Start, tmp_path: Path):
    with start() as shim:
        calls = open_streams(shim, 20)
        shim.stop(signal.SIGKILL)
    left = {path: path.read_bytes() for path in (tmp_path / "state").rglob("*.slots")}
    with start() as shim:
        eventually(lambda: len(shim.lines()) == 20)
        shim.stop(signal.SIGKILL)
    for path, data in left.items():
        path.write_bytes(data)
    with start() as shim:
        time.sleep(0.2)
        assert outcomes(shim.lines()) == {call.marker: "interrupted" for call in calls}


def test_term_lets_streams_end_and_writes_their_usage(shim: Shim, upstream: Upstream):
    calls = open_streams(shim, 5)
    shim.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    upstream.release.set()
    for call in calls:
        call.read_until(b"[DONE]")
    assert shim.process.wait(10) == 0
    lines = shim.lines()
    assert outcomes(lines) == {call.marker: "completed" for call in calls}
    assert {line["input_tokens"] for line in lines} == {1, 2, 3, 4, 5}


def test_term_closes_the_port_at_once(shim: Shim):
    open_streams(shim, 1)
    shim.process.send_signal(signal.SIGTERM)

    def closed() -> bool:
        try:
            post(shim, "m-9")
        except Exception as error:
            return type(error).__name__ in ("ConnectError", "ReadError", "RemoteProtocolError")
        return False

    assert eventually(closed)


def test_term_ends_a_stream_that_outlasts_the_bound_and_accounts_for_it(start: Start):
    with start(VM_USAGE_DRAIN_SECONDS="0.5") as shim:
        calls = open_streams(shim, 3)
        began = time.monotonic()
        shim.stop(signal.SIGTERM)
        assert shim.process.returncode == 0
        assert time.monotonic() - began < 5
    with start() as shim:
        lines = eventually(lambda: len(shim.lines()) == 3 and shim.lines())
        assert outcomes(lines) == {call.marker: "interrupted" for call in calls}
        assert {(line["usage"], line["http_status"]) for line in lines} == {("missing", 200)}
        assert "3 interrupted" in collector(shim.environ, "audit", str(shim.log))


def test_what_was_seen_of_a_stream_that_outlasts_the_bound_is_kept(start: Start, upstream: Upstream):
    with start(VM_USAGE_DRAIN_SECONDS="0.2", VM_USAGE_UPSTREAM_ANTHROPIC=upstream.url) as shim:
        asked = MESSAGES.request("m-7", True)
        with httpx.stream("POST", f"{shim.url}/picoclaw/anthropic/drip/v1/messages", json=asked, timeout=20) as stream:
            texts = stream.iter_text()
            while "word 1" not in next(texts):
                pass
            (line,) = shim.stop(signal.SIGTERM)
    assert (line["outcome"], line["usage"], line["input_tokens"]) == ("interrupted", "partial", 7)


def test_two_workers_share_the_log_and_a_kill_of_both_loses_no_call(start: Start):
    with start(VM_USAGE_WORKERS="2") as shim:
        for n in range(20):
            post(shim, f"m-{100 + n}")
        calls = open_streams(shim, 12)
        assert status(shim)["workers"] == 2
        workers = workers_of(shim)
        shim.stop(signal.SIGKILL)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
    with start(VM_USAGE_WORKERS="2") as shim:
        lines = eventually(lambda: len(shim.lines()) == 32 and shim.lines())
        found = outcomes(lines)
        assert [found[call.marker] for call in calls] == ["interrupted"] * 12
        assert len({line["id"] for line in lines}) == 32


def workers_of(shim: Shim) -> list[int]:
    """The process ids of a supervisor's workers."""
    return [int(pid) for pid in Path(f"/proc/{shim.process.pid}/task/{shim.process.pid}/children").read_text().split()]


def test_a_worker_that_dies_is_replaced_and_its_calls_are_recovered(start: Start):
    with start(VM_USAGE_WORKERS="2") as shim:
        before = workers_of(shim)
        calls = open_streams(shim, 6)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        lines = eventually(lambda: len(shim.lines()) == 6 and shim.lines())
        assert outcomes(lines) == {call.marker: "interrupted" for call in calls}
        assert eventually(lambda: len(workers_of(shim)) == 2)
        assert not set(before) & set(workers_of(shim))
        shim.stop()


def test_workers_whose_supervisor_is_gone_stop(start: Start):
    with start(VM_USAGE_WORKERS="2", VM_USAGE_DRAIN_SECONDS="1") as shim:
        workers = workers_of(shim)
        shim.stop(signal.SIGKILL)
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


@pytest.fixture
def systemd(tmp_path: Path):
    """The socket that systemd would listen on, and the one it is notified on."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as states:
        states.bind(str(tmp_path / "notify"))
        states.settimeout(15)
        yield listener, states


def activated(
    folder: Path, listener: socket.socket, states: socket.socket, upstream: Upstream, **settings: str
) -> Shim:
    """A shim that was handed ``listener`` as systemd does it: as descriptor 3."""
    take = 'exec 3<&"$1"; LISTEN_PID=$$ LISTEN_FDS=1 exec "$2" run'
    command = ["bash", "-c", take, "-", str(listener.fileno()), BIN / "usage-shim"]
    told = {"NOTIFY_SOCKET": states.getsockname(), "WATCHDOG_USEC": "400000"}
    return spawn(folder, command, upstream, listener.getsockname()[1], [listener.fileno()], **told, **settings)


def test_a_supervisor_is_ready_when_its_workers_are_and_alive_while_they_are(
    tmp_path: Path, systemd, upstream: Upstream
):
    _, states = systemd
    shim = activated(tmp_path, *systemd, upstream, VM_USAGE_WORKERS="2")
    assert states.recv(200).startswith(b"READY=1")
    assert post(shim, "m-1").status_code == 200
    assert states.recv(200).startswith(b"WATCHDOG=1")
    shim.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: states.recv(200).startswith(b"STOPPING=1"))
    assert shim.process.wait(10) == 0


def test_an_activated_socket_stays_open_across_a_kill_and_the_call_in_between_is_answered(
    tmp_path: Path, systemd, upstream: Upstream
):
    first = activated(tmp_path, *systemd, upstream)
    wait_for(first, tmp_path)
    first.stop(signal.SIGKILL)
    call = Call(first, "plain", "m-7", stream=False)
    second = activated(tmp_path, *systemd, upstream)
    try:
        assert call.status() == 200
    finally:
        second.stop()
    assert outcomes(second.lines()) == {"m-7": "completed"}


def test_systemd_is_told_ready_alive_and_stopping(tmp_path: Path, systemd, upstream: Upstream):
    _, states = systemd
    shim = activated(tmp_path, *systemd, upstream)
    try:
        assert states.recv(200).startswith(b"READY=1")
        assert post(shim, "m-1").status_code == 200
        pings = [states.recv(200) for _ in range(3)]
        assert all(ping.startswith(b"WATCHDOG=1") for ping in pings)
    finally:
        shim.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: states.recv(200).startswith(b"STOPPING=1"))
    shim.process.wait(10)
