"""deploy/cursor-agent: capture in front of Cursor's CLI, and nothing in front of everything else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WRAPPER = Path(__file__).parents[2] / "deploy" / "cursor-agent"
RUN = Path(__file__).with_name("cursor_cli") / "run1.ndjson"


class Machine:
    """A PATH with the wrapper, Cursor's CLI (a stand-in that replays a recorded run) and usage-shim."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "usage.jsonl"
        for name in ("front", "cursor", "bin", "home"):
            (folder / name).mkdir()
        self.script("cursor/cursor-agent", f'[ "$1" = fail ] && exit 4; cat {RUN}; echo "$#:$*" >&2')
        self.script("bin/usage-shim", f'exec {sys.executable} -m shim "$@"')
        self.install("front/cursor-agent")
        path = ":".join(str(folder / name) for name in ("front", "cursor", "bin"))
        self.environ = {
            "PATH": f"{path}:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "PYTHONPATH": str(WRAPPER.parents[1]),
            "VM_USAGE_LOG": str(self.log),
        }

    def script(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def install(self, name: str) -> None:
        (self.folder / name).write_bytes(WRAPPER.read_bytes())
        (self.folder / name).chmod(0o755)

    def run(self, *arguments: str, name: str = "cursor-agent") -> subprocess.CompletedProcess[str]:
        argv = [self.which(name), *arguments]
        return subprocess.run(argv, env=self.environ, capture_output=True, text=True, timeout=30)

    def which(self, name: str) -> str:
        return str(next(self.folder / f / name for f in ("front", "cursor") if (self.folder / f / name).exists()))

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("form", [["--output-format", "stream-json"], ["--output-format=json"]])
def test_a_run_that_prints_records_is_captured(machine: Machine, form: list[str]) -> None:
    done = machine.run("-p", *form, "say ok", "")
    assert (done.returncode, done.stdout) == (0, RUN.read_text())
    assert done.stderr == f"{3 + len(form)}:-p {' '.join(form)} say ok \n"
    assert [line["input_tokens"] for line in machine.lines] == [3000]


@pytest.mark.parametrize("arguments", [[], ["-p", "tell me about json"], ["-p", "--output-format", "text", "json"]])
def test_any_other_run_is_the_real_program(machine: Machine, arguments: list[str]) -> None:
    machine.script("bin/usage-shim", "exit 99")
    assert machine.run(*arguments).returncode == 0
    assert machine.lines == []


def test_without_usage_shim_the_real_program_runs(machine: Machine) -> None:
    (machine.folder / "bin/usage-shim").unlink()
    assert machine.run("-p", "--output-format", "json").stdout == RUN.read_text()


def test_the_exit_status_is_the_real_programs(machine: Machine) -> None:
    assert machine.run("fail", "--output-format=json").returncode == 4


def test_two_copies_on_path_capture_once(machine: Machine) -> None:
    (machine.folder / "front2").mkdir()
    machine.install("front2/cursor-agent")
    machine.environ["PATH"] = f"{machine.folder}/front:{machine.folder}/front2:" + machine.environ["PATH"]
    machine.run("-p", "--output-format=json")
    assert len(machine.lines) == 1


def test_it_answers_to_cursors_other_name(machine: Machine) -> None:
    os.symlink(machine.folder / "front/cursor-agent", machine.folder / "front/agent")
    machine.script("cursor/agent", f"cat {RUN}")
    machine.run("-p", "--output-format=json", name="agent")
    assert len(machine.lines) == 1


def test_without_cursors_cli_it_says_so(machine: Machine) -> None:
    (machine.folder / "cursor/cursor-agent").unlink()
    done = machine.run("-p")
    assert (done.returncode, done.stdout) == (127, "")
    assert "not on PATH" in done.stderr
