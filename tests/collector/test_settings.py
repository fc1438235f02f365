"""The collector's configuration from an environment."""

from pathlib import Path

import pytest

from collector.settings import Settings
from shim.names import ConfigError


def settings(tmp_path, **given):
    return Settings.from_env({"HOME": str(tmp_path), "VM_USAGE_STATE": str(tmp_path / "state")} | given)


def test_defaults_lie_in_the_state_folder_and_on_loopback(tmp_path):
    found = settings(tmp_path, VM_USAGE_VM="vm-1")
    assert (found.db, found.api_bind, found.api_port) == (tmp_path / "state" / "ledger.db", "127.0.0.1", 8900)
    assert (found.log, found.vm, found.interval) == (None, "vm-1", 5.0)


def test_homes_are_split_at_colons_and_aliases_are_understood(tmp_path):
    found = settings(tmp_path, VM_USAGE_HOMES="/home/a:/home/b", CLAWMETRY_VM_USAGE_LOG="/var/log/u.jsonl")
    assert found.homes == (Path("/home/a"), Path("/home/b"))
    assert found.log == Path("/var/log/u.jsonl")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VM_USAGE_API_PORT", "70000"),
        ("VM_USAGE_API_PORT", "http"),
        ("VM_USAGE_INTERVAL", "0"),
        ("VM_USAGE_INTERVAL", "nan"),
        ("VM_USAGE_RETENTION_DAYS", "-3"),
        ("VM_USAGE_TZ", "Mars/Olympus"),
        ("VM_USAGE_VM", "not a name"),
        ("VM_USAGE_LGO", "x"),
    ],
)
def test_what_cannot_be_used_is_an_error_that_names_the_variable(tmp_path, name, value):
    with pytest.raises(ConfigError, match=name):
        settings(tmp_path, **{name: value})
