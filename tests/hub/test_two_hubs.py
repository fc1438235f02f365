"""Three VMs, two hubs over one SQLite ledger, one hub killed while batches are under way: the totals are equal."""

import subprocess
import time

from collector.hub import tokens
from collector.ledger.sqlite_fleet import SqliteFleet
from tests.hub.programs import COLLECTOR, hubs, machine, usage_lines

LINES = 2_500
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
# What a hub alone knows of a VM.
HUB_ONLY = {"last_contact", "version", "clock_skew_ms", "waiting", "refused", "trend", "quarantined"}


def test_totals_are_equal_when_one_of_two_hubs_is_killed_mid_batch(tmp_path):
    with hubs(tmp_path / "hub", 2) as (first, second):
        vms = [machine(tmp_path, name, first.url, hub_token(first, name)) for name in ("vm-a", "vm-b", "vm-c")]
        for vm in vms:
            vm.write(usage_lines(vm.name, LINES))
            vm.run("ingest")
        pushes = [subprocess.Popen([COLLECTOR, "push", "--once"], env=vm.environ, **QUIET) for vm in vms]
        kill_when_busy(first, second)
        for push in pushes:  # what is under way waits for a hub that is gone
            push.kill()
            push.wait()
        assert 0 < calls(second) < len(vms) * LINES, "the hub was killed too early or too late to matter"
        for vm in vms:
            vm.environ["VM_USAGE_HUB"] = second.url
            vm.run("push", "--once")
        told = {row["vm"]: row for row in second.ask("vms")}
        for vm in vms:
            (own,) = vm.rows("--by", "vm")
            assert {name: told[vm.name][name] for name in own.keys() - HUB_ONLY} == {
                name: own[name] for name in own.keys() - HUB_ONLY
            }
            assert own["calls"] == LINES
        first.start()
        assert first.ask("models") == second.ask("models")


def hub_token(hub, vm):
    store = SqliteFleet(hub.folder / "hub.db")
    clear, token = tokens.new(vm, (), int(time.time()), None)
    store.add_token(token)
    store.close()
    return clear


def calls(hub):
    return sum(row["calls"] for row in hub.ask("vms"))


def kill_when_busy(hub, other):
    while calls(other) < 500:
        time.sleep(0.01)
    hub.kill()
