"""Ours, a naive aiohttp proxy and nginx (where it is installed), paired and alternating in one run, ratios first.

Each round runs every scenario once directly and once through each program, in an order that is reversed from round to
round. Times are what a program adds to the direct call of the same round. Compare figures of one run only: processor
time of the same work differs by a factor of two between runs of a shared machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from tests.bench.load import BODY, STREAMED, Times, run
from tests.bench.process import Proxy, machine, start_provider, start_shim, starters

TAIL = "v1/chat/completions"
COLUMNS = ("x nginx", "CPU s/1k", "added ms", "first p50", "first p99", "gap p99", "failed")


@dataclass(frozen=True, slots=True)
class Scenario:
    """``what``: the provider's first path segment."""

    title: str
    what: str
    body: bytes
    concurrency: int
    calls: int


SCENARIOS = {
    "plain-1": Scenario("plain call, c=1", "plain", BODY, 1, 400),
    "plain-64": Scenario("plain call, c=64", "plain", BODY, 64, 2000),
    "stream-16": Scenario("200 events back to back, c=16", "stream-200-0", STREAMED, 16, 160),
    "paced-16": Scenario("200 events 5 ms apart, c=16", "stream-200-5", STREAMED, 16, 32),
}


@dataclass(slots=True)
class Figures:
    """What was measured of one program in one scenario, one entry a round. Times in milliseconds."""

    cpu: list[float] = field(default_factory=list)  # processor seconds for 1,000 calls
    whole: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    first_99: list[float] = field(default_factory=list)
    between_99: list[float] = field(default_factory=list)
    failed: int = 0


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return 1000 * ordered[min(int(q * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def block(proxy: Proxy, scenario: Scenario, calls: int) -> tuple[Times, float]:
    before = proxy.cpu_seconds()
    path = f"{proxy.prefix}/{scenario.what}/{TAIL}"
    times = uvloop.run(run(proxy.port, path, scenario.body, scenario.concurrency, calls))
    return times, (proxy.cpu_seconds() - before) / calls * 1000


def compare(proxies: list[Proxy], provider: Proxy, names: list[str], rounds: int) -> dict[str, dict[str, Figures]]:
    """Measure every program in every scenario."""
    found = {name: {proxy.name: Figures() for proxy in proxies} for name in names}
    for number in range(-1, rounds):  # the first is to warm up
        for name in names:
            scenario = SCENARIOS[name]
            calls = scenario.calls if number >= 0 else scenario.concurrency
            direct, _ = block(provider, scenario, calls)
            for proxy in proxies if number % 2 else reversed(proxies):
                times, cpu = block(proxy, scenario, calls)
                if number >= 0:
                    note(found[name][proxy.name], times, direct, cpu)
    return found


def note(figures: Figures, times: Times, direct: Times, cpu: float) -> None:
    figures.cpu.append(cpu)
    figures.whole.append(quantile(times.whole, 0.5) - quantile(direct.whole, 0.5))
    figures.first.append(quantile(times.first, 0.5) - quantile(direct.first, 0.5))
    figures.first_99.append(quantile(times.first, 0.99) - quantile(direct.first, 0.99))
    figures.between_99.append(quantile(times.between, 0.99) - quantile(direct.between, 0.99))
    figures.failed += times.failed


def show(found: dict[str, dict[str, Figures]]) -> None:
    median = statistics.median
    for name, by_proxy in found.items():
        print(f"\n{SCENARIOS[name].title}")
        print(f"{'':16}" + "".join(f"{title:>10}" for title in COLUMNS))
        base = median(by_proxy["nginx"].cpu) if "nginx" in by_proxy else None
        for proxy, f in by_proxy.items():
            ratio = f"{median(f.cpu) / base:.1f}" if base else "-"
            print(
                f"{proxy:16}{ratio:>10}{median(f.cpu):10.3f}{median(f.whole):10.2f}{median(f.first):10.2f}"
                f"{median(f.first_99):10.2f}{median(f.between_99):10.2f}{f.failed:10}"
            )


def memory(folder: Path, provider: Proxy) -> None:
    """Resident megabytes: idle, with many streams, and at most over a large request and a larger answer."""
    shim = start_shim(folder, provider.port)
    time.sleep(1)
    idle = shim.megabytes("VmRSS")
    uvloop.run(run(shim.port, f"{shim.prefix}/stream-200-5/{TAIL}", STREAMED, 256, 256))
    streams = shim.megabytes("VmHWM")
    uvloop.run(run(shim.port, f"{shim.prefix}/stream-200-5/{TAIL}", STREAMED, 1000, 1000))
    thousand = shim.megabytes("VmHWM")
    shim.stop()
    shim = start_shim(folder, provider.port)
    large = BODY[:-1] + b',"user":"' + b"x" * (16 << 20) + b'"}'
    uvloop.run(run(shim.port, f"{shim.prefix}/big-{64 << 20}/{TAIL}", large, 1, 1))
    print("\nresident memory of usage-shim, MB")
    print(f"idle {idle:.0f}, 256 streams {streams:.0f}, 1,000 streams {thousand:.0f}", end=", ")
    print(f"16 MiB request and 64 MiB answer {shim.megabytes('VmHWM'):.0f}")
    shim.stop()


def profile(folder: Path, provider: Proxy, names: list[str]) -> None:
    """Where the shim's processor time goes, a table for each scenario."""
    for name in names:
        scenario, report = SCENARIOS[name], folder / "profile.txt"
        shim = start_shim(folder, provider.port, [sys.executable, "-m", "tests.bench.sampled", str(report)])
        uvloop.run(
            run(
                shim.port,
                f"{shim.prefix}/{scenario.what}/{TAIL}",
                scenario.body,
                scenario.concurrency,
                scenario.calls * 4,
            )
        )
        shim.stop()
        print(f"\n{scenario.title}\n{report.read_text()}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="some of " + ", ".join(SCENARIOS))
    parser.add_argument("--profile", action="store_true", help="say where the shim's processor time goes instead")
    arguments = parser.parse_args()
    names = arguments.scenarios.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        provider = start_provider(folder)
        proxies: list[Proxy] = []
        try:
            if arguments.profile:
                profile(folder, provider, names)
                return
            print(f"{machine()}, {time.strftime('%Y-%m-%d')}, medians of {arguments.rounds} rounds")
            proxies += [start(folder, provider.port) for start in starters()]
            show(compare(proxies, provider, names, arguments.rounds))
            memory(folder, provider)
        finally:
            for proxy in (*proxies, provider):
                proxy.stop()


if __name__ == "__main__":
    main()
