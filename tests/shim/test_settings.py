"""Configuration: read once, checked value by value, each mistake one sentence that names its variable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shim.names import ConfigError
from shim.settings import Settings, read_secret


def settings(**values: str) -> Settings:
    return Settings.from_env({"HOME": "/home/u"} | {f"VM_USAGE_{name}": value for name, value in values.items()})


def test_the_defaults_forward_and_meter_nothing():
    found = settings()
    assert (found.log, found.runtime, found.bind, found.port, found.workers) == (None, None, "127.0.0.1", 4141, 1)
    assert found.upstreams["openai"].host == "api.openai.com"


def test_values_are_read():
    found = settings(
        LOG="/l",
        RUNTIME="picoclaw",
        SHIM_PORT="5000",
        WORKERS="3",
        DRAIN_SECONDS="1.5",
        FINGERPRINT="off",
        ALLOWED_HOSTS=" A.example , b.example:8443 ",
        UPSTREAM_MY_LLM="http://10.0.0.1:9/base",
    )
    assert (found.log, found.runtime, found.port, found.workers) == (Path("/l"), "picoclaw", 5000, 3)
    assert (found.drain_seconds, found.fingerprint) == (1.5, False)
    assert found.allowed_hosts == {"a.example", "b.example:8443"}
    assert found.upstreams["my-llm"].prefix == "/base"


def test_a_fleet_that_already_exports_the_opt_in_is_understood():
    found = Settings.from_env({"CLAWMETRY_VM_USAGE_LOG": "/l", "CLAWMETRY_VM_USAGE_RUNTIME": "picoclaw"})
    assert (found.log, found.runtime) == (Path("/l"), "picoclaw")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SHIM_PORT", "0"),
        ("SHIM_PORT", "65536"),
        ("SHIM_PORT", "41 41"),
        ("WORKERS", "0"),
        ("DRAIN_SECONDS", "-1"),
        ("DRAIN_SECONDS", "nan"),
        ("FINGERPRINT", "maybe"),
        ("LOG_LEVEL", "loud"),
        ("RUNTIME", "pico claw"),
        ("VM", "a/b"),
        ("ALLOWED_HOSTS", "http://x"),
        ("SHIM_BIND", "0.0.0.0"),
        ("CA_FILE", "/nowhere.pem"),
        ("TUNNEL_SECRET_FILE", "/nowhere"),
        ("UPSTREAM_X", "ftp://x"),
        ("UPSTREAM_X", "http://169.254.169.254/latest"),
    ],
)
def test_a_value_that_cannot_be_used_names_its_variable(name: str, value: str):
    with pytest.raises(ConfigError, match=f"VM_USAGE_{name}"):
        settings(**{name: value})


def test_an_address_off_loopback_needs_to_say_for_whom():
    assert settings(SHIM_BIND="0.0.0.0", ALLOWED_HOSTS="vm.example").bind == "0.0.0.0"


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_a_secret_that_others_can_read_or_that_is_short_is_refused(tmp_path: Path):
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n")
    file.chmod(0o600)
    assert read_secret(file) == b"0123456789abcdef"
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_secret(file)
    file.chmod(0o600)
    for text in ("short", "with a space in its midst", ""):
        file.write_text(text)
        with pytest.raises(ConfigError, match="must hold"):
            read_secret(file)


def test_a_secret_is_not_shown():
    assert "secret" not in repr(settings()) or "tunnel_secret_file=None" in repr(settings())
