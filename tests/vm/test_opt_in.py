"""Opting PicoClaw in by the README's steps, making calls, reading the report."""

from __future__ import annotations

import json

from tests.vm.conftest import CONFIG, LOG, Call, calls, eventually, lines, report, status
from tests.vm.machine import Machine


def test_the_config_leads_through_the_shim_and_stays_its_owners(metering: Machine) -> None:
    entry = json.loads(metering.out("cat", CONFIG))["model_list"][0]
    assert entry["api_base"].startswith("http://127.0.0.1:4141/picoclaw/")
    assert metering.out("stat", "-c", "%U", CONFIG) == "dev"
    assert "127.0.0.1:4319" in metering.out("cat", "/etc/vm-usage/upstreams.env")


def test_a_call_gives_one_line_without_content(metering: Machine, call: Call) -> None:
    assert call("", "A very private question.") == {"status": 200, "whole": True, "words": 0, "usage": True}
    eventually(lambda: len(lines(metering)) == 1)
    (line,) = lines(metering)
    assert (line["runtime"], line["model"], line["outcome"]) == ("picoclaw", "gpt-5-mini", "completed")
    assert (line["input_tokens"], line["cache_read_tokens"], line["output_tokens"]) == (1200 - 1024, 1024, 150)
    journal = metering.journal("usage-*")
    for word in ("private", "You are Pico", "An answer", "sk-secret"):
        assert word not in journal
        assert metering.run("grep", "-rqi", word, "/var/log/vm-usage", "/var/lib/vm-usage", check=False).returncode == 1


def test_a_stream_gives_a_line_with_usage_and_the_client_sees_none(metering: Machine, call: Call) -> None:
    assert call("gpt-5-mini-slow-3") == {"status": 200, "whole": True, "words": 3, "usage": False}
    eventually(lambda: len(lines(metering)) == 2)
    assert lines(metering)[1]["output_tokens"] == 150


def test_the_log_is_the_shims_and_only_the_group_may_read_it(metering: Machine) -> None:
    assert metering.out("stat", "-c", "%a %U:%G", LOG) == "640 usage-shim:vm-usage"
    assert metering.run("cat", LOG, user="dev", check=False).returncode == 1
    assert metering.run("sh", "-c", f"echo x >> {LOG}", user="usage-collector", check=False).returncode != 0


def test_the_key_is_readable_by_both_services_and_nobody_else(metering: Machine) -> None:
    key = "/var/lib/vm-usage/reference.key"
    assert metering.out("stat", "-c", "%a %U:%G", key) == "640 usage-shim:usage-collector"
    pid = metering.show("usage-collector", "MainPID")
    # In the collector's own namespaces, as its own user.
    metering.sh(f"nsenter -t {pid} -U -m -S $(id -u usage-collector) -G $(id -g usage-collector) cat {key} >/dev/null")
    assert metering.run("cat", key, user="dev", check=False).returncode == 1


def test_the_shim_sees_no_home(metering: Machine) -> None:
    pid = metering.show("usage-shim", "MainPID")
    assert metering.out("nsenter", "-t", pid, "-m", "ls", "/home") == ""
    assert "/home/dev" in metering.out("find", "/home", "-maxdepth", "1")


def test_the_report_says_what_the_lines_say(metering: Machine) -> None:
    eventually(lambda: calls(metering) == 2)
    (row,) = report(metering)
    assert row["runtime"] == "picoclaw"
    assert (row["cache_read_tokens"], row["output_tokens"]) == (2 * 1024, 2 * 150)


def test_a_user_gets_the_same_from_the_api(metering: Machine) -> None:
    rows = json.loads(metering.out("curl", "-fsS", "http://127.0.0.1:8900/api/local/runtimes", user="dev"))["rows"]
    assert [(row["runtime"], row["calls"]) for row in rows] == [("picoclaw", 2)]


def test_doctor_finds_nothing_wrong(metering: Machine) -> None:
    assert "Nothing is wrong." in metering.out("usage-collector", "doctor")


def test_a_change_of_the_allowlist_needs_no_restart(metering: Machine, call: Call) -> None:
    path, pid = "/etc/vm-usage/allowlist.yaml", metering.show("usage-shim", "MainPID")
    metering.sh(
        f"cp {path} /root/allowlist; sed -i 's/^  picoclaw:/  # picoclaw:/' {path}; systemctl reload usage-shim"
    )
    eventually(lambda: status(metering)["allowed"] != [] or bool(status(metering)["reload_refused"]))
    metering.sh(f"cp /root/allowlist {path}; systemctl reload usage-shim")
    eventually(lambda: status(metering)["allowed"] == ["cursor", "picoclaw"])
    assert metering.show("usage-shim", "MainPID") == pid


def test_a_command_by_hand_reads_the_settings_as_the_service_does(metering: Machine) -> None:
    settings = metering.out("cat", "/etc/default/usage-shim") + "\n"
    metering.write("/etc/default/usage-shim", settings + "VM_USAGE_SHIM_PORT=1\nVM_USAGE_SHIM_PORT='4141'\n")
    metering.run("systemctl", "restart", "usage-shim")
    assert status(metering)["metering"] is True
    done = metering.run("usage-shim", "status", check=False, VM_USAGE_SHIM_PORT="2")
    assert "No shim answers on port 2." in done.stderr
    metering.write("/etc/default/usage-shim", settings)
    metering.run("systemctl", "restart", "usage-shim")


GENERATOR = "/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator"


def test_variables_reach_shells_services_of_users_and_units_and_go_again(metering: Machine) -> None:
    metering.write("/etc/systemd/system/agent.service", "[Service]\nType=oneshot\nExecStart=/usr/bin/env\n")
    metering.run("usage-shim", "optin", "--runtime", "picoclaw", "--unit", "agent.service", "--apply")
    wanted = "OPENAI_BASE_URL=http://127.0.0.1:4141/picoclaw/openai/v1"
    assert wanted in metering.sh("su -l dev -c env")
    # What a user's service manager asks for its environment.
    assert wanted in metering.out(GENERATOR, user="dev")
    assert "OPENAI_BASE_URL=http://own" in metering.out(GENERATOR, user="dev", OPENAI_BASE_URL="http://own")
    metering.run("systemctl", "start", "agent.service")
    assert wanted in metering.journal("agent.service")
    metering.run("usage-shim", "optin", "--remove")
    assert wanted not in metering.sh("su -l dev -c env")
    assert wanted not in metering.out(GENERATOR, user="dev")
    assert metering.show("agent.service", "DropInPaths") == ""
    metering.sh("rm /etc/systemd/system/agent.service; systemctl daemon-reload")
