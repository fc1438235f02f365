"""What passes the shim is what was sent: heads, bodies, framing, timing, errors, upgrades, hang-ups."""

from __future__ import annotations

import itertools
import socket
import time

import pytest

from tests.e2e.programs import Shim
from tests.fake_upstream import CLOSE, EMPTY, WAIT, FakeUpstream, chunked, stream_head, whole
from tests.shim.raw import connect, eventually, exchange, read_response, read_until, request, rest_of, status_of

CLOSING = "Connection: close"
EVENTS = [b'data: {"n":%d}\n\n' % n for n in range(20)]


def body_of(response: bytes) -> bytes:
    return response.partition(b"\r\n\r\n")[2]


def test_a_request_arrives_as_it_was_sent(shim: Shim, provider: FakeUpstream):
    headers = [
        "X-B: 2",
        "x-a:  1",
        "X-B: 3",
        "Accept-Encoding: gzip, br",
        "AUTHORIZATION: Bearer sk-test",
        "Cookie: a=b; c=d",
        "X-Utf8: \xc3\xa9",
    ]
    body = b'{"model": "m",\t"messages": [] }\r\n'
    path = "/picoclaw/openai/v1/chat/completions?a=%2F&b=%20&a=+"
    exchange(shim.url, request(shim.url, body, *headers, CLOSING, path=path))
    (got,) = provider.got
    assert got.target == "/v1/chat/completions?a=%2F&b=%20&a=+"
    assert got.body == body
    host = provider.url.removeprefix("http://")
    sent = [f"Host: {host}", *(h.replace(":  ", ": ") for h in headers), f"Content-Length: {len(body)}"]
    assert got.header_lines == [line.encode("latin-1") for line in sent]


def test_fields_of_the_connection_stay_behind(shim: Shim, provider: FakeUpstream):
    hop = [
        "Connection: close, X-Hop",
        "X-Hop: 1",
        "Keep-Alive: timeout=5",
        "Proxy-Authorization: Basic x",
        "TE: trailers",
        "X-VM-Usage-Secret: guess",
        "X-Stays: 1",
    ]
    exchange(shim.url, request(shim.url, b"{}", *hop))
    names = [line.split(b":")[0].lower() for line in provider.got[0].header_lines]
    assert names == [b"host", b"x-stays", b"content-length"]


def test_a_client_cannot_make_us_drop_what_routes_or_frames(shim: Shim, provider: FakeUpstream):
    exchange(shim.url, request(shim.url, b"{}", "Connection: close, Content-Length, Host"))
    assert provider.got[0].body == b"{}"


@pytest.mark.parametrize("status", ["200 OK", "201 Made", "400 Bad Request", "429 Slow Down", "500 Oops", "529 Over"])
def test_a_response_arrives_as_it_was_sent(shim: Shim, provider: FakeUpstream, status: str):
    sent = whole(b'{"error": "as it is"}', status, "X-One: 1", "x-one: 2", "Set-Cookie: a=1", "Retry-After: 7")
    provider.answers(sent)
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url))
        assert read_response(connection) == sent


def test_a_chunked_stream_arrives_with_its_own_chunks_and_trailer(shim: Shim, provider: FakeUpstream):
    sent = stream_head("Trailer: X-Sum") + b"5;ext=1\r\ndata:\r\n" + chunked(b" 1\n\n") + b"0\r\nX-Sum: 9\r\n\r\n"
    provider.answers(sent)
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url))
        assert read_until(connection, b"X-Sum: 9\r\n\r\n") == sent
        connection.sendall(request(shim.url))  # and the connection is still good
        assert read_until(connection, b"X-Sum: 9\r\n\r\n") == sent


def test_events_arrive_when_they_are_sent(shim: Shim, provider: FakeUpstream):
    steps: list[bytes | float] = [stream_head()]
    for event in EVENTS[:6]:
        steps += [chunked(event), 0.08]
    provider.answers(*steps, b"0\r\n\r\n")
    times = []
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url))
        for event in EVENTS[:6]:
            read_until(connection, event)
            times.append(time.monotonic())
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert all(gap > 0.03 for gap in gaps), gaps


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_stream_cut_anywhere_arrives_whole(shim: Shim, provider: FakeUpstream, size: int):
    sent = stream_head() + chunked(*EVENTS[:5]) + b"0\r\n\r\n"
    provider.answers(*[sent[i : i + size] for i in range(0, len(sent), size)])
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url))
        assert read_until(connection, b"0\r\n\r\n") == sent


def test_a_body_that_the_close_ends_is_ended_by_a_close(shim: Shim, provider: FakeUpstream):
    provider.answers(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello", CLOSE)
    answer = exchange(shim.url, request(shim.url))
    assert answer == b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nhello"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_a_status_without_a_body_has_none(shim: Shim, provider: FakeUpstream, status: str):
    sent = f"HTTP/1.1 {status}\r\nETag: x\r\n\r\n".encode()
    provider.answers(sent)
    with connect(shim.url) as connection:
        for _ in range(2):
            connection.sendall(request(shim.url))
            assert read_until(connection, b"\r\n\r\n") == sent


def test_head_gets_a_length_and_no_body(shim: Shim, provider: FakeUpstream):
    sent = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
    provider.answers(sent)
    with connect(shim.url) as connection:
        for _ in range(2):
            connection.sendall(request(shim.url, b"", method="HEAD", path="/picoclaw/openai/v1/models"))
            assert read_until(connection, b"\r\n\r\n") == sent


def test_interim_responses_pass(shim: Shim, provider: FakeUpstream):
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    provider.answers(early, 0.05, EMPTY)
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url))
        assert read_until(connection, b"{}") == early + EMPTY


def test_a_client_that_waits_for_100_gets_it(shim: Shim, provider: FakeUpstream):
    with connect(shim.url) as connection:
        head = request(shim.url, b"x" * 10, "Expect: 100-continue")[:-10]
        connection.sendall(head)
        assert read_until(connection, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b'{"a":"bcd"')
        assert read_response(connection) == EMPTY
    assert provider.got[0].body == b'{"a":"bcd"'
    assert b"expect" not in provider.got[0].head.lower()


def test_a_chunked_request_arrives_whole(shim: Shim, provider: FakeUpstream):
    for path in ("/picoclaw/openai/v1/chat/completions", "/picoclaw/openai/v1/files"):
        head = request(shim.url, b"", "Transfer-Encoding: chunked", CLOSING, path=path)
        exchange(shim.url, head + chunked(b'{"a":', b"1}") + b"0\r\nX-T: 1\r\n\r\n")
    assert [got.body for got in provider.got] == [b'{"a":1}', b'{"a":1}']


def test_a_long_head_passes_both_ways(shim: Shim, provider: FakeUpstream):
    long = "X-Long: " + "y" * 60000
    provider.answers(whole(b"{}", "200 OK", long))
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url, b"{}", long))
        assert long.encode() in read_response(connection)
    assert long.encode() in provider.got[0].head


def test_requests_may_come_one_behind_the_other(shim: Shim, provider: FakeUpstream):
    provider.script = lambda got: [0.02, whole(got.target.encode())]
    paths = [f"/picoclaw/openai/v1/files/{n}" for n in range(20)]
    with connect(shim.url) as connection:
        connection.sendall(b"".join(request(shim.url, b"", path=path, method="GET") for path in paths))
        answers = [body_of(read_response_of(connection, path)) for path in paths]
    assert answers == [path.removeprefix("/picoclaw/openai").encode() for path in paths]


def test_any_number_of_requests_may_come_at_once(shim: Shim):
    one = request(shim.url, b"", path="/-/healthz", method="GET")
    last = request(shim.url, b"", CLOSING, path="/-/healthz", method="GET")
    assert exchange(shim.url, one * 3000 + last).count(b'{"status":"ok"}') == 3001


def read_response_of(connection: socket.socket, path: str) -> bytes:
    sent = whole(path.removeprefix("/picoclaw/openai").encode())
    data = b""
    while len(data) < len(sent):
        data += connection.recv(len(sent) - len(data))
    return data


def test_an_http_1_0_client_gets_no_chunks(shim: Shim, provider: FakeUpstream):
    provider.answers(stream_head() + chunked(*EVENTS) + b"0\r\n\r\n")
    sent = request(shim.url).replace(b"HTTP/1.1", b"HTTP/1.0")
    answer = exchange(shim.url, sent)
    assert b"chunked" not in answer
    assert body_of(answer) == b"".join(EVENTS)


def test_a_websocket_is_passed_through_both_ways(shim: Shim, provider: FakeUpstream):
    agreed = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    provider.answers(agreed + b"hello", WAIT, b"\x81\x01x", WAIT)
    upgrade = ("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: a")
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url, b"", *upgrade, method="GET", path="/picoclaw/openai/v1/responses"))
        assert read_until(connection, b"hello") == agreed + b"hello"
        connection.sendall(b"\x81\x01y")
        assert read_until(connection, b"\x81\x01x") == b"\x81\x01x"
        connection.sendall(b"z")
    got = provider.got[0].header_lines
    assert b"Upgrade: websocket" in got
    assert b"Connection: Upgrade" in got


def test_an_upgrade_that_is_refused_is_a_plain_answer(shim: Shim, provider: FakeUpstream):
    provider.answers(whole(b"no", "426 Upgrade Required"))
    upgrade = ("Connection: Upgrade", "Upgrade: websocket")
    answer = exchange(shim.url, request(shim.url, b"", *upgrade, method="GET", path="/picoclaw/openai/v1/responses"))
    assert (status_of(answer), body_of(answer)) == (426, b"no")


def test_a_redirect_is_passed_on_and_not_followed(shim: Shim, provider: FakeUpstream):
    provider.answers(whole(b"", "302 Found", "Location: http://127.0.0.1:9/elsewhere"))
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url))
        assert b"Location: http://127.0.0.1:9/elsewhere" in read_response(connection)
    assert len(provider.got) == 1


def test_a_cut_answer_is_a_cut_answer(shim: Shim, provider: FakeUpstream):
    sent = stream_head() + chunked(*EVENTS[:3])
    provider.answers(sent, 0.05, CLOSE)
    assert exchange(shim.url, request(shim.url)) == sent


def test_a_client_that_leaves_makes_the_upstream_hear_it(shim: Shim, provider: FakeUpstream):
    provider.answers(stream_head() + chunked(EVENTS[0]), WAIT)
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url))
        read_until(connection, EVENTS[0])
    eventually(lambda: provider.got[0].hung_up)


def test_a_pooled_connection_that_was_closed_is_no_error(shim: Shim, provider: FakeUpstream):
    for _ in range(5):
        provider.answers_in_turn([EMPTY], [CLOSE], [EMPTY])
        assert body_of(exchange(shim.url, request(shim.url, b"{}", CLOSING))) == b"{}"
        assert body_of(exchange(shim.url, request(shim.url, b'{"again":1}', CLOSING))) == b"{}"
    assert provider.got[-1].body == b'{"again":1}'


def test_a_new_connection_that_closes_is_tried_once(shim_process, upstream: FakeUpstream):
    shim = shim_process()
    upstream.answers(CLOSE)
    assert status_of(exchange(shim.url, request(shim.url))) == 502
    assert len(upstream.got) == 1


def test_an_answer_that_is_not_http_is_a_502(shim_process, upstream: FakeUpstream):
    shim = shim_process()
    upstream.answers(b"SSH-2.0-OpenSSH_9\r\n\r\n")
    answer = exchange(shim.url, request(shim.url))
    assert status_of(answer) == 502
    assert b"upstream openai" in answer


def test_bytes_behind_an_answer_are_nobodys(shim: Shim, provider: FakeUpstream):
    provider.answers(EMPTY + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    with connect(shim.url) as connection:
        for _ in range(2):
            connection.sendall(request(shim.url))
            assert read_response(connection) == EMPTY


def test_an_answer_before_the_body_is_over_ends_the_upload(shim: Shim, provider: FakeUpstream):
    provider.read_bodies = False
    try:
        provider.answers(whole(b"too much", "413 Content Too Large"), 0.3, CLOSE)
        with connect(shim.url) as connection:
            head = request(shim.url, b"", "Content-Length: 100000000", path="/picoclaw/openai/v1/files")
            connection.sendall(head + b"x" * 1000)
            answer = rest_of(connection)
    finally:
        provider.read_bodies = True
    assert status_of(answer) == 413
    assert answer.endswith(b"too much")
