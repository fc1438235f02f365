"""How fast Claude Code transcripts are read, and how fast an unchanged home is listed again.

``python -m tests.bench.runtimes [--lines 1000000] [--files 1000] [--others]``: writes synthetic transcripts of the
shape of 2.1 (a third of the lines are assistant messages of one to three blocks, the rest prompts, tool results and
attachments) into a temporary folder, reads them in a process of its own and prints lines/s, MB/s and peak memory.
``--others`` runs ``ccusage`` and ``tokscale`` from npm on the same files and prints the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

TEXT = "The quick brown fox reads a file, changes two lines and runs the tests again. " * 40
OTHERS = {
    "ccusage": ["npx", "--yes", "ccusage@20.0.24", "daily", "--json", "--offline"],
    "tokscale": ["npx", "--yes", "tokscale@latest", "--json"],
}


def transcript(session: str, lines: int, seed: int) -> Iterator[str]:
    """The lines of one session."""
    rng = random.Random(seed)
    when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=seed * 7 % 400_000)
    number = 0
    while number < lines:
        when += timedelta(seconds=rng.randint(1, 30))
        common = {"sessionId": session, "cwd": "/work", "version": "2.1.332", "isSidechain": False}
        common |= {"timestamp": when.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        kind = rng.random()
        if kind < 0.66:
            entry = {"type": "user", "uuid": f"{session}-{number}", "message": {"role": "user"}}
            entry["message"]["content"] = TEXT[: rng.randint(50, 2000)]
            yield json.dumps({**entry, **common}, separators=(",", ":"))
            number += 1
            continue
        for block in range(rng.randint(1, 3)):
            usage = {
                "input_tokens": rng.randint(1, 3000),
                "cache_creation_input_tokens": rng.randint(0, 4000),
                "cache_read_input_tokens": rng.randint(0, 90_000),
                "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
                "output_tokens": 5 if block == 0 else rng.randint(5, 2000),
                "service_tier": "standard",
            }
            message = {"id": f"msg_{session[:8]}{seed}_{number - block}", "model": "claude-sonnet-4-5-20250929"}
            message |= {"content": [{"type": "text", "text": TEXT[: rng.randint(50, 1500)]}], "usage": usage}
            entry = {"type": "assistant", "uuid": f"{session}-{number}", "requestId": f"req_{seed}_{number - block}"}
            yield json.dumps({**entry, **common, "message": message}, separators=(",", ":"))
            number += 1
            if number >= lines:
                break


def generate(home: Path, lines: int, files: int) -> int:
    """Write the transcripts; returns their size in bytes."""
    size = 0
    for number in range(files):
        session = f"{number:08x}-0000-4000-8000-{number:012x}"
        path = home / ".claude" / "projects" / f"-work-{number % 50}" / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(transcript(session, lines // files, number)) + "\n")
        size += path.stat().st_size
    return size


def read(home: Path) -> None:
    """Read everything once and print what it took, in this process alone."""
    from collector.runtimes.claude_code import READER

    began = time.perf_counter()
    records = tokens = 0
    for source in READER.sources(home, {}):
        for batch in READER.read(source, None):
            records += len(batch.records)
            tokens += sum(record.tokens.output_tokens or 0 for record in batch.records)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    sources = sum(1 for _ in READER.sources(home, {}))
    listed = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = {"seconds": seconds, "mb": memory, "records": records, "output_tokens": tokens}
    print(json.dumps({**result, "sources": sources, "listed_seconds": listed}))


def measured(command: list[str], home: Path) -> dict[str, float] | None:
    """Wall time and peak memory of another program on the same home; ``None`` where it is not to be had."""
    environ = {**os.environ, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
    timed = ["/usr/bin/env", sys.executable, "-c", TIMED, *command]
    done = subprocess.run(timed, env=environ, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        return None
    return json.loads(done.stdout.splitlines()[-1])


TIMED = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(json.dumps({"seconds": time.perf_counter() - began,
                  "mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024}))
sys.exit(code)
"""


def main() -> None:
    """Generate, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read)
        return
    home = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        size = generate(home, options.lines, options.files)
        print(f"{options.lines:,} lines in {options.files:,} files, {size / 1e6:,.0f} MB")
        command = [sys.executable, "-m", "tests.bench.runtimes", "--read", str(home)]
        subprocess.run(command, check=True, capture_output=True)  # the page cache is warm for everyone
        ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        show("vm-usage", options.lines, size, ours, ours)
        print(f"  {ours['records']:,} calls; {ours['sources']:,} files listed in {ours['listed_seconds']:.3f} s")
        for name, other in OTHERS.items() if options.others else ():
            measured(other, home)
            result = measured(other, home)
            if result is None:
                print(f"{name}: not available")
            else:
                show(name, options.lines, size, result, ours)
    finally:
        shutil.rmtree(home)


def show(name: str, lines: int, size: int, result: dict[str, float], ours: dict[str, float]) -> None:
    """One line of the table; the ratios are ours to theirs."""
    rate = lines / result["seconds"]
    print(
        f"{name:10} {rate:10,.0f} lines/s {size / 1e6 / result['seconds']:7,.0f} MB/s {result['mb']:6,.0f} MB"
        f"   speed x{result['seconds'] / ours['seconds']:.2f}, memory x{ours['mb'] / result['mb']:.2f}"
    )


if __name__ == "__main__":
    main()
