"""How fast Claude Code transcripts are read, and how fast an unchanged home is listed again.

``python -m tests.bench.runtimes [--lines 1000000] [--files 1000] [--others FOLDER]``: writes synthetic transcripts of
the shape of 2.1 (a third of the lines are assistant messages of one to three blocks, the rest prompts, tool results and
attachments) into a temporary folder, reads them as ``usage-collector ingest`` does (``collector.read_pool``; ledger
aside), with as many processes as it would take and with one, and prints medians of lines/s, MB/s and processor seconds
and, from a round of its own, since looking takes a processor, the most memory of all processes together. ``--others
FOLDER``: the same of ``ccusage`` and of ``tokscale``'s native core, in alternation on the same files, from a folder
made with ``npm install ccusage@20.0.24 tokscale``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.bench.process import machine

TEXT = "The quick brown fox reads a file, changes two lines and runs the tests again. " * 40
CCUSAGE = "node_modules/@ccusage/ccusage-linux-x64/bin/ccusage"
TOKSCALE = (
    "require('./node_modules/@tokscale/core').parseLocalSources({homeDir: process.env.HOME, sources: ['claude']})"
)


def transcript(session: str, lines: int, seed: int) -> Iterator[str]:
    """The lines of one session."""
    rng = random.Random(seed)
    when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=seed * 7 % 400_000)
    number, parent = 0, None
    while number < lines:
        when += timedelta(seconds=rng.randint(1, 30))
        common = {"sessionId": session, "cwd": "/work", "version": "2.1.332", "isSidechain": False}
        common |= {"timestamp": when.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        kind = rng.random()
        if kind < 0.66:
            entry = {"type": "user", "uuid": f"{session}-{number}", "message": {"role": "user"}}
            entry["message"]["content"] = TEXT[: rng.randint(50, 2000)]
            yield json.dumps({"parentUuid": parent, **entry, **common}, separators=(",", ":"))
            number, parent = number + 1, entry["uuid"]
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
            yield json.dumps({"parentUuid": parent, **entry, **common, "message": message}, separators=(",", ":"))
            number, parent = number + 1, entry["uuid"]
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


def read(home: Path, workers: int | None) -> None:
    """Read everything once as an ingest does and print what came of it."""
    from collector import memory
    from collector.read_pool import Pool, Unread, workers_for
    from collector.runtimes.claude_code import READER

    memory.collect_rarely()
    sources = list(READER.sources(home, {}))
    sizes = [source.path.stat().st_size for source in sources]
    unread = [Unread(READER, source, None, size) for source, size in zip(sources, sizes, strict=True)]
    records = tokens = 0
    with Pool(unread, workers_for(sum(sizes)) if workers is None else workers) as pool:
        for _, batches in pool:
            for batch in batches:
                records += len(batch.records)
                tokens += sum(record.tokens.output_tokens or 0 for record in batch.records)
    began = time.perf_counter()
    listed = sum(1 for _ in READER.sources(home, {}))
    seconds = time.perf_counter() - began
    print(json.dumps({"records": records, "output_tokens": tokens, "files": listed, "listed_seconds": seconds}))


@dataclass(frozen=True, slots=True)
class Run:
    """One program reading the home once: wall and processor seconds, most memory of its processes (0: nobody looked),
    its last line."""

    seconds: float
    cpu: float
    mb: float
    said: str


def measured(command: list[str], home: Path, folder: Path, *, memory: bool) -> Run:
    """Run a program in ``folder`` with ``home`` as its home; ``memory``: look at its memory meanwhile."""
    environ = {**os.environ, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has been compiled before
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began, most = time.perf_counter(), 0.0
    process = subprocess.Popen(command, env=environ, cwd=folder, stdout=subprocess.PIPE, text=True)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(process.stdout or ()))
    reader.start()
    while memory and process.poll() is None:
        most = max(most, megabytes(process.pid))
        time.sleep(0.01)
    process.wait()
    reader.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(time.perf_counter() - began, cpu, most, said[-1] if said else "")


def megabytes(pid: int) -> float:
    """Resident memory of a process and its children; what several share is counted once (PSS)."""
    total = 0.0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total = int(line.split()[1]) / 1024
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has just ended
        return total
    return total + sum(megabytes(int(child)) for child in children)


def commands(home: Path, others: Path | None) -> dict[str, list[str]]:
    """What is measured, by name; ours first."""
    ours = [sys.executable, "-m", "tests.bench.runtimes", "--read", str(home)]
    found = {"vm-usage": ours, "vm-usage, one process": [*ours, "--workers", "0"]}
    if others is not None:
        found["ccusage"] = [str(others / CCUSAGE), "daily", "--json", "--offline"]
        found["tokscale core"] = ["node", "-e", TOKSCALE]
    return found


def main() -> None:
    """Generate, measure in alternation, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--others", type=Path, help="Folder with node_modules of ccusage and tokscale.")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read, options.workers)
        return
    home = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        size = generate(home, options.lines, options.files)
        print(f"{options.lines:,} lines in {options.files:,} files, {size / 1e6:,.0f} MB; {machine()}")
        programs = commands(home, options.others and options.others.resolve())
        runs: dict[str, list[Run]] = {name: [] for name in programs}
        memory: dict[str, float] = {}
        for number in range(options.rounds + 1):  # the first warms the page cache and is looked at for its memory
            for name, command in programs.items():
                folder = options.others if name == "tokscale core" else Path.cwd()
                run = measured(command, home, folder, memory=not number)
                if number:
                    runs[name].append(run)
                else:
                    memory[name] = run.mb
        for name in programs:
            show(name, options.lines, size, runs[name], memory[name], runs["vm-usage"], memory["vm-usage"])
        said = json.loads(runs["vm-usage"][0].said)
        print(f"  {said['records']:,} calls; {said['files']:,} files listed in {said['listed_seconds']:.3f} s")
    finally:
        shutil.rmtree(home)


def show(name: str, lines: int, size: int, runs: list[Run], mb: float, ours: list[Run], our_mb: float) -> None:
    """One line of the table; speed and memory are ours relative to this one's."""
    seconds, cpu = statistics.median(run.seconds for run in runs), statistics.median(run.cpu for run in runs)
    faster = seconds / statistics.median(run.seconds for run in ours)
    smaller = our_mb / mb
    print(
        f"{name:22} {lines / seconds:10,.0f} lines/s {size / 1e6 / seconds:6,.0f} MB/s {cpu:6.2f} s cpu {mb:6,.0f} MB"
        f"   speed x{faster:.2f}, memory x{smaller:.2f}"
    )


if __name__ == "__main__":
    main()
