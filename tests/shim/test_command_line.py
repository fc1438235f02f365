"""The commands as a user types them: what they print, and what they exit with."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from shim import __version__
from tests.e2e.programs import BIN, clean_environment, free_port
from tests.fake_upstream import FakeUpstream
from tests.shim.raw import PATH, eventually


def usage_shim(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environ = clean_environment(folder, **settings)
    return subprocess.run(
        [BIN / "usage-shim", *arguments], env=environ, capture_output=True, text=True, timeout=30, check=False
    )


def test_help_and_version(tmp_path: Path):
    assert usage_shim(tmp_path, "--version").stdout.strip().endswith(__version__)
    shown = usage_shim(tmp_path, "--help")
    assert shown.returncode == 0
    for command in ("run", "status", "check", "env", "provision", "capture"):
        assert command in shown.stdout


@pytest.mark.parametrize("arguments", [("bogus",), ("run", "--workers", "0"), ("run", "extra"), ("--nope",)])
def test_bad_usage_is_2(tmp_path: Path, arguments: tuple[str, ...]):
    done = usage_shim(tmp_path, *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("usage-shim: ")
    return done.stderr


def test_a_port_in_use_is_one_sentence(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for workers in ("1", "2"):
            settings = {"VM_USAGE_SHIM_PORT": port, "VM_USAGE_WORKERS": workers}
            assert f"Port {port}" in one_sentence(usage_shim(tmp_path, "run", **settings))


def test_an_unwritable_log_is_one_sentence(tmp_path: Path):
    for place in (tmp_path, Path("/proc/usage.jsonl")):
        assert str(place) in one_sentence(usage_shim(tmp_path, "run", VM_USAGE_LOG=str(place)))


def test_an_allowlist_that_cannot_be_used_is_one_sentence(tmp_path: Path):
    missing = usage_shim(tmp_path, "run", VM_USAGE_ALLOWLIST=str(tmp_path / "none.yaml"))
    assert "none.yaml" in one_sentence(missing)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("version: 1\ntoken_blind:\n  codex: {why: x}\n")
    for command in ("run", "check"):
        assert "wrong.yaml:3" in one_sentence(usage_shim(tmp_path, command, VM_USAGE_ALLOWLIST=str(wrong)))


def test_a_self_reporting_runtime_cannot_be_configured(tmp_path: Path):
    assert "codex" in one_sentence(usage_shim(tmp_path, "check", VM_USAGE_RUNTIME="codex"))
    assert "codex" in one_sentence(usage_shim(tmp_path, "check", VM_USAGE_ALLOW="codex"))


def test_a_misspelt_variable_names_its_neighbour(tmp_path: Path):
    assert "VM_USAGE_SHIM_PORT" in one_sentence(usage_shim(tmp_path, "check", VM_USAGE_SHIM_PROT="1"))


def test_check_says_what_would_be_metered(tmp_path: Path):
    done = usage_shim(tmp_path, "check", VM_USAGE_LOG="/l", VM_USAGE_ALLOW="picoclaw")
    assert done.returncode == 0
    assert "metered: picoclaw\n" in done.stdout


def test_status_without_a_shim_is_1(tmp_path: Path):
    assert usage_shim(tmp_path, "status", VM_USAGE_SHIM_PORT=str(free_port())).returncode == 1


def test_status_shows_the_counters(shim_process, tmp_path: Path):
    shim = shim_process()
    httpx.post(shim.url + PATH, json={"model": "m"})
    port = shim.url.rpartition(":")[2]
    value = json.loads(usage_shim(tmp_path, "status", "--json", VM_USAGE_SHIM_PORT=port).stdout)
    assert value["lines_written"] == 1
    assert "picoclaw openai completed" in usage_shim(tmp_path, "status", VM_USAGE_SHIM_PORT=port).stdout


def test_workers_share_a_port_and_a_log(shim_process, upstream: FakeUpstream):
    shim = shim_process(VM_USAGE_WORKERS="2")
    for _ in range(60):
        assert httpx.post(shim.url + PATH, json={"model": "m"}).status_code == 200
    eventually(lambda: len(shim.lines()) == 60)
    by_boot: dict[str, list[int]] = {}
    for line in shim.stop():
        boot, _, seq = line["id"].rpartition("-")
        by_boot.setdefault(boot, []).append(int(seq))
    assert len(by_boot) == 2
    assert all(sorted(seqs) == list(range(1, len(seqs) + 1)) for seqs in by_boot.values())
    assert shim.process.returncode == 0


def test_a_worker_that_dies_is_started_again(shim_process):
    shim = shim_process(VM_USAGE_WORKERS="2")
    children = Path(f"/proc/{shim.process.pid}/task/{shim.process.pid}/children")
    first, second = children.read_text().split()
    os.kill(int(first), signal.SIGKILL)
    eventually(lambda: len(children.read_text().split()) == 2 and first not in children.read_text().split())
    assert second in children.read_text().split()
    assert httpx.post(shim.url + PATH, json={"model": "m"}).status_code == 200
