"""Content codings are undone on a copy, whatever the header says; what cannot be read is given up, never raised."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.decode import LIMIT, PIECE, RATIO, ContentDecoder
from tests.wires.recorded import raw_deflate

BODY = b'{"model": "m-1", "usage": {"prompt_tokens": 12}, "text": "' + bytes(range(97, 123)) * 400 + b'"}'
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}
sizes = pytest.mark.parametrize("size", [1, 97, 1_000_000])


def decode(coding: str, data: bytes, size: int = 97) -> tuple[bytes, bool]:
    decoder = ContentDecoder(coding)
    pieces = [piece for at in range(0, len(data), size) for piece in decoder.feed(data[at : at + size])]
    return b"".join([*pieces, *decoder.finish()]), decoder.gave_up


@sizes
@pytest.mark.parametrize("coding", CODINGS)
def test_declared_coding_is_undone(coding: str, size: int) -> None:
    assert decode(coding, CODINGS[coding](BODY), size) == (BODY, False)


@sizes
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_undeclared_coding_is_found_by_its_magic(coding: str, size: int) -> None:
    assert decode("", CODINGS[coding](BODY), size) == (BODY, False)


@pytest.mark.parametrize("coding", [*CODINGS, "identity", "gzip, br"])
def test_a_plain_body_under_a_coding_is_plain(coding: str) -> None:
    assert decode(coding, BODY) == (BODY, False)


@pytest.mark.parametrize("data", [b"", b"{}", b"\n", b"[1]"])
def test_a_body_too_short_to_tell_is_plain(data: bytes) -> None:
    assert decode("gzip", data) == (data, False)


def test_one_coding_under_another_ones_name() -> None:
    assert decode("gzip", zstandard.compress(BODY)) == (BODY, False)
    assert decode("br", gzip.compress(BODY)) == (BODY, False)
    assert decode("deflate", gzip.compress(BODY)) == (BODY, False)


def test_deflate_comes_with_and_without_its_header() -> None:
    assert decode("deflate", raw_deflate(BODY)) == (BODY, False)


@sizes
def test_stacked_codings_are_undone_from_the_last_to_the_first(size: int) -> None:
    assert decode("gzip, br", brotli.compress(gzip.compress(BODY)), size) == (BODY, False)


def test_an_undeclared_coding_inside_a_declared_one_is_found() -> None:
    assert decode("br", brotli.compress(gzip.compress(BODY))) == (BODY, False)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_members_in_a_row_are_one_body(coding: str) -> None:
    assert decode(coding, CODINGS[coding](BODY) * 3, 64) == (BODY * 3, False)


def test_a_coding_flushed_per_event_gives_each_event_at_once() -> None:
    compressor = zlib.compressobj(wbits=31)
    decoder = ContentDecoder("gzip")
    for event in (b"data: {}\n\n", b"data: [DONE]\n\n"):
        flushed = compressor.compress(event) + compressor.flush(zlib.Z_SYNC_FLUSH)
        assert b"".join(decoder.feed(flushed)) == event


@pytest.mark.parametrize("coding", CODINGS)
def test_a_cut_body_gives_what_came_before_the_cut(coding: str) -> None:
    whole = CODINGS[coding](BODY)
    text, _ = decode(coding, whole[:-12])
    assert BODY.startswith(text)


@pytest.mark.parametrize("coding", CODINGS)
def test_damage_ends_the_reading(coding: str) -> None:
    whole = bytearray(CODINGS[coding](BODY))
    whole[len(whole) // 2 :] = b"\xff" * (len(whole) - len(whole) // 2)
    text, gave_up = decode(coding, bytes(whole) + b"\xff" * 64)
    assert len(text) < len(BODY) or gave_up


def test_an_unknown_coding_is_not_read() -> None:
    assert decode("dcb", BODY) == (b"", True)
    assert decode("gzip, " * 9, BODY) == (b"", True)


@pytest.mark.parametrize("coding", CODINGS)
def test_a_bomb_is_given_up_in_small_pieces(coding: str) -> None:
    bomb = CODINGS[coding](bytes(8 * LIMIT))
    decoder = ContentDecoder(coding)
    lengths = [len(piece) for at in range(0, len(bomb), 16384) for piece in decoder.feed(bomb[at : at + 16384])]
    assert decoder.gave_up
    assert sum(lengths) <= max(LIMIT, RATIO * len(bomb)) + max(lengths)
    assert max(lengths) <= 16 * PIECE


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*CODINGS, "", "gzip, zstd"]), st.binary(max_size=200), st.integers(1, 50))
def test_no_bytes_make_the_decoder_raise(coding: str, data: bytes, size: int) -> None:
    for start in (b"", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x78\x9c"):
        decode(coding, start + data, size)
