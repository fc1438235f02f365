"""The machine that all stages share, and what runs in it beside the product."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.vm import packages
from tests.vm.machine import Machine, missing

HERE: Final = Path(__file__).parent
CONFIG: Final = "/home/dev/.picoclaw/config.json"
LOG: Final = "/var/log/vm-usage/usage.jsonl"
# What a fresh installation of anything may touch.
NOT_OURS: Final = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/tmp",
    "/root",
    "/var/cache",
    "/var/lib/dpkg",
    "/var/lib/systemd",
    "/var/lib/apt",
    "/var/lib/logrotate",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without root and the tools there is no machine."""
    if lacking := missing():
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(lacking)}"))


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of this checkout."""
    return packages.build(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A booted machine with an ordinary user ``dev``, a PicoClaw configuration of his and its provider."""
    made = Machine(tmp_path_factory.mktemp("machine"))
    made.copy(HERE / "provider.py", "/opt/test/provider.py")
    made.copy(HERE / "picoclaw.py", "/opt/test/picoclaw.py")
    made.copy(HERE.parent / "runtimes/picoclaw/home", "/opt/test/home")
    made.boot()
    try:
        made.sh(
            "useradd -m -s /bin/sh dev; cp -rT /opt/test/home /home/dev; rm -r /opt/test/home; chown -R dev: /home/dev"
        )
        made.run("systemd-run", "--quiet", "--unit=provider", "--uid=dev", "python3", "/opt/test/provider.py")
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def before(machine: Machine) -> dict[str, str]:
    """Every file of the machine, with owner, mode and content's hash, as it was before anything was installed."""
    return snapshot(machine)


@pytest.fixture(scope="session")
def installed(machine: Machine, package: Path, before: dict[str, str]) -> Machine:
    """The machine with the package installed."""
    machine.copy(package, "/root/vm-usage.deb")
    machine.run("dpkg", "-i", "/root/vm-usage.deb")
    return machine


@pytest.fixture(scope="session")
def metering(installed: Machine) -> Machine:
    """The machine with the shim metering PicoClaw, and the collector running: the README's steps."""
    installed.sh(
        f"""
        echo 'VM_USAGE_LOG={LOG}' >> /etc/default/usage-shim
        echo 'VM_USAGE_RUNTIME=picoclaw' >> /etc/default/usage-shim
        systemctl restart usage-shim
        usage-shim provision picoclaw --config {CONFIG} --apply
        systemctl restart usage-shim
        systemctl enable --quiet --now usage-collector
        """
    )
    return installed


Call = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def call(metering: Machine) -> Call:
    """Makes one call as PicoClaw; what came of it."""

    def made(*words: str) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(
            metering.out("python3", "/opt/test/picoclaw.py", CONFIG, *words, user="dev")
        )
        return result

    return made


Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def begin(metering: Machine) -> Begin:
    """Begins a call and waits until the shim has it in flight; ``result`` waits for its end."""

    def begun(model: str) -> subprocess.Popen[str]:
        words = metering.command("python3", "/opt/test/picoclaw.py", CONFIG, model, user="dev")
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        eventually(lambda: status(metering)["in_flight"] > 0)
        time.sleep(0.3)
        return process

    return begun


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What came of a call that was begun."""
    out, _ = process.communicate(timeout=180)
    found: dict[str, Any] = json.loads(out)
    return found


def status(machine: Machine) -> dict[str, Any]:
    """What the shim says of itself."""
    found: dict[str, Any] = json.loads(machine.out("usage-shim", "status", "--json"))
    return found


def lines(machine: Machine) -> list[dict[str, Any]]:
    """The usage lines in the log as it is now."""
    return [json.loads(line) for line in machine.out("cat", LOG).splitlines()]


def report(machine: Machine) -> list[dict[str, Any]]:
    """The report's rows by runtime, once the collector is up to date."""
    rows: list[dict[str, Any]] = json.loads(
        machine.out("usage-collector", "report", "--by", "runtime", "--format", "json")
    )["rows"]
    return rows


OUTPUT: Final = 150  # tokens that the provider says of every call it could end


def calls(machine: Machine) -> int:
    """Calls of PicoClaw in the report whose usage is known. (Sessions of its own store, which tell none, count too.)"""
    rows = [row for row in report(machine) if row["runtime"] == "picoclaw"]
    return sum(row["output_tokens"] or 0 for row in rows) // OUTPUT


def measured(machine: Machine) -> int:
    """Lines in the log as it is now whose usage is known."""
    return sum(line["output_tokens"] == OUTPUT for line in lines(machine))


def eventually(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.2)


def snapshot(machine: Machine) -> dict[str, str]:
    """Path to type, mode, owner and (for files) hash, without what installing anything changes."""
    prune = " -o ".join(f"-path {path}" for path in NOT_OURS)
    listed = machine.sh(f"find / -xdev \\( {prune} \\) -prune -o -printf '%p\\t%y %m %u:%g %l\\n'")
    found = dict(line.split("\t", 1) for line in listed.splitlines())
    hashes = machine.sh("find /etc /lib/systemd /usr/lib/systemd /home -xdev -type f -exec sha256sum {} +")
    for line in hashes.splitlines():
        digest, path = line.split(maxsplit=1)
        if path in found:
            found[path] += digest
    return found
