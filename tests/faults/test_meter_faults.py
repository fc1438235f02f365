"""Whatever breaks in the meter, the call goes through, and the fault is counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.programs import Shim, clean_environment, free_port, wait_until_healthy
from tests.faults.client import Call
from tests.faults.conftest import Start
from tests.faults.upstream import Upstream
from tests.faults.watch import events, eventually, metric, post, status

# A part of the meter that is made to raise: module, class, method.
PARTS = (
    ("shim.sink", "Sink", "append"),
    ("shim.inflight", "Inflight", "begin"),
    ("shim.wires.openai_chat", "OpenAIChat", "feed"),
    ("shim.wires.openai_chat", "OpenAIChat", "finish"),
)


@contextmanager
def sabotaged(folder: Path, upstream: Upstream, part: tuple[str, str, str]) -> Iterator[Shim]:
    """A real shim process in which one method of the meter raises."""
    module, owner, method = part
    code = (
        f"import {module} as module, sys\n"
        "def fail(*args, **kwargs): raise RuntimeError('sabotage')\n"
        f"setattr(module.{owner}, {method!r}, fail)\n"
        "from shim.__main__ import main\n"
        "sys.argv = ['usage-shim', 'run']\n"
        "main()\n"
    )
    port = free_port()
    log = folder / "usage.jsonl"
    environ = clean_environment(
        folder, VM_USAGE_LOG=str(log), VM_USAGE_SHIM_PORT=str(port), VM_USAGE_UPSTREAM_OPENAI=upstream.url
    )
    with (folder / "shim.err").open("ab") as err:
        process = subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=err, cwd=os.getcwd())
    shim = Shim(f"http://127.0.0.1:{port}", log, process, environ)
    try:
        wait_until_healthy(process, shim.url + "/-/healthz", folder / "shim.err")
        yield shim
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part[1]}.{part[2]}")
def test_a_fault_in_a_part_of_the_meter_never_touches_a_call(tmp_path: Path, upstream: Upstream, part):
    with sabotaged(tmp_path, upstream, part) as shim:
        assert post(shim, "m-1").json()["usage"]["prompt_tokens"] == 1
        stream = Call(shim, "stream", "m-2")
        assert b"data: [DONE]" in stream.read_until(b"0\r\n\r\n")
        assert eventually(lambda: metric(shim, "usage_shim_metering_errors_total") >= 1)
        assert "sabotage" not in (tmp_path / "shim.err").read_text()


def test_a_broken_allowlist_on_reload_keeps_the_old_one(start: Start, tmp_path: Path):
    allowlist = tmp_path / "allowlist.yaml"
    good = 'version: 1\ntoken_blind:\n  picoclaw: {why: "no record"}\n'
    allowlist.write_text(good)
    with start(VM_USAGE_ALLOWLIST=str(allowlist)) as shim:
        allowlist.write_text("version: 1\ntoken_blind: [not, a, mapping]\n")
        shim.process.send_signal(signal.SIGHUP)
        eventually(lambda: status(shim)["reload_refused"])
        assert post(shim, "m-1").status_code == 200
        assert len(eventually(shim.lines)) == 1
        assert metric(shim, "usage_shim_reloads_total") >= 1
        said = events(tmp_path, "reload_refused")
        assert "allowlist.yaml:2" in said[0]["reason"]
        allowlist.write_text(good)
        eventually(lambda: not status(shim)["reload_refused"])


def test_an_allowlist_changed_on_disk_applies_without_a_signal(start: Start, tmp_path: Path):
    allowlist = tmp_path / "allowlist.yaml"
    allowlist.write_text('version: 1\ntoken_blind:\n  picoclaw: {why: "no record"}\n')
    with start(VM_USAGE_ALLOWLIST=str(allowlist)) as shim:
        post(shim, "m-1")
        assert len(eventually(shim.lines)) == 1
        allowlist.write_text('version: 1\ntoken_blind:\n  cursor: {why: "no record"}\n')
        eventually(lambda: {"what": "allowlist", "result": "applied", "count": 1} in status(shim)["reloads"])
        assert post(shim, "m-2").status_code == 200
        time.sleep(0.1)
        assert len(shim.lines()) == 1
        assert metric(shim, "usage_shim_refused_total") == 1


def test_without_a_log_calls_go_through_and_nothing_is_kept(start: Start, tmp_path: Path):
    with start(VM_USAGE_LOG="") as shim:
        assert post(shim, "m-1").status_code == 200
        assert status(shim)["metering"] is False
    assert list(tmp_path.rglob("*.slots")) == []
