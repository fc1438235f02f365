"""Ingest and query speed: ``python -m tests.bench.ingest [--lines 1000000] [--rounds 3] [--calls 10000000]``.

Ingest: a log of our own lines through the whole path (tail, validate, dedupe, price, roll up, commit), and beside it,
in alternating rounds, what bare SQLite does with the same rows: orjson, one INSERT a line, a unique key on (boot, seq).
The ratio is what counts; absolute figures belong to the machine. Queries: a ledger of ``--calls`` calls, each report
asked five times, the median shown.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from collector.book import Book
from collector.ingest_log import LogIngest
from collector.ingest_report import IngestReport, silent
from collector.ledger.sqlite import SqliteLedger
from collector.pricing import Pricer
from collector.query import Query
from collector.rows import Page
from shim import allowlist
from shim.line import KEYS
from shim.places import CHECKOUT_ALLOWLIST

START = 1_780_000_000
CALLS = (
    ("openai", "openai-chat", "gpt-5-mini-2025-08-07", None),
    ("anthropic", "anthropic-messages", "claude-sonnet-4-5-20250929", 0),
    ("openrouter", "openai-chat", "anthropic/claude-sonnet-4.5", None),
    ("openai", "openai-responses", "gpt-5", None),
)


def lines(count: int, sessions: int = 400, seed: int = 7) -> Iterator[bytes]:
    """Usage lines as a busy VM writes them."""
    draw = random.Random(seed)
    now = float(START)
    for number in range(1, count + 1):
        now += draw.random() * 4
        upstream, wire, model, hour = draw.choice(CALLS)
        place = number // 5_000 * 40 + draw.randrange(sessions // 10)
        value = dict.fromkeys(KEYS) | {
            "v": 1, "id": f"20260528T202640Z-5f2c9a-{number}", "ts": round(now, 3),
            "vm": "vm-bench", "runtime": "picoclaw",
            "upstream": upstream, "wire": wire, "model": model, "session": f"ref{place:021d}",
            "session_source": "conversation", "response": f"{draw.getrandbits(90):024d}"[:24],
            "input_tokens": draw.randrange(9_000), "cache_read_tokens": draw.randrange(90_000), "cache_write_tokens": 0,
            "cache_write_1h_tokens": hour, "output_tokens": draw.randrange(3_000), "usage": "reported",
            "outcome": "completed", "http_status": 200, "stream": True, "duration_ms": draw.randrange(60_000),
            "ttft_ms": 300, "service_tier": "default",
        }  # fmt: skip
        yield orjson.dumps(value) + b"\n"


def bare(log: Path, target: Path) -> float:
    """Seconds of CPU that parsing every line and inserting it under a unique key takes, in the ledger's own modes."""
    names = [name for name in KEYS if name not in ("v", "id")]
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"CREATE TABLE call (boot TEXT, seq INTEGER, {', '.join(names)}, PRIMARY KEY (boot, seq))")
        insert = f"INSERT OR IGNORE INTO call VALUES ({', '.join('?' * (len(names) + 2))})"
        began = time.process_time()
        with log.open("rb") as file:
            while data := file.readlines(4 << 20):
                rows = []
                for line in data:
                    value = orjson.loads(line)
                    boot, _, seq = value["id"].rpartition("-")
                    rows.append((boot, int(seq), *[value[name] for name in names]))
                db.execute("BEGIN")
                db.executemany(insert, rows)
                db.execute("COMMIT")
        return time.process_time() - began


def ours(log: Path, target: Path) -> float:
    """Seconds of CPU of the whole ingest."""
    ledger = SqliteLedger(target, "UTC")
    pricer = Pricer(Book())
    pricer.book.find("openai", "gpt-5", None)  # loading the book is a matter of starting, not of lines
    ingest = LogIngest(ledger, allowlist.load(CHECKOUT_ALLOWLIST), pricer)
    report = IngestReport()
    began = time.process_time()
    ingest.read(log, report, silent)
    spent = time.process_time() - began
    assert report.new_lines == report.lines
    ledger.close()
    return spent


def compare(count: int, rounds: int) -> None:
    """Print both speeds and their ratio, round by round."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "usage.jsonl"
        with log.open("wb") as file:
            file.writelines(lines(count))
        ratios = []
        for turn in range(rounds):
            order = (bare, ours) if turn % 2 else (ours, bare)
            spent = {way.__name__: way(log, Path(folder) / f"{way.__name__}{turn}.db") for way in order}
            ratios.append(spent["bare"] / spent["ours"])
            speeds = ", ".join(f"{name} {count / spent[name]:,.0f} lines/s" for name in ("bare", "ours"))
            print(f"round {turn + 1}: {speeds}, ratio {ratios[-1]:.2f}")
        print(f"ours / bare SQLite, median of {rounds}: {statistics.median(ratios):.2f} (to reach: 0.70)")


def ask(calls: int) -> None:
    """Print how long each report takes over a ledger of that many calls."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "usage.jsonl"
        with log.open("wb") as file:
            file.writelines(lines(calls))
        path = Path(folder) / "ledger.db"
        ours(log, path)
        log.unlink()
        ledger = SqliteLedger(path, read_only=True)
        query = Query(ledger, ledger.calendar)
        session = query.sessions(page=Page(limit=1)).rows[0].session_id
        questions = {
            "days": query.aggregates, "models": query.models, "runtimes": query.runtimes, "vms": query.vms,
            "summary": query.summary, "refused": query.refused, "gaps": query.gaps,
            "50 sessions": lambda: query.sessions(page=Page(limit=50)),
            "50 costliest sessions": lambda: query.sessions(page=Page(limit=50, sort="cost")),
            "one session with its calls": lambda: query.session(session),
        }  # fmt: skip
        print(f"{calls:,} calls, {path.stat().st_size / 1e6:,.0f} MB")
        for name, question in questions.items():
            times = []
            for _ in range(5):
                began = time.perf_counter()
                question()
                times.append(time.perf_counter() - began)
            print(f"  {name}: {statistics.median(times) * 1000:.1f} ms")
        ledger.close()


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.rounds:
        compare(chosen.lines, chosen.rounds)
    if chosen.calls:
        ask(chosen.calls)


if __name__ == "__main__":
    main()
