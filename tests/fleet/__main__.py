"""``python -m tests.fleet``: simulate a fleet and its hub, check its totals, and print what was measured as JSON.

First the fleet's life (restarts, kills, duplicates, reordering, skewed clocks, clones, revoked tokens), then an hour's
outage of the hub and how long catching up takes. Exit status 1 where a total differs. ``--queries N`` instead makes N
records inside the embedded engine and times the questions of the API and the page.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.fleet.measure import cpu_seconds, peak_mib
from tests.fleet.queries import time_queries
from tests.fleet.world import World, hub_store, play
from tests.hub.programs import Hub, hubs


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="fleet-") as name:
        if options.queries:
            print(json.dumps(time_queries(options.store or Path(name), options.queries, options.vms), indent=2))
            return 0
        found = simulate(Path(name), options)
    print(json.dumps(found, indent=2))
    return 1 if found["differences"] else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    parser.add_argument("--vms", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=100, help="first records of each VM")
    parser.add_argument("--hour", type=int, default=60, help="records of each VM during the hub's outage")
    parser.add_argument("--kills", type=int, default=3, help="kill -9 of the hub in each of the two first parts")
    parser.add_argument("--engine", choices=("chdb", "sqlite"), default="chdb")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to work; the system's temporary folder unless given")
    parser.add_argument("--queries", type=int, help="time queries over so many records made in the engine")
    parser.add_argument("--store", type=Path, help="keep those records there; where they are, they are asked again")
    return parser.parse_args()


def simulate(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    settings = {"VM_USAGE_CLICKHOUSE": f"chdb://{folder / 'hub' / 'chdb'}"} if options.engine == "chdb" else {}
    with hubs(folder / "hub", **settings) as (hub,):
        world = World(hub, hub_store(folder / "hub"), options.seed)
        clones = max(1, options.vms // 100)
        spent = play(world, options.vms, options.records, clones, options.kills, revoked=clones)
        life = {"seconds_of_pushing": round(spent, 1), "events": dict(world.events)}
        outage = after_an_outage(world, hub, options.hour)
        began = time.monotonic()
        differences = world.differences()
        found = {
            "engine": options.engine,
            "vms": options.vms,
            "records": len(world.truth()),
            "life": life,
            "after_an_hour_without_hub": outage,
            "seconds_to_ask_vms_and_models": round(time.monotonic() - began, 2),
            "differences": differences[:20],
        }
        world.store.close()
        return found


def after_an_outage(world: World, hub: Hub, records: int) -> dict[str, Any]:
    """Kill the hub, let every VM record for an hour, start it again: how fast it catches up, and what that takes."""
    hub.kill()
    for vm in world.vms:
        vm.record(records)
        vm.batch_size = 1000
    hub.start()
    assert hub.process is not None
    before = cpu_seconds(hub.process.pid)
    seconds = world.run(quiet=True)
    cpu = cpu_seconds(hub.process.pid) - before
    count = records * len(world.vms)
    return {
        "records": count,
        "seconds": round(seconds, 1),
        "records_per_second": round(count / seconds),
        "hub_cpu_seconds": round(cpu, 1),
        "records_per_cpu_second": round(count / cpu) if cpu else None,
        "hub_peak_mib": round(peak_mib(hub.process.pid)),
    }


if __name__ == "__main__":
    sys.exit(main())
