"""The end of a response, found by rules and not by luck: any split, any framing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.response import BadResponse, Body, Chunked, Counted, parse_head


def walk(body: Body, data: bytes, cuts: list[int]) -> tuple[bytes, int]:
    """The payload found in ``data`` cut at ``cuts``, and how many bytes belonged to the response."""
    payload: list[bytes] = []
    used = 0
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for start, end in itertools.pairwise(edges):
        if body.ended:
            break
        used += body.walk(data[start:end], payload)
    return b"".join(payload), used


def encode(chunks: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    parts = [b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks if chunk]
    return b"".join(parts) + b"0\r\n" + trailer + b"\r\n"


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.lists(st.integers(0, 400), max_size=12),
    st.sampled_from([b"", b";name=value", b' ; a="b"']),
    st.sampled_from([b"", b"X-Trailer: 1\r\n", b"A: b\r\nC: d\r\n"]),
    st.binary(max_size=8),
)
def test_a_chunked_body_ends_where_it_ends(chunks, cuts, extension, trailer, after):
    data = encode(chunks, extension, trailer)
    body = Chunked()
    payload, used = walk(body, data + after, cuts)
    assert body.ended
    assert payload == b"".join(chunks)
    # A cut may leave bytes behind the end in a piece of their own, which nobody walks over any more.
    assert used == len(data)


@given(st.binary(max_size=60), st.lists(st.integers(0, 80), max_size=6), st.binary(max_size=8))
def test_a_counted_body_ends_after_its_bytes(content, cuts, after):
    body = Counted(len(content))
    payload, used = walk(body, content + after, cuts)
    assert (payload, used, body.ended) == (content, len(content), True)


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), st.integers(1, 30))
def test_a_chunked_body_that_is_cut_has_not_ended(chunks, missing):
    data = encode(chunks)
    body = Chunked()
    body.walk(data[: len(data) - min(missing, len(data) - 1)], [])
    assert not body.ended


@pytest.mark.parametrize(
    "line", [b"xyz\r\n", b"-1\r\n", b"0x5\r\n", b"1_0\r\n", b"\r\n", b"+5\r\n", b"5" * 20 + b"\r\n"]
)
def test_a_size_that_is_no_number_is_refused(line: bytes):
    with pytest.raises(BadResponse):
        Chunked().walk(line + b"abc", [])


def test_a_size_line_or_trailer_without_an_end_is_refused_at_a_bound():
    with pytest.raises(BadResponse):
        Chunked().walk(b"1" * 20000, [])
    body = Chunked()
    body.walk(b"0\r\n", [])
    with pytest.raises(BadResponse):
        body.walk(b"a: b\r\n" * 20000, [])


def head(*lines: str, method: str = "POST"):
    return parse_head("\r\n".join(lines).encode(), method)


def test_what_comes_after_the_head_is_decided_by_the_rules_in_their_order():
    assert head("HTTP/1.1 200 OK", "Content-Length: 5").reusable
    assert head("HTTP/1.1 200 OK").to_close
    assert head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked").chunked
    assert head("HTTP/1.1 200 OK", "Transfer-Encoding: gzip, Chunked").chunked
    assert head("HTTP/1.1 200 OK", "Transfer-Encoding: gzip").to_close
    for status in ("204 No Content", "304 Not Modified"):
        assert head(f"HTTP/1.1 {status}", "Content-Length: 5").body.ended
    assert head("HTTP/1.1 200 OK", "Content-Length: 5", method="HEAD").body.ended


def test_a_connection_is_kept_only_where_both_say_so():
    assert not head("HTTP/1.1 200 OK", "Content-Length: 0", "Connection: close").reusable
    assert not head("HTTP/1.0 200 OK", "Content-Length: 0").reusable
    assert head("HTTP/1.0 200 OK", "Content-Length: 0", "Connection: Keep-Alive").reusable
    assert not head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Content-Length: 5").reusable


@pytest.mark.parametrize(
    "lines",
    [
        ("HTTP/2 200",),
        ("HTTP/1.1 20 OK",),
        ("ICY 200 OK",),
        ("HTTP/1.1 200 OK", "X: a\nTransfer-Encoding: chunked"),
        ("HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 6"),
        ("HTTP/1.1 200 OK", "Content-Length: -5"),
        ("HTTP/1.1 200 OK", "Content-Length: 5x"),
    ],
)
def test_what_is_not_http_is_refused(lines: tuple[str, ...]):
    with pytest.raises(BadResponse):
        head(*lines)


def test_a_length_that_is_said_twice_alike_is_taken_once():
    assert head("HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 5").reusable


def test_the_client_gets_every_line_but_those_of_the_connection():
    given_head = head(
        "HTTP/1.0 200 Fine by me",
        "X-Case: Kept",
        "x-case:  kept too ",
        "Connection: Keep-Alive, X-Hop",
        "Keep-Alive: timeout=5",
        "X-Hop: gone",
        "Content-Length: 0",
        "Set-Cookie: a=1",
        "Set-Cookie: b=2",
    )
    assert given_head.encode(close=False) == (
        b"HTTP/1.1 200 Fine by me\r\nX-Case: Kept\r\nx-case:  kept too \r\nContent-Length: 0\r\n"
        b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n"
    )


def test_a_length_beside_chunks_is_not_passed_on():
    both = head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Content-Length: 5")
    assert b"Content-Length" not in both.encode(close=False)
