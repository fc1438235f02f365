"""Reading files that others append to: whole lines only, from where the last pass ended, whatever the file is."""

import json
import os
import random
import socket
import tracemalloc

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import jsonl
from collector.jsonl import LineFile, json_document, lines, lines_with, open_file, parse, unpacked
from collector.runtimes import SourceError


def drain(file: LineFile, size: int = 7) -> bytes:
    return b"".join(file.blocks(size))


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 50), st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_two_passes_over_a_growing_file_give_each_whole_line_once(tmp_path_factory, parts, size, cut):
    path = tmp_path_factory.mktemp("d") / "f"
    data = b"".join(part.replace(b"\n", b" ") + b"\n" for part in parts)
    path.write_bytes(data[:cut])
    first = LineFile(path)
    got = drain(first, size)
    assert not got or got.endswith(b"\n")
    path.write_bytes(data)
    assert got + drain(LineFile(path, first.position), size) == data.removeprefix(jsonl.BYTE_ORDER_MARK)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(jsonl.BYTE_ORDER_MARK + b'{"a":1}\n')
    file = LineFile(path)
    assert drain(file) == b'{"a":1}\n'
    with path.open("ab") as more:
        more.write(b"two\n")
    assert drain(LineFile(path, file.position)) == b"two\n"
    path.write_bytes(jsonl.BYTE_ORDER_MARK + b'{"a":1}')
    assert json_document(path) == {"a": 1}


def test_a_last_line_without_its_newline_waits(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"one\ntw")
    file = LineFile(path)
    assert drain(file) == b"one\n"
    with path.open("ab") as more:
        more.write(b"o\n")
    assert drain(LineFile(path, file.position)) == b"two\n"


def test_a_replaced_or_shrunken_file_is_read_from_its_start(tmp_path):
    path, other = tmp_path / "f", tmp_path / "g"
    path.write_bytes(b"one\ntwo\n")
    file = LineFile(path)
    drain(file)
    path.write_bytes(b"new\n")
    assert drain(LineFile(path, file.position)) == b"new\n"
    other.write_bytes(b"another file of more bytes\n")
    os.replace(other, path)
    assert drain(LineFile(path, file.position)) == b"another file of more bytes\n"


@pytest.mark.parametrize("now", [b"two\nthree\nfour\n", b"TWO\nthree\n", b"one\nTWO\nthree\n"])
def test_a_file_that_was_written_anew_in_place_is_read_from_its_start_though_it_has_not_shrunk(tmp_path, now):
    path = tmp_path / "f"
    path.write_bytes(b"one\ntwo\n")
    file = LineFile(path)
    drain(file)
    path.write_bytes(now)
    assert drain(LineFile(path, file.position)) == now


def test_a_position_from_before_checksums_is_believed_and_gets_one(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"one\ntwo\n")
    file = LineFile(path, [path.stat().st_ino, 4])
    assert drain(file) == b"two\n"
    assert len(file.position) == 3


def test_a_line_that_is_too_long_is_dropped_and_the_next_one_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "MAX_LINE", 50)
    path = tmp_path / "f"
    path.write_bytes(b"one\n" + b"x" * 500 + b"\ntwo\n")
    file = LineFile(path)
    assert drain(file, 16) == b"one\ntwo\n"
    assert file.skipped == {"too_long": 1}


@pytest.mark.parametrize(("length", "fits"), [(1 << 19, True), (1 << 20, False)])
def test_a_line_of_an_archive_may_be_as_long_as_one_of_a_file(tmp_path, monkeypatch, length, fits):
    monkeypatch.setattr(jsonl, "MAX_LINE", 1 << 19)
    path, noise = tmp_path / "f.zst", random.Random(1).randbytes(length).replace(b"\n", b" ")
    text = b"one\n" * 200_000 + noise + b"\n"
    path.write_bytes(zstandard.compress(text))
    if fits:
        assert b"".join(unpacked(path)) == text
    else:
        with pytest.raises(SourceError, match="larger than an archive can be"):
            list(unpacked(path))


def test_links_fifos_sockets_folders_and_devices_are_refused_at_once(tmp_path):
    (tmp_path / "real").write_text("{}\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        for name in ("link", "fifo", "sock", ".", "gone"):
            with pytest.raises(SourceError):
                open_file(tmp_path / name)
        with pytest.raises(SourceError):
            drain(LineFile(tmp_path / "fifo"))
    assert json_document(tmp_path / "fifo") is None


@given(st.binary(max_size=300), st.integers(0, 300))
@settings(max_examples=100, deadline=None)
def test_lines_with_finds_exactly_the_lines_that_hold_the_needle(data, at):
    block = data[:at] + b'"usage"' + data[at:] + b"\n"
    assert list(lines_with(block, b'"usage"')) == [line for line in block.split(b"\n") if b'"usage"' in line]


@pytest.mark.parametrize("text", [b"", b"[1]", b"\xff\xfe", b'{"a":', b"[" * 5000 + b"]" * 5000, b"1", b"NaN"])
def test_what_is_not_a_json_object_is_none(text):
    assert parse(text) is None


@given(st.text(st.sampled_from('ab"\\/ud8\n\u20ac\ud83d\ude00\U0001f600'), max_size=9))
def test_half_a_character_is_a_mark_and_no_reason_to_lose_the_object(text):
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert parse(json.dumps({"text": text}).encode()) == {"text": whole}


@given(st.lists(st.binary(max_size=5).filter(lambda line: not set(line) & set(b"\r\n")), max_size=9), st.integers(1, 8))
def test_lines_are_the_same_in_pieces_of_any_size(parts, piece):
    whole, jsonl.PIECE = jsonl.PIECE, piece
    try:
        assert list(lines(b"".join(part + b"\n" for part in parts))) == parts
        assert list(lines(b"\n".join(parts))) == b"\n".join(parts).splitlines()
    finally:
        jsonl.PIECE = whole


def test_a_block_of_empty_lines_takes_no_more_memory_than_it_has_bytes():
    block = b"\n" * (16 << 20)
    tracemalloc.start()
    try:
        assert sum(1 for _ in lines(block)) == len(block)
        assert tracemalloc.get_traced_memory()[1] < len(block)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("line", [b"\0" * 9 + b'{"a": 1}', b'{"torn": "x\0\0{"a": 1}', b'{"a": 1}\0\0\0'])
def test_zero_bytes_that_a_crash_left_do_not_hide_the_object_beside_them(line):
    """A machine that lost power leaves zeros for what had no place on disk yet; the next run goes on behind them."""
    assert parse(line) == {"a": 1}
    assert parse(b"\0" * 9) is None
