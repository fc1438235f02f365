"""Real logrotate: the shim follows by itself, nothing is lost or counted twice."""

from __future__ import annotations

import json

from tests.vm.conftest import LOG, OUTPUT, Call, calls, eventually, lines, measured
from tests.vm.machine import Machine


def rotate(machine: Machine) -> None:
    machine.run("logrotate", "--force", "/etc/logrotate.d/vm-usage")


def test_lines_go_on_in_a_new_file_and_every_call_is_counted_once(metering: Machine, call: Call) -> None:
    eventually(lambda: calls(metering) == measured(metering))
    counted, pid = calls(metering), metering.show("usage-shim", "MainPID")
    for rotation in range(1, 3):
        call()
        rotate(metering)
        call()
        eventually(lambda: len(lines(metering)) == 1)
        assert metering.out("stat", "-c", "%a %U:%G", LOG) == "640 usage-shim:vm-usage"
        eventually(lambda wanted=counted + 2 * rotation: calls(metering) == wanted)
        metering.run("sleep", "1.1")  # a rotated file's name has seconds
    assert metering.show("usage-shim", "MainPID") == pid
    names = sorted(metering.out("ls", "/var/log/vm-usage").split())
    assert len(names) == 3
    assert [name.endswith(".gz") for name in names] == [False, True, False]


def test_the_rotated_files_are_a_whole_when_audited(metering: Machine) -> None:
    metering.sh("usage-collector audit /var/log/vm-usage/usage.jsonl*")


def test_a_ledger_can_be_made_again_from_logs(metering: Machine) -> None:
    again = "/root/again.db"
    metering.run("usage-collector", "ingest", "--db", again, "--log", LOG, VM_USAGE_HOMES="/nonexistent")
    wanted = calls(metering)
    rows = json.loads(metering.out("usage-collector", "report", "--db", again, "--by", "runtime", "--format", "json"))
    assert [row["output_tokens"] for row in rows["rows"]] == [wanted * OUTPUT]
