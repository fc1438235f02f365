"""Requests that must reach no upstream, sent as raw bytes to a real process."""

from __future__ import annotations

import pytest

from tests.e2e.programs import Shim
from tests.fake_upstream import EMPTY, FakeUpstream
from tests.shim.raw import PATH, connect, exchange, read_response, request, rest_of, status_of

SECRET = "a-secret-of-the-tunnel"


def head(url: str, *lines: str) -> bytes:
    """A request head with our Host unless a line brings another."""
    host = [] if any(line.lower().startswith("host") for line in lines) else [f"Host: {url.removeprefix('http://')}"]
    return "\r\n".join([f"POST {PATH} HTTP/1.1", *host, *lines, "", ""]).encode("latin-1")


SMUGGLED = {
    "length and chunks": ("Content-Length: 4", "Transfer-Encoding: chunked"),
    "chunks and length": ("Transfer-Encoding: chunked", "Content-Length: 4"),
    "two lengths": ("Content-Length: 4", "Content-Length: 5"),
    "two equal lengths": ("Content-Length: 4", "Content-Length: 4"),
    "a signed length": ("Content-Length: +4",),
    "a length in a list": ("Content-Length: 4, 4",),
    "an unknown coding": ("Transfer-Encoding: xchunked",),
    "chunks not last": ("Transfer-Encoding: chunked, identity",),
    "chunks twice": ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "a folded line": ("X-A: b\r\n c",),
    "a folded coding": ("Transfer-Encoding:\r\n chunked",),
    "a bare CR": ("X-A: b\rTransfer-Encoding: chunked",),
    "a bare LF": ("X-A: b\nTransfer-Encoding: chunked",),
    "a NUL": ("X-A: b\0c",),
    "a space before the colon": ("Transfer-Encoding : chunked",),
    "a name with a space": ("X A: b",),
    "no name": (": b",),
    "two hosts": ("Host: 127.0.0.1:1", "Host: 127.0.0.1:1"),
    "no colon": ("X-A",),
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_a_request_that_two_readers_could_read_differently_is_refused(shim: Shim, provider: FakeUpstream, name: str):
    smuggled = b"0\r\n\r\nGET /picoclaw/openai/v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = exchange(shim.url, head(shim.url, *SMUGGLED[name]) + smuggled)
    assert 400 <= status_of(answer) < 500, answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert provider.got == []


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (f"POST http://127.0.0.1{PATH} HTTP/1.1", 400),
        ("CONNECT 127.0.0.1:80 HTTP/1.1", 405),
        (f"OPTIONS {PATH} HTTP/1.1", 405),
        ("OPTIONS * HTTP/1.1", 405),
        (f"TRACE {PATH} HTTP/1.1", 405),
        (f"POST {PATH}#f HTTP/1.1", 400),
        (f"POST {PATH} HTTP/2.0", 505),
        (f"POST {PATH}", 505),
        (f"POST {PATH} x HTTP/1.1", 400),
        (f"BREW {PATH} HTTP/1.1", 400),
        ("GET /picoclaw/openai/\x01 HTTP/1.1", 400),
        ("GET /picoclaw/openai/v1/x\\..\\y HTTP/1.1", 200),
    ],
)
def test_request_lines(shim: Shim, provider: FakeUpstream, line: str, status: int):
    host = shim.url.removeprefix("http://")
    answer = exchange(shim.url, f"{line}\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert status_of(answer) == status
    assert len(provider.got) == (status == 200)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "169.254.169.254", "localhost:1"])
def test_a_rebinding_host_reaches_nothing(shim: Shim, provider: FakeUpstream, host: str):
    for path in (PATH, "/-/status", "/-/metrics"):
        sent = request(shim.url, b"", path=path).replace(shim.url.removeprefix("http://").encode(), host.encode())
        assert status_of(exchange(shim.url, sent)) == 403
    assert provider.got == []


@pytest.mark.parametrize("header", ["Origin: null", "Origin: http://127.0.0.1", "Sec-Fetch-Site: none"])
def test_a_browser_reaches_nothing(shim: Shim, provider: FakeUpstream, header: str):
    for path in (PATH, "/-/status"):
        answer = exchange(shim.url, request(shim.url, b"", header, path=path))
        assert status_of(answer) == 403
        assert b"access-control" not in answer.lower()
    assert provider.got == []


def test_what_follows_a_refused_request_is_not_read(shim: Shim, provider: FakeUpstream):
    refused = request(shim.url, b"", "Origin: http://evil.example")
    answer = exchange(shim.url, refused + request(shim.url))
    assert answer.count(b"HTTP/1.1 ") == 1
    assert provider.got == []


def test_a_broken_chunk_ends_the_call_before_it_is_forwarded(shim: Shim, provider: FakeUpstream):
    answer = exchange(shim.url, head(shim.url, "Transfer-Encoding: chunked") + b"2\r\n{}\r\nzz\r\n")
    assert status_of(answer) == 400
    assert provider.got == []


def test_a_head_without_bounds_is_refused(shim: Shim, provider: FakeUpstream):
    many = b"".join(b"X-%d: y\r\n" % n for n in range(100_000))
    one = b"X: " + b"y" * 1_000_000 + b"\r\n"
    for flood in (many, one, b"A" * 500_000):
        with connect(shim.url) as connection:
            try:
                connection.sendall(head(shim.url)[:-2] + flood)
            except (ConnectionResetError, BrokenPipeError):
                continue
            assert status_of(rest_of(connection)) in (400, 431)
    assert provider.got == []
    assert status_of(exchange(shim.url, request(shim.url, b"{}", "Connection: close"))) == 200


def test_a_head_without_bounds_behind_a_call_is_refused_too(shim: Shim, provider: FakeUpstream):
    provider.answers(0.5, EMPTY)
    with connect(shim.url) as connection:
        flood = b"".join(b"X-%d: %b\r\n" % (n, b"y" * 8000) for n in range(100))
        try:
            connection.sendall(request(shim.url) + head(shim.url)[:-2] + flood)
            assert rest_of(connection).count(b"HTTP/1.1 200") == 0
        except (ConnectionResetError, BrokenPipeError):
            pass
    assert len(provider.got) <= 1


def test_no_upstream_comes_from_a_header(shim: Shim, provider: FakeUpstream):
    headers = ("X-Forwarded-Host: evil.example", "Forwarded: host=evil.example", "X-Upstream: http://evil.example")
    exchange(shim.url, request(shim.url, b"{}", *headers, "Connection: close"))
    assert f"Host: {provider.url.removeprefix('http://')}".encode() in provider.got[0].header_lines


def test_an_unknown_upstream_is_a_404_that_names_it(shim: Shim):
    answer = exchange(shim.url, request(shim.url, b"{}", path="/picoclaw/nowhere/v1/chat/completions"))
    assert status_of(answer) == 404
    assert b"There is no upstream nowhere" in answer


@pytest.mark.parametrize(
    ("header", "query"),
    [
        ("Authorization: AWS4-HMAC-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature=y", ""),
        ("Authorization: AWS4-ECDSA-P256-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature=y", ""),
        ("Accept: */*", "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIA%2Fx&X-Amz-Signature=y"),
    ],
)
def test_a_sigv4_signature_is_a_501(shim: Shim, provider: FakeUpstream, header: str, query: str):
    path = "/picoclaw/bedrock/model/m/converse" + query
    answer = exchange(shim.url, request(shim.url, b"{}", header, path=path))
    assert status_of(answer) == 501
    assert b"AKIA" not in answer
    assert provider.got == []


def test_a_host_of_the_tunnel_needs_its_secret(shim_process, upstream: FakeUpstream, tmp_path):
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    shim = shim_process(VM_USAGE_ALLOWED_HOSTS="tunnel.example", VM_USAGE_TUNNEL_SECRET_FILE=str(file))

    def call(*headers: str, path: str = PATH) -> int:
        sent = request(shim.url, b"{}", *headers, "Connection: close", path=path)
        return status_of(exchange(shim.url, sent.replace(shim.url.removeprefix("http://").encode(), b"tunnel.example")))

    assert call() == 403
    assert call("X-VM-Usage-Secret: wrong") == 403
    assert call(path=f"/wrong{PATH}") == 403
    assert upstream.got == []
    assert call(f"X-VM-Usage-Secret: {SECRET}") == 200
    assert call(path=f"/{SECRET}{PATH}") == 200
    assert all(SECRET.encode() not in got.head for got in upstream.got)
    assert [got.target for got in upstream.got] == ["/v1/chat/completions"] * 2
    assert call(path=f"/{SECRET}/-/status") == 403


def test_refusals_are_counted_by_reason(shim_process):
    shim = shim_process()
    exchange(shim.url, request(shim.url, b"", "Origin: null"))
    exchange(shim.url, head(shim.url, "Content-Length: x"))
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url, b"", path="/-/status", method="GET"))
        status = read_response(connection)
    assert b'{"reason":"browser","count":1}' in status
    assert b'{"reason":"malformed","count":1}' in status
