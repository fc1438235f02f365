"""Installing: users, folders, a listening socket, nothing metered, and little of the machine within reach."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.deploy.tools import needs, said
from tests.vm.machine import Machine

UNITS = ("usage-shim.service", "usage-collector.service", "usage-hub.service")


@needs("lintian")
def test_lintian_has_nothing_to_say(package: Path) -> None:
    said("lintian", "--allow-root", "--fail-on", "error,warning", package)


def test_the_socket_listens_and_nothing_else_of_ours_is_on(installed: Machine) -> None:
    assert installed.out("systemctl", "is-active", "usage-shim.socket") == "active"
    assert installed.out("systemctl", "is-enabled", "usage-shim.socket") == "enabled"
    for unit in (*UNITS, "usage-stores.timer"):
        assert installed.run("systemctl", "is-enabled", unit, check=False).stdout.strip() == "disabled"


def test_users_have_no_shell_no_home_and_no_other_group(installed: Machine) -> None:
    for user, groups in (("usage-shim", {"vm-usage"}), ("usage-collector", {"usage-collector", "vm-usage"})):
        _, _, _, _, _, home, shell = installed.out("getent", "passwd", user).split(":")
        assert (home, shell) == ("/nonexistent", "/usr/sbin/nologin")
        assert set(installed.out("id", "-Gn", user).split()) == groups


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/etc/vm-usage", "755 root:root"),
        ("/var/log/vm-usage", "2750 usage-shim:vm-usage"),
        ("/var/lib/vm-usage", "3770 usage-shim:usage-collector"),
        ("/etc/default/usage-shim", "644 root:root"),
    ],
)
def test_folders_have_their_owners_and_modes(installed: Machine, path: str, wanted: str) -> None:
    assert installed.out("stat", "-c", "%a %U:%G", path) == wanted


def test_a_call_wakes_the_shim_which_meters_nothing(installed: Machine) -> None:
    for host in ("127.0.0.1", "[::1]"):
        answer = json.loads(installed.out("curl", "-fsS", f"http://{host}:4141/-/status"))
        assert answer["metering"] is False
    assert installed.out("ls", "/var/log/vm-usage") == ""


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_valid_and_little_exposed_where_it_is_installed(installed: Machine, unit: str) -> None:
    installed.run("systemd-analyze", "verify", unit)
    installed.run("systemd-analyze", "security", "--threshold=15", unit)


def test_every_conffile_says_what_each_line_does(installed: Machine) -> None:
    files = installed.out("dpkg-query", "-W", "-f", "${Conffiles}", "vm-usage").split()[::2]
    assert len(files) == 5
    for file in files:
        assert installed.out("cat", file).lstrip().startswith("#"), file


def test_the_manual_pages_are_there(installed: Machine) -> None:
    for name in ("usage-shim", "usage-collector"):
        assert "COMMANDS" in installed.sh(f"zcat /usr/share/man/man1/{name}.1.gz")
