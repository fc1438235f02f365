"""Soak two shims and print the balance: ``python -m tests.soak [--minutes M] [--clients N] [--seed S]``.

The exit status is 1 where the balance does not hold.

One shim is killed, stopped and restarted; the other, ``steady``, gets all the other damage and is watched for memory
and descriptors. Each has an upstream of its own that counts the calls that reach it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.balance import balance
from tests.soak.lane import Lane
from tests.soak.traffic import Client, Made

SAMPLE_SECONDS = 1.0
MEMORY_SLACK = 4 << 20
DESCRIPTOR_SLACK = 8


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=2.0)
    options.add_argument("--clients", type=int, default=8, help="per shim")
    options.add_argument("--seed", type=int, default=None)
    chosen = options.parse_args()
    seed = chosen.seed if chosen.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}, {chosen.minutes:g} minutes, {chosen.clients} clients for each of two shims", flush=True)
    with tempfile.TemporaryDirectory(prefix="vm-usage-soak-") as folder:
        return asyncio.run(soak(Path(folder), random.Random(seed), chosen.minutes * 60, chosen.clients))


async def soak(folder: Path, dice: random.Random, seconds: float, clients: int) -> int:
    restarted = Lane(folder / "restarted", random.Random(dice.random()), restarts=True)
    steady = Lane(folder / "steady", random.Random(dice.random()), restarts=False)
    try:
        with restarted.upstream, steady.upstream:
            results = await asyncio.gather(*(run(lane, seconds, clients, dice) for lane in (restarted, steady)))
    finally:
        restarted.close()
        steady.close()
    return 0 if all(results) else 1


async def run(lane: Lane, seconds: float, clients: int, dice: random.Random) -> bool:
    """Soak one lane; whether its balance holds."""
    await asyncio.to_thread(lane.start)
    idle_descriptors = lane.descriptors()
    made, over = Made(), asyncio.Event()
    tasks = [asyncio.create_task(Client(lane, made, random.Random(dice.random())).run(over)) for _ in range(clients)]
    memory = asyncio.create_task(sample(lane, over))
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        await asyncio.sleep(min(lane.dice.uniform(2, 12), seconds))
        await asyncio.to_thread(lane.damage)
    over.set()
    await asyncio.gather(*tasks)
    await asyncio.sleep(1)
    descriptors = lane.descriptors() - idle_descriptors
    await asyncio.to_thread(lane.stop, signal.SIGTERM)
    # A last start writes what the one before it could not.
    await asyncio.to_thread(lane.start)
    await asyncio.sleep(2)
    await asyncio.to_thread(lane.stop, signal.SIGTERM)
    return report(lane, made, await memory, descriptors)


async def sample(lane: Lane, over: asyncio.Event) -> list[int]:
    """Resident memory once a second; only a shim that is not restarted can show a leak."""
    found = []
    while not over.is_set():
        await asyncio.sleep(SAMPLE_SECONDS)
        if not lane.restarts:
            found.append(lane.resident_bytes())
    return found


def report(lane: Lane, made: Made, memory: list[int], descriptors: int) -> bool:
    """Print what was done, seen and written; whether all is well."""
    sums = balance(lane.logs(), set(lane.upstream.calls) - {"m-0"}, made.whole)
    print(f"\n{lane.folder.name}: {made.next_number} calls made, {len(made.whole)} came whole")
    print("  calls:", dict(made.plans.most_common()), "broken:", dict(made.broken))
    print("  damage:", dict(sorted(lane.done.items())), "" if lane.has_disk else "(no disk to fill: not root)")
    print(f"  balance {'holds' if sums.holds else 'FAILS'}: {sums}")
    well = sums.holds
    if memory:
        quarter = max(len(memory) // 4, 1)
        early, late = statistics.median(memory[quarter : 2 * quarter] or memory), statistics.median(memory[-quarter:])
        flat = late - early < MEMORY_SLACK
        print(f"  memory: {early / 2**20:.1f} MiB early, {late / 2**20:.1f} late, {max(memory) / 2**20:.1f} at most")
        print(f"  descriptors: {descriptors:+d} after the last call against before the first")
        well = well and flat and descriptors <= DESCRIPTOR_SLACK
    return well


if __name__ == "__main__":
    sys.exit(main())
