"""PicoClaw's config: what is pointed at the shim, what is not and why, and that all of it can be taken back."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim import picoclaw, provision
from shim import provision_files as files
from shim.names import ConfigError, upstream_urls
from shim.upstreams import BASES, known_upstreams

CASES = Path(__file__).with_name("picoclaw")
SHIM = "http://127.0.0.1:4141/picoclaw"
POINTED = {
    "main": f"{SHIM}/openai/v1",
    "claude": f"{SHIM}/anthropic/v1",
    "messages": f"{SHIM}/anthropic",
    "router": f"{SHIM}/openrouter.ai/api/v1",
    "glm": f"{SHIM}/zhipu/api/paas/v4",
    "own": f"{SHIM}/llm-example-com-8000/gateway/v2",
    "own-2": f"{SHIM}/llm-example-com-8000/gateway/v3",
    "azure": f"{SHIM}/azure-acme",
    "deep": f"{SHIM}/deepseek/v1",
}
LEFT_ALONE = {
    "login": "OAuth",
    "token": "OAuth",
    "anti": "Google",
    "copilot": "Copilot",
    "cli": "Claude Code",
    "cli-2": "Codex",
    "aws": "SigV4",
    "aws-url": "SigV4",
    "off": "disabled",
    "proxied": "proxy",
    "no-base": "no api_base",
    "odd": "not a plain",
}


class Machine:
    """A user with PicoClaw and the command to provision it."""

    def __init__(self, folder: Path, case: str) -> None:
        self.config = folder / ".picoclaw" / "config.json"
        self.config.parent.mkdir()
        self.original = (CASES / case).read_bytes()
        self.config.write_bytes(self.original)
        self.config.chmod(0o600)
        self.upstreams = folder / "upstreams.env"
        self.environ = {"HOME": str(folder), "PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}

    def run(self, action: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "shim", "provision", "picoclaw", action, "--upstreams-env", str(self.upstreams)]
        done = subprocess.run(argv, env=self.environ, capture_output=True, text=True, timeout=30)
        return done.returncode, done.stdout + done.stderr

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        return {entry["model_name"]: entry for entry in json.loads(self.config.read_text())["model_list"]}

    @property
    def bases(self) -> dict[str, str | None]:
        return {name: entry.get("api_base") for name, entry in self.models.items()}

    def rewrite(self, **models: dict[str, Any]) -> None:
        """Write the file anew as PicoClaw does: its own layout, with some entries changed or added."""
        config = json.loads(self.config.read_text())
        found = {entry["model_name"]: entry for entry in config["model_list"]}
        for name, changes in models.items():
            found[name] = {"model_name": name, **found.get(name, {}), **changes}
        self.config.write_text(json.dumps({**config, "model_list": list(found.values())}, indent=2))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "fleet.json")


def test_every_entry_that_can_be_metered_leads_through_the_shim(machine: Machine) -> None:
    assert machine.run("--apply")[0] == 0
    assert {name: base for name, base in machine.bases.items() if name in POINTED} == POINTED


def test_the_rest_is_left_alone_and_named_with_its_reason(machine: Machine) -> None:
    before = machine.models
    _, said = machine.run("--apply")
    assert {name: machine.models[name] for name in LEFT_ALONE} == {name: before[name] for name in LEFT_ALONE}
    for name, reason in LEFT_ALONE.items():
        (line,) = [line for line in said.splitlines() if line.startswith(f"{name}: ")]
        assert "not metered" in line
        assert reason in line
    assert "tools.web.perplexity" in said
    assert "tools.web.gemini" not in said


def test_nothing_but_base_urls_changes(machine: Machine) -> None:
    machine.run("--apply")
    new, old = machine.config.read_text(), machine.original.decode()
    assert new.count("\n") == old.count("\n")
    for name, entry in machine.models.items():
        before = next(e for e in json.loads(old)["model_list"] if e["model_name"] == name)
        assert entry | {"api_base": None} == before | {"api_base": None}
    assert '    "model_list" : [' in new
    assert stat.S_IMODE(machine.config.stat().st_mode) == 0o600


def test_unknown_bases_become_upstreams_that_the_shim_knows(machine: Machine) -> None:
    machine.upstreams.write_text("VM_USAGE_UPSTREAM_OTHER=https://other.example.com\n")
    machine.run("--apply")
    lines = machine.upstreams.read_text().splitlines()
    given = upstream_urls(dict(line.split("=", 1) for line in lines))
    assert given == {
        "other": "https://other.example.com",
        "llm-example-com-8000": "http://llm.example.com:8000",
        "azure-acme": "https://acme.openai.azure.com",
    }
    assert known_upstreams(given)["azure-acme"].host == "acme.openai.azure.com"
    assert stat.S_IMODE(machine.upstreams.stat().st_mode) == 0o644


def test_check_tells_drift_by_its_exit_status(machine: Machine) -> None:
    status, said = machine.run("--check")
    assert status == 1
    assert "main: drifted" in said
    assert machine.config.read_bytes() == machine.original
    machine.run("--apply")
    assert machine.run("--check")[0] == 0


def test_a_second_apply_changes_nothing(machine: Machine) -> None:
    machine.run("--apply")
    once = {path.name: path.read_bytes() for path in machine.config.parent.iterdir()}
    machine.run("--apply")
    assert {path.name: path.read_bytes() for path in machine.config.parent.iterdir()} == once


def test_revert_gives_back_every_byte_and_leaves_nothing(machine: Machine) -> None:
    machine.run("--apply")
    assert machine.run("--revert")[0] == 0
    assert machine.config.read_bytes() == machine.original
    assert [path.name for path in machine.config.parent.iterdir()] == ["config.json"]


def test_revert_without_apply_changes_nothing(machine: Machine) -> None:
    assert machine.run("--revert")[0] == 0
    assert machine.config.read_bytes() == machine.original


def test_a_backup_is_kept_while_changes_are_in_force(machine: Machine) -> None:
    machine.run("--apply")
    assert files.backup_path(machine.config).read_bytes() == machine.original


def test_a_file_that_picoclaw_rewrote_is_mended_and_still_taken_back(machine: Machine) -> None:
    machine.run("--apply")
    machine.rewrite(main={"api_base": "https://api.openai.com/v1"}, fresh={"model": "groq/llama-3.3-70b"})
    assert machine.run("--check")[0] == 1
    machine.run("--apply")
    assert machine.bases["fresh"] == f"{SHIM}/groq/openai/v1"
    machine.rewrite(main={"temperature": 1})
    machine.run("--revert")
    before = {e["model_name"]: e.get("api_base") for e in json.loads(machine.original)["model_list"]}
    assert machine.bases == before | {"fresh": None}
    assert machine.models["main"]["temperature"] == 1


def test_an_entry_copied_with_our_base_is_taken_back_too(machine: Machine) -> None:
    machine.run("--apply")
    machine.rewrite(copy={"model": "vllm/acme-7b", "api_base": POINTED["own"]})
    files.record_path(machine.config).unlink()
    machine.run("--revert")
    assert machine.bases["copy"] == "http://llm.example.com:8000/gateway/v2"
    assert machine.bases["claude"] == "https://api.anthropic.com/v1"


def test_another_port_is_drift_and_revert_still_knows_the_first_base(machine: Machine) -> None:
    machine.run("--apply")
    machine.environ["VM_USAGE_SHIM_PORT"] = "4242"
    assert machine.run("--check")[0] == 1
    machine.run("--apply")
    assert machine.bases["main"] == "http://127.0.0.1:4242/picoclaw/openai/v1"
    machine.run("--revert")
    assert machine.config.read_bytes() == machine.original


def test_an_entry_that_turned_to_oauth_is_no_drift(machine: Machine) -> None:
    machine.run("--apply")
    machine.rewrite(main={"auth_method": "oauth"})
    assert machine.run("--check")[0] == 0


def test_the_given_config(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "config.json")
    machine.run("--apply")
    assert machine.bases == {"home-model": f"{SHIM}/local-4319/v1"}
    assert "VM_USAGE_UPSTREAM_LOCAL_4319=http://127.0.0.1:4319\n" in machine.upstreams.read_text()


def test_windows_newlines_stay(machine: Machine) -> None:
    machine.original = machine.original.replace(b"\n", b"\r\n")
    machine.config.write_bytes(machine.original)
    machine.run("--apply")
    assert machine.config.read_bytes().count(b"\r\n") == machine.original.count(b"\r\n")
    machine.run("--revert")
    assert machine.config.read_bytes() == machine.original


def test_a_linked_config_stays_a_link(machine: Machine) -> None:
    real = machine.config.parent.parent / "real.json"
    machine.config.rename(real)
    machine.config.symlink_to(real)
    machine.run("--apply")
    assert machine.config.is_symlink()
    assert machine.bases["main"] == POINTED["main"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model_list": {}}', "\ufeff{}", "null"])
def test_what_is_no_config_is_refused_untouched(machine: Machine, text: str) -> None:
    machine.config.write_text(text)
    status, said = machine.run("--apply")
    assert status == 2
    assert "config" in said
    assert machine.config.read_text() == text


def test_a_missing_config_is_said(machine: Machine) -> None:
    machine.config.unlink()
    assert machine.run("--check")[0] == 2


def test_picoclaws_variables_name_its_config() -> None:
    assert provision.config_path({"PICOCLAW_CONFIG": "/a/b.json"}) == Path("/a/b.json")
    assert provision.config_path({"PICOCLAW_HOME": "/a"}) == Path("/a/config.json")
    assert provision.config_path({"HOME": "/h"}) == Path("/h/.picoclaw/config.json")


def test_the_doctor_hears_of_drift(machine: Machine) -> None:
    machine.environ["VM_USAGE_STATE"] = str(machine.config.parent.parent)
    said = provision.config_drift(machine.config, 4141, machine.environ)
    assert "main calls https://api.openai.com/v1 past the shim" in said
    assert "claude calls its default base past the shim" in said


@pytest.mark.parametrize("protocol", [name for name, base in picoclaw.DEFAULT_BASES.items() if base])
def test_every_default_base_can_be_reached_through_the_shim(protocol: str) -> None:
    base = picoclaw.DEFAULT_BASES[protocol]
    assert base is not None
    origin, path = picoclaw.split_base(base)
    name, _ = picoclaw.upstream_name(origin, {})
    upstream = known_upstreams({name: origin})[name]
    assert picoclaw.through_shim(picoclaw.shim_base(4141, name, path)) == (4141, name, path)
    assert upstream.path(path) == path
    assert upstream.authority in base.replace("localhost", "127.0.0.1")


@pytest.mark.parametrize(
    ("entry", "protocol"),
    [
        ({"model": "gpt-5"}, "openai"),
        ({"model": "openai/gpt-5"}, "openai"),
        ({"model": "acme/gpt-5"}, "openai"),
        ({"model": "z.ai/glm-5"}, "zai"),
        ({"model": "nvidia/z-ai/glm-5.1"}, "nvidia"),
        ({"provider": " Google ", "model": "gemini-3"}, "gemini"),
        ({"provider": "acme", "model": "openai/x"}, "acme"),
        ({}, "openai"),
    ],
)
def test_the_provider_is_told_as_picoclaw_tells_it(entry: dict[str, Any], protocol: str) -> None:
    assert picoclaw.protocol_of(entry) == protocol


def test_a_known_operators_name_comes_before_ours() -> None:
    assert picoclaw.upstream_name("https://api.openai.com", {"mine": "https://api.openai.com/"}) == ("mine", False)
    assert picoclaw.upstream_name(BASES["groq"], {}) == ("groq", False)


def test_a_name_that_is_taken_gets_a_number() -> None:
    known = {"llm-example-com": "https://llm.example.com"}
    assert picoclaw.upstream_name("http://llm.example.com", known) == ("llm-example-com-2", True)


DEFAULTS = [base for base in picoclaw.DEFAULT_BASES.values() if base]
BASE_URLS = st.sampled_from([*DEFAULTS, "http://10.0.0.5:81/v1", "https://x.io", ""])
ENTRIES = st.fixed_dictionaries(
    {"model_name": st.text(max_size=4), "model": st.sampled_from(["gpt-5", "groq/x", "claude-cli/x", "a/b"])},
    optional={"api_base": BASE_URLS, "enabled": st.booleans(), "auth_method": st.sampled_from(["", "oauth"])},
)


@given(st.lists(ENTRIES, max_size=5), st.sampled_from([None, 0, 2, "\t"]))
def test_any_config_is_given_back_byte_for_byte(entries: list[dict[str, Any]], indent: int | str | None) -> None:
    text = json.dumps({"version": 3, "model_list": entries}, indent=indent)
    found = provision.survey(text, 4141, {})
    pointed, made = provision.pointed_at_shim(text, found.steps, [])
    assert not provision.survey(pointed, 4141, found.upstreams).drift
    names = [entry["model_name"] for entry in entries]
    back, restored = provision.taken_back(pointed, made, found.upstreams)
    assert len(restored) == len(found.drift)
    if len(set(names)) == len(names):
        assert back == text


def test_a_config_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        files.replace(tmp_path / "no-folder" / "config.json", "{}")
