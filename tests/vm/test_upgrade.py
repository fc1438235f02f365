"""An upgrade with a stream running: the socket never closes, the stream ends, ledger and settings stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vm import packages
from tests.vm.conftest import Begin, Call, calls, eventually, lines, measured, result, status
from tests.vm.machine import Machine


@pytest.fixture(scope="module")
def next_package(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packages.next_release(package, tmp_path_factory.mktemp("next"))


def test_an_upgrade_waits_for_the_stream_and_keeps_everything(
    metering: Machine, next_package: Path, begin: Begin, call: Call
) -> None:
    eventually(lambda: calls(metering) == measured(metering))
    counted, settings = calls(metering), metering.out("cat", "/etc/default/usage-shim")
    pid, written = metering.show("usage-shim", "MainPID"), len(lines(metering))
    metering.run("systemctl", "enable", "--quiet", "--now", "usage-hub")
    metering.copy(next_package, "/root/next.deb")
    stream = begin("gpt-5-mini-slow-150")
    metering.run("dpkg", "--force-confold", "-i", "/root/next.deb")
    assert metering.show("usage-shim", "MainPID") == pid  # still the old one: a call is in flight
    assert call()["status"] == 200
    assert result(stream) == {"status": 200, "whole": True, "words": 150, "usage": False}
    eventually(lambda: status(metering)["version"] == packages.NEXT)
    assert call()["status"] == 200
    assert metering.out("cat", "/etc/default/usage-shim") == settings
    eventually(lambda: len(lines(metering)) == written + 3)
    assert {line["outcome"] for line in lines(metering)[written:]} == {"completed"}
    eventually(lambda: calls(metering) == counted + 3)


def test_every_service_runs_the_new_release(metering: Machine) -> None:
    assert metering.out("usage-collector", "--version").endswith(packages.NEXT)
    running = ("usage-shim.socket", "usage-shim", "usage-collector", "usage-hub")
    assert metering.out("systemctl", "is-active", *running).split() == ["active"] * len(running)
    installed = float(metering.out("stat", "-c", "%Y", "/var/lib/dpkg/info/vm-usage.list"))
    for unit in running[1:]:
        pid = metering.show(unit, "MainPID")
        assert float(metering.out("stat", "-c", "%Y", f"/proc/{pid}")) >= installed - 1, unit
