"""Ingest speed: ``python -m tests.bench.ingest [--lines 1000000] [--session 125] [--rounds 3]
[--clawmetry PYTHON --seconds 600 [--pause 60]]``.

Ingest: a log of our own lines through the whole path (tail, validate, dedupe, price, roll up, commit), and beside it,
in alternating rounds, what bare SQLite does with the same rows: orjson, one INSERT a line, a unique key on (boot, seq).
``--session``: calls of a session; a session is a row with sums and indexes of its own, so short ones take us longer.
The ratio is what counts; absolute figures belong to the machine. How long reports take: ``tests.bench.reports``.

``--clawmetry``: also ClawMetry's ingest of the same log, for ``--seconds`` seconds, under an interpreter that has it
(``python3 -m venv claw && claw/bin/pip install clawmetry==0.12.937``); skipped where it cannot be imported. It becomes
slower with what it holds, so a run that did not reach the log's end gives it more than its speed over the whole, and
much slower with shorter sessions. ``--pause 60``: as its service runs it, which looks once a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from collector import memory
from collector.book import Book
from collector.ingest_log import LogIngest
from collector.ingest_report import IngestReport, silent
from collector.ledger.sqlite import SqliteLedger
from collector.pricing import Pricer
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


def lines(count: int, session: int = 125, seed: int = 7) -> Iterator[bytes]:
    """Usage lines as a busy VM writes them; ``session``: calls of each, of up to 5,000 that go on side by side."""
    sessions = max(1, 5_000 // session)
    draw = random.Random(seed)
    now = float(START)
    for number in range(1, count + 1):
        now += draw.random() * 4
        upstream, wire, model, hour = draw.choice(CALLS)
        place = number // 5_000 * sessions + draw.randrange(sessions)
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


def compare(count: int, session: int, rounds: int) -> None:
    """Print both speeds and their ratio, round by round."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "usage.jsonl"
        with log.open("wb") as file:
            file.writelines(lines(count, session))
        ratios = []
        for turn in range(rounds):
            order = (bare, ours) if turn % 2 else (ours, bare)
            spent = {way.__name__: way(log, Path(folder) / f"{way.__name__}{turn}.db") for way in order}
            ratios.append(spent["bare"] / spent["ours"])
            speeds = ", ".join(f"{name} {count / spent[name]:,.0f} lines/s" for name in ("bare", "ours"))
            print(f"round {turn + 1}: {speeds}, ratio {ratios[-1]:.2f}")
        print(f"ours / bare SQLite, median of {rounds}: {statistics.median(ratios):.2f} (to reach: 0.70)")


def compare_clawmetry(count: int, session: int, python: str, seconds: float, pause: float) -> None:
    """Print how far ClawMetry came with the log in ``seconds`` and what we take for all of it, in time and CPU time."""
    if subprocess.run([python, "-c", "import clawmetry.sync"], capture_output=True, check=False).returncode:
        print(f"skipped: {python} cannot import clawmetry")
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "usage.jsonl"
        with log.open("wb") as file:
            file.writelines(lines(count, session))
        began = time.perf_counter()
        used = ours(log, Path(folder) / "ours.db")
        spent = time.perf_counter() - began
        print(f"ours: {count / spent:,.0f} lines/s, {count / used:,.0f} lines per CPU second")
        command = [python, str(Path(__file__).with_name("peer.py")), str(log), str(seconds), str(pause)]
        done = subprocess.run(command, env={"HOME": folder}, stdout=subprocess.PIPE, text=True, check=True)
        ticks = [orjson.loads(line) for line in done.stdout.splitlines()]
        for place, tick in enumerate(ticks, 1):
            if place & (place - 1) == 0 or tick is ticks[-1]:
                speeds = [tick["lines"] / tick[name] for name in ("seconds", "cpu_seconds")]
                ratios = count / spent / speeds[0], count / used / speeds[1]
                print(
                    f"ClawMetry, first {tick['lines']:,} lines: {speeds[0]:,.0f} lines/s, {speeds[1]:,.0f} lines per "
                    f"CPU second; ours / ClawMetry {ratios[0]:,.0f}, in CPU time {ratios[1]:,.0f}"
                )


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--session", type=int, default=125, help="Calls of a session.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clawmetry", metavar="PYTHON", help="An interpreter that has clawmetry.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--pause", type=float, default=0.0, help="Seconds between two looks of ClawMetry's.")
    chosen = parser.parse_args()
    memory.collect_rarely()  # as every command does
    if chosen.rounds:
        compare(chosen.lines, chosen.session, chosen.rounds)
    if chosen.clawmetry:
        compare_clawmetry(chosen.lines, chosen.session, chosen.clawmetry, chosen.seconds, chosen.pause)


if __name__ == "__main__":
    main()
