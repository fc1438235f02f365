"""Opting a machine in by variables: nobody's own value is touched, and removal leaves no trace."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shim import optin
from shim.cli import run
from shim.names import ConfigError

UNIT = "agent.service"
BASE = "http://127.0.0.1:4141/picoclaw"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with a unit of an agent that points OpenAI somewhere else itself."""
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / UNIT).write_text('[Service]\nExecStart=/bin/true\nEnvironment="OPENAI_BASE_URL=https://own/v1" X=1\n')
    (tmp_path / "etc/profile.d").mkdir()
    return tmp_path


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in sorted(root.rglob("*"))}


def opt_in(root: Path, *arguments: str) -> int:
    return run(["optin", "--root", str(root), *arguments])


def shell(root: Path, **environ: str) -> str:
    script = f'. {root}/{optin.PROFILE}; echo "$OPENAI_BASE_URL"'
    return subprocess.run(
        ["sh", "-euc", script], env={"PATH": os.environ["PATH"], **environ}, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_removal_takes_everything_back_byte_for_byte(root: Path) -> None:
    before = tree(root)
    assert opt_in(root, "--runtime", "picoclaw", "--unit", UNIT, "--apply") == 0
    assert tree(root) != before
    assert opt_in(root, "--remove") == 0
    assert tree(root) == before


def test_a_source_written_by_an_operator_stays(root: Path) -> None:
    (root / "etc/vm-usage").mkdir()
    (root / optin.SOURCE).write_text("OPENAI_BASE_URL=http://127.0.0.1:4141/picoclaw/openai/v1\n")
    before = tree(root)
    assert opt_in(root, "--apply") == 0
    assert opt_in(root, "--remove") == 0
    assert tree(root) == before


def test_a_shell_gets_the_variable_and_keeps_its_own(root: Path) -> None:
    opt_in(root, "--runtime", "picoclaw", "--apply")
    assert shell(root) == f"{BASE}/openai/v1"
    assert shell(root, OPENAI_BASE_URL="https://own/v1") == "https://own/v1"


def test_a_user_manager_keeps_a_value_set_before(root: Path) -> None:
    opt_in(root, "--runtime", "picoclaw", "--apply")
    text = (root / optin.USER_MANAGERS).read_text()
    assert f"OPENAI_BASE_URL=${{OPENAI_BASE_URL:-{BASE}/openai/v1}}" in text.splitlines()


def test_a_unit_gets_what_it_does_not_set_itself(root: Path) -> None:
    opt_in(root, "--runtime", "picoclaw", "--unit", UNIT, "--apply")
    lines = (root / optin.DROP_IN.format(unit=UNIT)).read_text().splitlines()
    assert f"Environment=ANTHROPIC_BASE_URL={BASE}/anthropic" in lines
    assert not any(line.startswith("Environment=OPENAI_BASE_URL=") for line in lines)


def test_applying_twice_changes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opt_in(root, "--runtime", "picoclaw", "--unit", UNIT, "--apply")
    once = tree(root)
    capsys.readouterr()
    opt_in(root, "--runtime", "picoclaw", "--unit", UNIT, "--apply")
    assert tree(root) == once
    assert capsys.readouterr().out == ""


def test_a_template_instance_has_its_templates_settings(root: Path) -> None:
    (root / "etc/systemd/system/agent@.service").write_text("[Service]\nEnvironment=OPENAI_BASE_URL=https://own/v1\n")
    assert optin.set_by_unit(root, "agent@7.service") == {"OPENAI_BASE_URL"}


def test_a_file_that_is_not_ours_is_not_overwritten(root: Path) -> None:
    (root / optin.PROFILE).write_text("mine\n")
    assert opt_in(root, "--runtime", "picoclaw", "--apply") == 2
    assert (root / optin.PROFILE).read_text() == "mine\n"


def test_a_self_reporting_runtime_is_refused_unless_only_forwarded(root: Path) -> None:
    assert opt_in(root, "--runtime", "qwen_code", "--apply") == 2
    assert opt_in(root, "--runtime", "qwen_code", "--forward-only", "--apply") == 0


def test_two_runtimes_cannot_share_a_variable() -> None:
    with pytest.raises(ConfigError, match="one runtime only"):
        optin.exports_of(("picoclaw", "qwen_code"), 4141)


@pytest.mark.parametrize("line", ["OPENAI_BASE_URL", "a b=c", "X=$(id)", "X=a b", 'X="q"', "X=100%"])
def test_a_source_that_would_mean_different_things_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "optin.env").write_text(f"# comment\n\n{line}\n")
    with pytest.raises(ConfigError, match="line 3"):
        optin.read_source(tmp_path / "optin.env")
