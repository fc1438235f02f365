"""The collector's service sees the session stores of the allowlist, read-only, and nothing else of a home."""

from __future__ import annotations

import json

from tests.vm.conftest import eventually, report
from tests.vm.machine import Machine
from tests.vm.packages import ROOT

CURSOR_RUN = ROOT / "tests/shim/cursor_cli/run1.ndjson"

STORE = "/home/dev/.claude/projects/-src"
MESSAGE = {
    "type": "assistant",
    "sessionId": "5e55ab1e-0000-4000-8000-000000000001",
    "uuid": "1",
    "timestamp": "2026-11-30T10:00:00.000Z",
    "requestId": "req_1",
    "message": {
        "id": "msg_1",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 5,
            "output_tokens": 7,
        },
    },
}


def inside(machine: Machine, command: str) -> int:
    """The exit status of a command in the collector's own namespaces, as its user."""
    pid = machine.show("usage-collector", "MainPID")
    become = "-S $(id -u usage-collector) -G $(id -g usage-collector)"
    return machine.run("sh", "-c", f"nsenter -t {pid} -U -m {become} sh -c {command!r}", check=False).returncode


def test_a_private_transcript_is_read_after_stores_were_shown(metering: Machine) -> None:
    metering.sh(
        "umask 077; mkdir -p ~/.claude/projects/-src ~/.ssh; echo key > ~/.ssh/id; echo t > ~/.claude/x",
        user="dev",
        HOME="/home/dev",
    )
    metering.write(f"{STORE}/{MESSAGE['sessionId']}.jsonl", json.dumps(MESSAGE) + "\n", owner="dev", mode=0o600)
    metering.run("usage-collector", "stores", "--apply")
    eventually(lambda: "claude_code" in {row["runtime"] for row in report(metering)})
    (row,) = [row for row in report(metering) if row["runtime"] == "claude_code"]
    assert (row["input_tokens"], row["cache_read_tokens"], row["output_tokens"]) == (10, 5, 7)


def test_the_service_cannot_write_a_store_or_see_the_rest_of_a_home(metering: Machine) -> None:
    assert inside(metering, f"cat {STORE}/*.jsonl") == 0
    assert inside(metering, f"touch {STORE}/x") != 0
    assert inside(metering, "ls /home/dev/.ssh") != 0
    assert inside(metering, "cat /home/dev/.claude/x") != 0
    assert inside(metering, "cat /home/dev/.picoclaw/config.json") != 0


def test_the_service_has_no_capability(metering: Machine) -> None:
    for unit in ("usage-shim", "usage-collector"):
        pid = metering.show(unit, "MainPID")
        assert "CapEff:\t0000000000000000" in metering.out("cat", f"/proc/{pid}/status")


def test_applying_again_changes_nothing(metering: Machine) -> None:
    pid = metering.show("usage-collector", "MainPID")
    assert metering.out("usage-collector", "stores", "--apply") == ""
    assert metering.show("usage-collector", "MainPID") == pid


def test_cursors_cli_is_captured_where_the_wrapper_is_installed(metering: Machine) -> None:
    metering.copy(CURSOR_RUN, "/opt/cursor/run.ndjson")
    metering.write("/opt/cursor/bin/cursor-agent", "#!/bin/sh\ncat /opt/cursor/run.ndjson\n", mode=0o755)
    metering.run("install", "-m", "755", "/usr/share/vm-usage/cursor-agent", "/usr/local/bin/")
    path = "/usr/local/bin:/opt/cursor/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    command = ("cursor-agent", "-p", "--output-format", "stream-json", "Hello.")
    said = metering.out(*command, user="dev", HOME="/home/dev", PATH=path)
    assert said == CURSOR_RUN.read_text().rstrip("\n")
    metering.run("usage-collector", "stores", "--apply")
    eventually(lambda: "cursor" in {row["runtime"] for row in report(metering)})
    (row,) = [row for row in report(metering) if row["runtime"] == "cursor"]
    assert (row["input_tokens"], row["cache_read_tokens"], row["output_tokens"]) == (3000, 9000, 120)
    metering.sh("rm -r /usr/local/bin/cursor-agent /opt/cursor")


def test_the_timer_shows_a_store_that_came_later(metering: Machine) -> None:
    rollout = "/home/dev/.codex/sessions/2026/11/30"
    metering.sh(f"umask 077; mkdir -p {rollout}; echo '{{}}' > {rollout}/rollout-1.jsonl", user="dev")
    metering.run("systemctl", "start", "usage-stores.service")
    assert inside(metering, f"cat {rollout}/rollout-1.jsonl") == 0
    metering.run("systemctl", "enable", "--now", "--quiet", "usage-stores.timer")
    assert metering.out("systemctl", "is-active", "usage-stores.timer") == "active"
