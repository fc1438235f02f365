"""Fuzz the wire readers: ``python -m tests.fuzz [--wire W] [--count N] [--seed S]``.

Invariants, for any input: nothing raises; the same bytes split otherwise say the same; every count is null or a
number a line may hold, subsets hold, and the usage state agrees with the counts. A find is printed with the seed and
number that make it again; exit 1 if there was any.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass

from shim.line import MAX_TOKENS, TOKEN_CLASSES
from shim.wires import Exchange, Reading
from shim.wires.table import READERS, open_reader
from tests.fuzz.mutate import mutate, mutate_frames
from tests.wires.recorded import CASES, exchange_of, reads_of

CONTENT_TYPES = (
    "text/event-stream",
    "application/json",
    "application/x-ndjson",
    "application/vnd.amazon.eventstream",
    "",
)
# Every so many inputs are read a second time in another split.
SPLIT_EVERY = 3
# Inputs of one wire before the next one has its turn.
TURN = 5000


@dataclass(frozen=True, slots=True)
class Seed:
    """A recorded body and how it came."""

    exchange: Exchange
    body: bytes


def seeds_of(wire: str) -> list[Seed]:
    return [Seed(exchange_of(case), b"".join(reads_of(case))) for case in CASES.values() if case["wire"] == wire]


def make(rng: random.Random, seeds: list[Seed]) -> tuple[Exchange, bytes]:
    """One input."""
    one, other = rng.choice(seeds), rng.choice(seeds)
    frames = one.exchange.content_type.endswith("eventstream") and rng.random() < 0.7
    body = (mutate_frames if frames else mutate)(rng, one.body, other.body)
    exchange = one.exchange
    if rng.random() < 0.1:
        exchange = Exchange(200, rng.choice(CONTENT_TYPES), exchange.headers, exchange.path, exchange.stream)
    return exchange, body


def read(wire: str, exchange: Exchange, reads: list[bytes]) -> Reading:
    reader = open_reader(wire, exchange)
    for data in reads:
        reader.feed(data)
    return reader.finish(complete=True)


def split(rng: random.Random, body: bytes) -> list[bytes]:
    size = rng.choice((1, 2, 3, 7, 50, 333))
    if size < 3 and len(body) > 3000:
        size = 97
    return [body[at : at + size] for at in range(0, len(body), size)]


def wrong(reading: Reading) -> str | None:
    """What is wrong with a reading, if anything."""
    for part in (reading, *reading.extra):
        tokens = part.tokens
        counts = [getattr(tokens, name) for name in TOKEN_CLASSES]
        if any(number is not None and not (type(number) is int and 0 <= number <= MAX_TOKENS) for number in counts):
            return f"count out of range: {tokens}"
        for subset, whole in (
            (tokens.reasoning_tokens, tokens.output_tokens),
            (tokens.cache_write_1h_tokens, tokens.cache_write_tokens),
        ):
            if subset is not None and whole is not None and subset > whole:
                return f"subset larger than its whole: {tokens}"
        if (part.usage == "missing") == tokens.known:
            return f"usage {part.usage} with {tokens}"
    return None


def check(wire: str, seeds: list[Seed], seed: int, number: int) -> str | None:
    """Make input ``number`` and hold it against the invariants; what was found, if anything."""
    rng = random.Random(f"{seed}:{wire}:{number}")
    exchange, body = make(rng, seeds)
    try:
        reading = read(wire, exchange, [body])
        if number % SPLIT_EVERY == 0 and read(wire, exchange, split(rng, body)) != reading:
            return "another split says something else"
    except Exception as error:  # any exception at all is the find
        return f"raised {error!r}"
    return wrong(reading)


def fuzz(wire: str, numbers: range, seed: int) -> int:
    """Run inputs through one reader; the number of finds."""
    seeds, finds = seeds_of(wire), 0
    for number in numbers:
        find = check(wire, seeds, seed, number)
        if find:
            finds += 1
            print(f"{wire} seed {seed} input {number}: {find}", flush=True)
    return finds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the wire readers.")
    parser.add_argument("--wire", choices=sorted(READERS), help="one wire; default: all, in turns")
    parser.add_argument("--count", type=int, default=20_000, help="inputs per wire")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wires = [options.wire] if options.wire else list(READERS)
    finds, began = dict.fromkeys(wires, 0), time.monotonic()
    for start in range(0, options.count, TURN):
        numbers = range(start, min(start + TURN, options.count))
        for wire in wires:
            finds[wire] += fuzz(wire, numbers, options.seed)
        print(f"{numbers.stop} inputs per wire, finds: {finds}, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if any(finds.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
