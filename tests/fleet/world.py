"""A fleet and its hub for some time: pushes over real HTTP, a hub that is killed, VMs that misbehave; then the count.

The hub is the real program in a process of its own. At the end its totals must be the sum of the VMs' truths, exactly,
by VM and by model.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from collector.hub import tokens
from collector.hub.batch import CONTENT_TYPE, PATH, Answer
from collector.ledger import Entry
from collector.ledger.sqlite_fleet import SqliteFleet
from tests.fleet.vm import Vm
from tests.hub.programs import Hub

AT_ONCE = 64
NUMBERS = ("calls", "cost_pico", "input_tokens", "output_tokens", "cache_read_tokens", "unknown_calls")


@dataclass(slots=True)
class World:
    """VMs, their hub, and what happens to them. ``events`` counts what did."""

    hub: Hub
    store: SqliteFleet
    seed: int
    vms: list[Vm] = field(default_factory=list)
    clones: list[tuple[Vm, Vm]] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)

    def enrol(self, count: int, clones: int, batch_size: int = 50) -> None:
        """Give VMs their tokens; the last ``clones`` of them are clones of the first."""
        for place in range(count):
            self.vms.append(Vm(f"vm-{place}", self.seed, "", batch_size))
        self.clones = list(zip(self.vms[:clones], self.vms[count - clones :], strict=True))
        for vm in self.vms:
            self.renew(vm)

    def renew(self, vm: Vm) -> None:
        """A new token for a VM."""
        vm.token, token = tokens.new(vm.name, (), int(time.time()), None)
        self.store.add_token(token)

    def run(self, kills: int = 0, quiet: bool = False) -> float:
        """Let every VM push until all of its journal is acknowledged; seconds that took."""
        began = time.monotonic()
        asyncio.run(self._run(kills, quiet))
        return time.monotonic() - began

    async def _run(self, kills: int, quiet: bool) -> None:
        gate = asyncio.Semaphore(AT_ONCE)
        timeout = aiohttp.ClientTimeout(total=60)
        connector = aiohttp.TCPConnector(limit=AT_ONCE)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            lives = [asyncio.ensure_future(self._live(vm, http, gate, quiet)) for vm in self.vms if not vm.done]
            for left in range(kills, 0, -1):
                await self._until(lives, 1 - left / (kills + 1))
                await asyncio.to_thread(self._kill)
            await asyncio.gather(*lives)

    async def _until(self, lives: list[asyncio.Future[None]], share: float) -> None:
        while sum(vm.cursor for vm in self.vms) < share * sum(len(vm.journal) for vm in self.vms):
            if all(life.done() for life in lives):
                return
            await asyncio.sleep(0.05)

    def _kill(self) -> None:
        self.hub.kill()
        self.events["hub killed"] += 1
        self.hub.start()

    async def _live(self, vm: Vm, http: aiohttp.ClientSession, gate: asyncio.Semaphore, quiet: bool) -> None:
        while not vm.done:
            async with gate:
                after, body = vm.next_batch()
                answer = await self._post(vm, http, body)
            if answer is None:
                await asyncio.sleep(vm.draw.uniform(0.05, 0.5))
                continue
            vm.cursor = answer.after
            vm.acked = max(vm.acked, vm.cursor)
            if answer.after != after:
                self.events["rewound"] += 1
            self.events.update(f"refused {reason}" for _, reason in answer.refused)
            if not quiet:
                await self._misbehave(vm, http, gate)

    async def _misbehave(self, vm: Vm, http: aiohttp.ClientSession, gate: asyncio.Semaphore) -> None:
        chance = vm.draw.random()
        if chance < 0.15 and (body := vm.old_batch()) is not None:
            self.events["sent twice or late"] += 1
            async with gate:
                await self._post(vm, http, body)
        elif chance < 0.20:
            self.events["vm restarted"] += 1
            vm.restart()

    async def _post(self, vm: Vm, http: aiohttp.ClientSession, body: bytes) -> Answer | None:
        headers = {"Content-Type": CONTENT_TYPE, "Authorization": f"Bearer {vm.token}"}
        try:
            async with http.post(self.hub.url + PATH, data=body, headers=headers) as response:
                said = await response.read()
                self.events[f"answered {response.status}"] += 1
                if response.status == 401:
                    self.renew(vm)
                return msgspec.json.decode(said, type=Answer) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            self.events["no answer"] += 1
            return None

    def truth(self) -> list[Entry]:
        """What all VMs recorded, each record once: a clone's copies count for the VM that recorded them."""
        return [entry for vm in self.vms for entry in vm.truth.values() if entry.withdrawn is None]

    def differences(self) -> list[str]:
        """Where the hub's totals are not the sum of the truths."""
        found = []
        keys: dict[str, Callable[[Entry], str]] = {
            "vm": lambda entry: entry.vm,
            "model": lambda entry: entry.model or "",
        }
        for name, key in keys.items():
            told = {row[name]: row for row in self.hub.ask(f"{name}s") if row["calls"]}
            for group, true in _sums(self.truth(), key).items():
                row = told.pop(group, {})
                found += [
                    f"{name} {group}: {number} is {row.get(number)}, should be {true[number]}"
                    for number in NUMBERS
                    if (row.get(number) or 0) != true[number]
                ]
            found += [f"{name} {group} should not be there" for group in told]
        return found


def _sums(entries: Iterable[Entry], key: Callable[[Entry], str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for entry in entries:
        sums = found.setdefault(key(entry), dict.fromkeys(NUMBERS, 0))
        values: dict[str, Any] = {
            "calls": 1,
            "cost_pico": entry.cost_pico,
            "unknown_calls": int(entry.cost_pico is None),
            **{name: getattr(entry.tokens, name) for name in NUMBERS if name.endswith("tokens")},
        }
        for name in NUMBERS:
            sums[name] += values[name] or 0
    return found


def play(world: World, vms: int, records: int, clones: int, kills: int, revoked: int, batch_size: int = 50) -> float:
    """A fleet's life: first pushes, changes and revoked tokens, then the clones; seconds of pushing."""
    world.enrol(vms, clones, batch_size)
    originals = world.vms[: vms - clones]
    for vm in originals:
        vm.record(records)
    spent = world.run(kills)
    for vm in world.draw.sample(originals, revoked):
        world.store.revoke(vm.name, int(time.time()))
    for vm in originals:
        vm.change(records // 5)
        vm.record(records // 10)
    spent += world.run(kills)
    for original, clone in world.clones:  # who reports first keeps a record, so a clone comes after its original
        clone.copy_records_of(original)
        clone.record(records // 10)
    return spent + world.run()


def hub_store(folder: Path) -> SqliteFleet:
    """Where the hub under test keeps its tokens."""
    return SqliteFleet(folder / "hub.db", "UTC")
