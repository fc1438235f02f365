"""A hub on the machine by the operations page's steps; hub and collector killed, hung and cut off from each other."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.vm.conftest import OUTPUT, Begin, Call, calls, eventually, lines, measured, result, status
from tests.vm.machine import Machine
from tests.vm.page import commands

URL = "http://127.0.0.1:8901"
TOKEN = "/etc/vm-usage/hub.token"
SERVICES = ("usage-collector", "usage-hub")


@pytest.fixture(scope="module")
def pushing(metering: Machine) -> Iterator[Machine]:
    """The machine with a hub on it that its collector pushes to; later stages have a hub that nobody pushes to."""
    for block in commands("Putting it on machines"):
        script = block.replace("VM-NAME", status(metering)["vm"]).replace("https://hub.example.com:8901", URL)
        metering.sh(f"cd /root\n{script}")
    yield metering
    metering.sh("sed -i /VM_USAGE_HUB=/d /etc/default/usage-collector; systemctl restart usage-collector")


def gathered(machine: Machine) -> int:
    """Calls of PicoClaw that the hub has, asked after a push."""
    machine.run("usage-collector", "push", "--once")
    rows = json.loads(machine.out("usage-collector", "report", "--hub", URL, "--by", "runtime", "--format", "json"))
    return sum(row["output_tokens"] or 0 for row in rows["rows"] if row["runtime"] == "picoclaw") // OUTPUT


def test_the_hub_gathers_what_the_vm_has(pushing: Machine, call: Call) -> None:
    call()
    eventually(lambda: calls(pushing) == measured(pushing))
    eventually(lambda: gathered(pushing) == calls(pushing))
    assert pushing.out("stat", "-c", "%a %U", TOKEN) == "600 usage-collector"
    assert "valid" in pushing.out("usage-collector", "hub", "token", "list")


def test_the_hubs_ledger_lies_apart_and_is_its_own(pushing: Machine) -> None:
    assert pushing.out("stat", "-c", "%U", "/var/lib/vm-usage-hub/hub.db") == "usage-collector"
    assert pushing.run("test", "-e", "/var/lib/vm-usage/hub.db", check=False).returncode == 1


@pytest.mark.parametrize("service", SERVICES)
def test_a_killed_service_comes_back_and_nothing_is_lost(
    pushing: Machine, call: Call, begin: Begin, service: str
) -> None:
    restarts = int(pushing.show(service, "NRestarts"))
    stream = begin("gpt-5-mini-slow-20")
    pushing.run("systemctl", "kill", "-s", "KILL", service)
    assert call()["whole"] is True
    assert result(stream)["whole"] is True
    eventually(lambda: int(pushing.show(service, "NRestarts")) == restarts + 1)
    eventually(lambda: pushing.show(service, "ActiveState") == "active")
    eventually(lambda: calls(pushing) == measured(pushing))
    eventually(lambda: gathered(pushing) == calls(pushing))


@pytest.fixture
def short_watchdog(pushing: Machine) -> Iterator[Machine]:
    """Both services with a watchdog of two seconds instead of a minute."""
    for service in SERVICES:
        pushing.write(f"/run/systemd/system/{service}.service.d/watchdog.conf", "[Service]\nWatchdogSec=2\n")
    pushing.run("systemctl", "daemon-reload")
    pushing.run("systemctl", "restart", *SERVICES)
    yield pushing
    for service in SERVICES:
        pushing.run("rm", "-r", f"/run/systemd/system/{service}.service.d")
    pushing.run("systemctl", "daemon-reload")
    pushing.run("systemctl", "restart", *SERVICES)


def test_a_hung_service_is_restarted_by_the_watchdog(short_watchdog: Machine) -> None:
    before = {service: short_watchdog.show(service, "MainPID") for service in SERVICES}
    short_watchdog.run("sleep", "3")  # longer than the watchdog: who lives is let live
    assert {service: short_watchdog.show(service, "MainPID") for service in SERVICES} == before
    for service, pid in before.items():
        short_watchdog.run("systemctl", "kill", "-s", "STOP", service)
        eventually(lambda s=service, p=pid: short_watchdog.show(s, "MainPID") not in ("0", p))
        eventually(lambda s=service: short_watchdog.show(s, "ActiveState") == "active")


def test_without_a_hub_the_vm_goes_on_and_sends_it_all_later(pushing: Machine, call: Call) -> None:
    pushing.run("systemctl", "stop", "usage-hub")
    written = len(lines(pushing))
    call()
    eventually(lambda: len(lines(pushing)) == written + 1)
    eventually(lambda: calls(pushing) == measured(pushing))
    pushing.run("systemctl", "start", "usage-hub")
    eventually(lambda: gathered(pushing) == calls(pushing))
