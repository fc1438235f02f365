"""Rollback, moving a ledger and restoring it, by the very commands of the operations page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm import packages
from tests.vm.conftest import CONFIG, LOG, OUTPUT, Call, calls, eventually, lines, measured, status
from tests.vm.machine import Machine
from tests.vm.page import commands

LEDGER = "/var/lib/vm-usage/ledger.db"
SETTINGS = "/etc/default/usage-shim"
MIGRATING = "99.1.0"


@pytest.fixture(scope="module")
def newest(metering: Machine, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The machine with the next release running, and the older package in root's home."""
    metering.copy(package, "/root/vm-usage_OLD.deb")
    if status(metering)["version"] != packages.NEXT:
        metering.copy(packages.next_release(package, tmp_path_factory.mktemp("next")), "/root/next.deb")
        metering.run("dpkg", "--force-confold", "-i", "/root/next.deb")
        eventually(lambda: status(metering)["version"] == packages.NEXT)
    return metering


@pytest.fixture(scope="module")
def migrating(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release still newer, which migrates the ledger."""
    return packages.next_release(package, tmp_path_factory.mktemp("migrating"), MIGRATING, migrates=True)


def complete(machine: Machine) -> bool:
    """Whether every call of the log as it is now, and of those rotated away, is in the ledger."""
    kept = machine.sh("cd /var/log/vm-usage; for file in usage.jsonl*; do zcat -f $file; done")
    return calls(machine) == kept.count(f'"output_tokens":{OUTPUT},')


def test_rolled_back_to_the_older_release_everything_is_still_there(newest: Machine, call: Call) -> None:
    eventually(lambda: complete(newest))
    counted = calls(newest)
    newest.sh("cd /root\n" + commands("Rollback")[0])
    call()
    eventually(lambda: status(newest)["version"] != packages.NEXT)
    assert call()["status"] == 200
    eventually(lambda: calls(newest) == counted + 2)
    assert newest.out("systemctl", "is-active", "usage-shim.socket", "usage-collector") == "active\nactive"


def test_a_ledger_that_the_newer_release_migrated_is_refused_made_again_and_put_back(
    newest: Machine, migrating: Path, call: Call
) -> None:
    (upgrade,) = commands("Upgrade")
    roll_back, make_again, put_back = commands("Rollback")
    newest.copy(migrating, "/root/vm-usage_NEW.deb")
    settings = newest.out("cat", SETTINGS)
    newest.sh(f"cd /root; rm -r before-rollback\n{upgrade}")
    eventually(lambda: migrated(newest) and complete(newest))
    assert newest.out("cat", SETTINGS) == settings
    assert MIGRATING in newest.out("cat", f"{SETTINGS}.dpkg-dist")
    done = newest.run("sh", "-euc", f"cd /root\n{roll_back}", check=False)
    assert (done.returncode, done.stderr.count("usage-collector.service failed")) == (1, 1), done.stdout + done.stderr
    assert "the ledger was written by a newer version" in newest.journal("usage-collector")
    call()
    newest.sh(make_again)
    eventually(lambda: complete(newest) and not migrated(newest))
    newest.sh(f"cd /root\n{upgrade}\n{put_back}")
    eventually(lambda: complete(newest) and migrated(newest))
    eventually(lambda: status(newest)["version"] == MIGRATING)


def migrated(machine: Machine) -> bool:
    """Whether the ledger has what the newer release made of it."""
    return machine.out("python3", "-c", TABLES).count("of_the_next_release") == 1


TABLES = f"""
import sqlite3
print(sqlite3.connect("file:{LEDGER}?mode=ro", uri=True).execute("SELECT name FROM sqlite_schema").fetchall())
"""


def test_a_ledger_moved_to_another_place_goes_on_there(newest: Machine, call: Call) -> None:
    counted, settings = calls(newest), newest.out("cat", "/etc/default/usage-collector")
    newest.sh(commands("Moving a ledger")[0])
    call()
    eventually(lambda: calls(newest) == counted + 1)
    opened = newest.sh("readlink /proc/$(systemctl show -P MainPID usage-collector)/fd/*").splitlines()
    assert "/mnt/new/ledger.db" in opened
    assert LEDGER not in opened
    # Back to where it was, for what follows: the old file reads what came since.
    newest.write("/etc/default/usage-collector", settings + "\n")
    newest.sh(
        "rm /etc/systemd/system/usage-collector.service.d/ledger.conf; systemctl daemon-reload; "
        "systemctl restart usage-collector; rm -r /mnt/new"
    )
    eventually(lambda: calls(newest) == counted + 1)


def test_a_lost_ledger_is_made_again_from_a_backup_of_logs(newest: Machine, call: Call) -> None:
    call()
    newest.run("logrotate", "--force", "/etc/logrotate.d/vm-usage")
    call()
    eventually(lambda: complete(newest))
    counted = calls(newest)
    # What a backup keeps knows nothing of users; the rotated logs are gone from the machine.
    newest.sh("mkdir /backup; cd /var/log/vm-usage; cp usage.jsonl-* /backup; rm usage.jsonl-*; chmod 600 /backup/*")
    (block,) = commands("Restoring from logs")
    newest.sh(block)
    eventually(lambda: calls(newest) == counted)
    newest.sh("usage-collector audit /var/log/vm-usage/usage.jsonl*; rm -r /backup")


@pytest.fixture(scope="module")
def other(migrating: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A second machine with the same release and nothing else."""
    made = Machine(tmp_path_factory.mktemp("other"))
    made.copy(migrating, "/root/vm-usage.deb")
    made.boot()
    try:
        made.run("dpkg", "-i", "/root/vm-usage.deb")
        yield made
    finally:
        made.stop()


def test_another_machine_takes_the_place_of_this_one(newest: Machine, other: Machine, call: Call) -> None:
    call("", "One conversation.")
    eventually(lambda: complete(newest))
    counted, name, session = calls(newest), status(newest)["vm"], lines(newest)[-1]["session"]
    settings = newest.sh("cd /etc/default; for file in usage-*; do cp $file /root/$file.kept; done")
    assert settings == ""
    _, old, new = commands("Moving a ledger")
    newest.sh(old)
    # The agent goes there too.
    shutil.copyfile(newest.root / "root/vm-usage.tar", other.root / "root/vm-usage.tar")
    shutil.copytree(newest.root / "opt/test", other.root / "opt/test")
    other.sh("useradd -m -s /bin/sh dev")
    other.write(CONFIG, newest.out("cat", CONFIG), owner="dev")
    other.run("systemd-run", "--quiet", "--unit=provider", "--uid=dev", "python3", "/opt/test/provider.py")
    assert "Nothing is wrong." in other.sh(new)
    assert status(other)["vm"] == name
    eventually(lambda: calls(other) == counted)
    other.run("python3", "/opt/test/picoclaw.py", CONFIG, "", "One conversation.", user="dev")
    eventually(lambda: calls(other) == counted + 1)
    last = lines(other)[-1]
    assert (last["vm"], last["session"]) == (name, session)
    assert other.out("stat", "-c", "%a %U:%G", LOG) == "640 usage-shim:vm-usage"
    # The old one goes on, for the stages that follow.
    newest.sh(
        "cd /root; for file in usage-*.kept; do mv $file /etc/default/${file%.kept}; done; "
        "systemctl enable --quiet --now usage-shim.socket usage-collector"
    )
    assert call()["status"] == 200
    eventually(lambda: measured(newest) > 0)
