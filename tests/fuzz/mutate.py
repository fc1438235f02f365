"""Mutations of recorded bodies that stay close enough to the real thing to get past the first brace."""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Callable

from shim.framing.eventstream import PRELUDE

NUMBER = re.compile(rb"\d+(?:\.\d+)?")
NUMBERS = (b"0", b"-1", b"1e400", b"9223372036854775807", b"9223372036854775808", b"1.5", b"2.0", b"null", b"true")
TOKENS = (
    b'"usage":',
    b'"usageMetadata":{"promptTokenCount":3}',
    b'"response":{',
    b'"message":{"usage":null}',
    b'"error":{"message":"x"}',
    b'"type":"message_delta",',
    b'"type":"response.completed",',
    b'"iterations":[{"type":"advisor_message","model":"a","input_tokens":1}],',
    b'"done":true,',
    b'"stop":true,',
    b"data: [DONE]\n\n",
    b"event: error\n",
    b": ping\n\n",
    b"\r",
    b"\n\n",
    b"\xef\xbb\xbf",
    b"\\",
    b"\\u0075sage",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\xff",
    b"\x00",
    b"[" * 50,
    b'{"a":' * 50,
)
Mutation = Callable[[random.Random, bytes, bytes], bytes]


def slice_of(rng: random.Random, body: bytes) -> tuple[int, int]:
    start = rng.randrange(len(body) + 1)
    return start, min(len(body), start + rng.choice((1, 2, 8, 64, 512)))


def flip(rng: random.Random, body: bytes, other: bytes) -> bytes:
    start, _ = slice_of(rng, body)
    return body[:start] + bytes([rng.randrange(256)]) + body[start + 1 :]


def delete(rng: random.Random, body: bytes, other: bytes) -> bytes:
    start, end = slice_of(rng, body)
    return body[:start] + body[end:]


def repeat(rng: random.Random, body: bytes, other: bytes) -> bytes:
    start, end = slice_of(rng, body)
    return body[:end] + body[start:]


def insert(rng: random.Random, body: bytes, other: bytes) -> bytes:
    start, _ = slice_of(rng, body)
    return body[:start] + rng.choice(TOKENS) + body[start:]


def renumber(rng: random.Random, body: bytes, other: bytes) -> bytes:
    found = list(NUMBER.finditer(body))
    if not found:
        return body
    number = rng.choice(found)
    return body[: number.start()] + rng.choice(NUMBERS) + body[number.end() :]


def splice(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return body[: rng.randrange(len(body) + 1)] + other[rng.randrange(len(other) + 1) :]


def shuffle(rng: random.Random, body: bytes, other: bytes) -> bytes:
    gap = b"\n\n" if b"\n\n" in body else b"\n"
    messages = body.split(gap)
    rng.shuffle(messages)
    return gap.join(messages)


def cut(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return body[: rng.randrange(len(body) + 1)]


def line_ends(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return body.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n")))


MUTATIONS: tuple[Mutation, ...] = (flip, delete, repeat, insert, renumber, renumber, splice, shuffle, cut, line_ends)


def mutate(rng: random.Random, body: bytes, other: bytes) -> bytes:
    """A body with one to four mutations; ``other`` is a body of the same wire to splice with."""
    for _ in range(rng.randrange(1, 5)):
        body = rng.choice(MUTATIONS)(rng, body, other)
    return body[:20_000]


def mutate_frames(rng: random.Random, body: bytes, other: bytes) -> bytes:
    """An event stream whose payloads are mutated and whose checksums hold again, so that they are read."""
    frames = []
    at = 0
    while at + PRELUDE.size <= len(body):
        total, headers, _ = PRELUDE.unpack_from(body, at)
        start = at + PRELUDE.size
        payload = body[start + headers : at + total - 4]
        if rng.random() < 0.4:
            payload = mutate(rng, payload, payload)
        frames.append(sealed(body[start : start + headers], payload))
        at += total
    if rng.random() < 0.3:
        rng.shuffle(frames)
    return b"".join(frames)


def sealed(headers: bytes, payload: bytes) -> bytes:
    """A frame with right lengths and checksums."""
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return body + struct.pack(">I", zlib.crc32(body))
