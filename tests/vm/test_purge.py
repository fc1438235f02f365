"""Purging: agents call their providers again, and nothing is left but the usage logs."""

from __future__ import annotations

import json

from tests.vm.conftest import CONFIG, snapshot
from tests.vm.machine import Machine


def test_purging_leaves_nothing_but_logs(metering: Machine, before: dict[str, str]) -> None:
    metering.run("usage-shim", "optin", "--runtime", "picoclaw", "--apply")
    metering.run("dpkg", "--purge", "vm-usage")
    after = snapshot(metering)
    left = {path for path in after.keys() | before.keys() if before.get(path) != after.get(path)}
    left -= {path for path in left if path.startswith("/home/dev/.") and not path.startswith("/home/dev/.picoclaw")}
    logs = {path for path in left if path.startswith("/var/log/vm-usage")}
    assert "/var/log/vm-usage/usage.jsonl" in logs
    # Account files were written with our users and without them again; their backups and the journal are the system's.
    accounts = {f"/etc/{name}{dash}" for name in ("passwd", "group", "shadow", "gshadow") for dash in ("", "-")}
    assert {path for path in left - logs - accounts if not path.startswith("/var/log/")} == set()
    for account in ("usage-shim", "usage-collector", "vm-usage"):
        assert metering.run("grep", "-q", account, "/etc/passwd", "/etc/group", check=False).returncode == 1


def test_picoclaw_calls_its_provider_again(metering: Machine) -> None:
    assert json.loads(metering.out("cat", CONFIG))["model_list"][0]["api_base"] == "http://127.0.0.1:4319/v1"
    assert '"whole": true' in metering.out("python3", "/opt/test/picoclaw.py", CONFIG, user="dev")


def test_no_access_list_is_left_on_a_store(metering: Machine) -> None:
    uid = metering.sh("stat -c %u /var/log/vm-usage/usage.jsonl")
    assert uid == "0"
    lists = metering.out("getfacl", "-Rpn", "/home/dev/.claude/projects", "/home/dev/.codex/sessions")
    assert "user:9" not in lists  # no numeric user of a service


def test_nothing_of_ours_runs_or_listens(metering: Machine) -> None:
    assert metering.run("pgrep", "-f", "vm-usage", check=False).stdout == ""
    assert metering.run("curl", "-s", "http://127.0.0.1:4141/-/healthz", check=False).returncode == 7
