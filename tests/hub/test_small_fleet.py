"""The simulation of ``tests.fleet`` in small: the hub's totals are the VMs' truths, whatever happened on the way."""

import pytest

from tests.fleet.world import World, hub_store, play
from tests.hub.programs import hubs


@pytest.mark.parametrize("engine", ["chdb", "sqlite"])
def test_hub_totals_are_the_sum_of_what_the_vms_recorded(tmp_path, engine):
    folder = tmp_path / "hub"
    settings = {"VM_USAGE_CLICKHOUSE": f"chdb://{folder / 'chdb'}"} if engine == "chdb" else {}
    with hubs(folder, **settings) as (hub,):
        world = World(hub, hub_store(folder), seed=7)
        play(world, vms=24, records=120, clones=4, kills=1, revoked=3, batch_size=30)
        assert world.differences() == []
        for event in ("hub killed", "sent twice or late", "vm restarted", "refused other_vm", "answered 401"):
            assert world.events[event], world.events
        world.store.close()
