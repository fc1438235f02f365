"""Clients that are slow, many or huge: memory stays bounded and other calls go on."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.e2e.programs import Shim
from tests.faults.client import Call
from tests.faults.conftest import Start
from tests.faults.upstream import TAIL, Upstream
from tests.faults.watch import eventually, post, resident_bytes

MIB = 2**20
IDLE_CONNECTIONS = 10_000


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE_CONNECTIONS + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"{wanted} descriptors are needed, {hard} allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(shim: Shim) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(shim.url).port or 0), timeout=20)


def test_slow_heads_do_not_hold_up_other_calls(shim: Shim):
    slow = [connect(shim) for _ in range(200)]
    for n, each in enumerate(slow):
        each.sendall(b"POST /picoclaw/openai/plain/v1/chat/completions HTTP/1.1\r\nx-slow: " + b"a" * (n % 7))
    began = time.monotonic()
    for n in range(20):
        assert post(shim, f"m-{n}").status_code == 200
        for each in slow[n::20]:
            each.sendall(b"a")
    assert time.monotonic() - began < 5
    for each in slow:
        each.close()


def test_a_hundred_thousand_headers_are_refused_and_reach_no_upstream(shim: Shim, upstream: Upstream):
    before = resident_bytes(shim.process.pid)
    flood = connect(shim)
    flood.sendall(b"POST /picoclaw/openai/plain/v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
    answer = b""
    with contextlib.suppress(ConnectionError):
        for n in range(1000):
            flood.sendall(b"".join(b"x-%d-%d: 1\r\n" % (n, k) for k in range(100)))
        flood.sendall(b"content-length: 0\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        answer = flood.recv(4096)
    flood.close()
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"431")
    assert resident_bytes(shim.process.pid) - before < 8 * MIB
    assert post(shim, "m-1").status_code == 200
    assert upstream.calls.total() == 1


def test_a_body_of_1_gib_is_streamed_through_in_bounded_memory(shim: Shim, upstream: Upstream):
    size = 1024 * MIB
    begin = b'{"model": "m-1", "messages": "'
    call = Call(shim, "plain", "m-9", stream=False)
    assert call.status() == 200
    before = resident_bytes(shim.process.pid)
    huge = connect(shim)
    huge.settimeout(60)
    huge.sendall(call.head(f"/picoclaw/openai/plain/{TAIL}", size) + begin)
    block, left, peak = b"x" * (4 * MIB), size - len(begin), 0
    while left:
        huge.sendall(block[:left])
        left -= min(left, len(block))
        peak = max(peak, resident_bytes(shim.process.pid))
    assert huge.recv(4096).split(b" ")[1] == b"200"
    assert upstream.body_bytes["m-1"] == size
    assert peak - before < 40 * MIB
    huge.close()


def test_a_response_of_256_mib_to_a_slow_reader_is_not_kept_in_memory(shim: Shim):
    call = Call(shim, f"big-{256 * MIB}", "m-1", stream=False)
    before = resident_bytes(shim.process.pid)
    call.read_until(b"\r\n\r\n")
    time.sleep(0.5)
    assert resident_bytes(shim.process.pid) - before < 8 * MIB
    assert post(shim, "m-2").status_code == 200
    call.hang_up()
    eventually(lambda: len(shim.lines()) == 2)


def test_ten_thousand_idle_connections_leave_room_for_calls(many_descriptors: None, start: Start):
    with start() as shim:
        before = resident_bytes(shim.process.pid)
        crowd = [connect(shim) for _ in range(IDLE_CONNECTIONS)]
        assert post(shim, "m-1").status_code == 200
        assert resident_bytes(shim.process.pid) - before < IDLE_CONNECTIONS * 8 * 1024
        for each in crowd:
            each.close()
        assert post(shim, "m-2").status_code == 200
