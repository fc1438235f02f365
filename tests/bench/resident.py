"""What a following collector holds in memory: ``python -m tests.bench.resident PATH [--rounds 3] [--lines 20000]``.

``usage-collector run`` over a copy of the ledger at PATH (``tests.bench.reports`` makes one) follows a log that grows
by ``--lines`` before every round and answers, in each round, every question of ``tests.bench.reports`` over its API, as
a browser asks: compressed. What is printed is resident memory as /proc tells it, in MB; the bound is one on ``Rss``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx

from collector.api.endpoints import ENDPOINTS, PREFIX
from tests.bench.ingest import lines
from tests.bench.reports import asked
from tests.e2e.programs import BIN, clean_environment, free_port, wait_until_healthy

LIMIT_MB = 90
SHOWN = ("Rss", "Pss", "Private_Dirty", "Private_Clean", "Anonymous")


def urls(path: Path) -> Iterator[str]:
    """Every question that is a URL."""
    for name, _ in asked(path, 1):
        if name.startswith("/"):
            yield name
        elif name.partition("?")[0] in ENDPOINTS and " " not in name:
            yield PREFIX + name


def resident(pid: int) -> dict[str, float]:
    """Parts of a process's resident memory in MB, and the most it ever was (``peak``)."""
    found = {}
    for file, names in (("smaps_rollup", SHOWN), ("status", ("VmHWM",))):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in names:
                found["peak" if name == "VmHWM" else name] = int(rest.split()[0]) / 1024
    return found


def show(stage: str, process: subprocess.Popen[bytes]) -> float:
    """Print one line of the table; the ``Rss``."""
    found = resident(process.pid)
    print(f"| {stage} | {' | '.join(f'{found[name]:.1f}' for name in (*SHOWN, 'peak'))} |", flush=True)
    return found["Rss"]


def measure(path: Path, rounds: int, count: int) -> None:
    """Start, feed, ask, print."""
    questions = list(urls(path))
    with tempfile.TemporaryDirectory(dir=path.parent) as name:
        folder = Path(name)
        shutil.copyfile(path, folder / "ledger.db")
        log, port = folder / "usage.jsonl", free_port()
        log.touch()
        environ = clean_environment(
            folder,
            VM_USAGE_DB=str(folder / "ledger.db"),
            VM_USAGE_LOG=str(log),
            VM_USAGE_HOMES=str(folder),
            VM_USAGE_API_PORT=str(port),
            VM_USAGE_INTERVAL="1",
        )
        with (folder / "output").open("wb") as output:
            command = [str(BIN / "usage-collector"), "run"]
            process = subprocess.Popen(command, env=environ, stdout=output, stderr=output)
        base = f"http://127.0.0.1:{port}"
        try:
            wait_until_healthy(process, f"{base}/healthz", folder / "output")
            print(f"| after | {' | '.join((*SHOWN, 'peak'))} |\n|{'---|' * (len(SHOWN) + 2)}")
            show("the start", process)
            rss, written = 0.0, lines(rounds * count)
            with httpx.Client(base_url=base, timeout=60) as http:
                for turn in range(rounds):
                    with log.open("ab") as file:
                        file.writelines(islice(written, count))
                    wait_until_read(http)
                    show(f"{(turn + 1) * count:,} lines", process)
                    for question in questions:
                        assert http.get(question).status_code == 200, question
                    rss = show(f"round {turn + 1} of {len(questions)} questions", process)
            print(f"{rss:.0f} MB (to reach: {LIMIT_MB})")
        finally:
            process.terminate()
            process.wait(60)


def wait_until_read(http: httpx.Client) -> None:
    """Until nothing of the log is left unread."""
    time.sleep(2)
    while any(
        row["lag_bytes"] and row["path"].endswith("usage.jsonl") for row in http.get(f"{PREFIX}sources").json()["rows"]
    ):
        time.sleep(0.5)


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=20_000)
    chosen = parser.parse_args()
    measure(chosen.path, chosen.rounds, chosen.lines)


if __name__ == "__main__":
    main()
