"""Three VMs, two hubs over one SQLite ledger, one hub killed while batches are under way: the totals are equal."""

import subprocess
import threading
import time

from tests.hub.programs import COLLECTOR, hubs, machine, usage_lines

LINES = 4_000


def test_totals_are_equal_when_one_of_two_hubs_is_killed_mid_batch(tmp_path):
    with hubs(tmp_path / "hub", 2) as (first, second):
        names = ["vm-a", "vm-b", "vm-c"]
        vms = [machine(tmp_path, name, first.url, first.token(name)) for name in names]
        for vm in vms:
            vm.write(usage_lines(vm.name, LINES))
            vm.run("ingest")
        pushes = [
            subprocess.Popen(
                [COLLECTOR, "push", "--once"], env=vm.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            for vm in vms
        ]
        killer = threading.Thread(target=kill_when_busy, args=(first, second))
        killer.start()
        codes = [push.wait(timeout=60) for push in pushes]
        killer.join()
        assert any(codes), "the hub was killed too late to matter"
        for vm in vms:
            vm.environ["VM_USAGE_HUB"] = second.url
            vm.run("push", "--once")
        told = {row["vm"]: row for row in second.ask("vms")}
        for vm in vms:
            (own,) = vm.rows("--by", "vm")
            shared = own.keys() - {
                "last_contact",
                "version",
                "clock_skew_ms",
                "waiting",
                "refused",
                "trend",
                "quarantined",
            }
            assert {name: told[vm.name][name] for name in shared} == {name: own[name] for name in shared}
            assert told[vm.name]["calls"] == LINES
        first.start()
        assert first.ask("models") == second.ask("models")


def kill_when_busy(hub, other):
    while sum(row["calls"] for row in other.ask("vms")) < 1000:
        time.sleep(0.01)
    hub.kill()
