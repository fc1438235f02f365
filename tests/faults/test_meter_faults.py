"""Whatever breaks in the meter, the call goes through, and the fault is counted."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.programs import collector
from tests.faults.client import Call
from tests.faults.conftest import Start
from tests.faults.processes import started_by
from tests.faults.upstream import Upstream
from tests.faults.watch import events, eventually, metric, outcomes, post, status

# A part of the meter that is made to raise: module, class, method.
PARTS = (
    ("shim.sink", "Sink", "append_object"),
    ("shim.inflight", "Inflight", "begin"),
    ("shim.wires.openai_chat", "OpenAIChat", "feed"),
    ("shim.wires.openai_chat", "OpenAIChat", "finish"),
)


# A real shim process in which one method of the meter raises.
SABOTAGED = """
import sys, {module} as module
def fail(*args, **kwargs): raise RuntimeError("sabotage")
module.{owner}.{method} = fail
from shim.__main__ import main
sys.argv = ["usage-shim", "run"]
main()
"""


@pytest.mark.interpreted
@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part[1]}.{part[2]}")
def test_a_fault_in_a_part_of_the_meter_never_touches_a_call(tmp_path: Path, upstream: Upstream, part):
    module, owner, method = part
    code = SABOTAGED.format(module=module, owner=owner, method=method)
    with started_by(tmp_path, [sys.executable, "-c", code], upstream) as shim:
        assert post(shim, "m-1").json()["usage"]["prompt_tokens"] == 1
        stream = Call(shim, "stream", "m-2")
        assert b"data: [DONE]" in stream.read_until(b"0\r\n\r\n")
        assert eventually(lambda: metric(shim, "usage_shim_metering_errors_total") >= 1)
        assert "sabotage" not in (tmp_path / "shim.err").read_text()


@pytest.mark.interpreted
def test_a_fault_of_the_shim_itself_is_an_answer_and_not_a_silence(tmp_path: Path, upstream: Upstream):
    code = SABOTAGED.format(module="shim.upstream", owner="Pool", method="open")
    with started_by(tmp_path, [sys.executable, "-c", code], upstream) as shim:
        answer = post(shim, "m-1")
        assert (answer.status_code, "sabotage" in answer.text) == (500, False)
        assert [line["outcome"] for line in eventually(shim.lines)] == ["unreachable"]
        assert status(shim)["relay_errors"] == 1
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


# A real shim process whose clock can be set: what the file at {moved} says is added to the time, in seconds.
CLOCK_THAT_CAN_BE_SET = """
import sys, time
from pathlib import Path
real, moved = time.time, Path({moved!r})
time.time = lambda: real() + (float(moved.read_text()) if moved.exists() else 0)
from shim.__main__ import main
sys.argv = ["usage-shim", "run"]
main()
"""


@pytest.mark.parametrize("seconds", [-86_400, 86_400], ids=["back", "forward"])
def test_a_clock_that_is_set_touches_no_call_and_mixes_up_no_line(tmp_path: Path, upstream: Upstream, seconds: int):
    moved = tmp_path / "moved"
    code = CLOCK_THAT_CAN_BE_SET.format(moved=str(moved))
    with started_by(tmp_path, [sys.executable, "-c", code], upstream) as shim:
        stream = Call(shim, "drip", "m-1")
        stream.read_until(b"word 0")
        post(shim, "m-2")
        (before,) = eventually(shim.lines)
        moved.write_text(str(seconds))
        eventually(lambda: status(shim)["boot"] not in before["id"])
        assert post(shim, "m-3").status_code == 200
        upstream.release.set()
        assert b"[DONE]" in stream.read_until(b"[DONE]")
        lines = shim.wait_for_lines(3)
        assert shim.stop() == lines
    assert outcomes(lines) == dict.fromkeys(("m-1", "m-2", "m-3"), "completed")
    assert all(0 <= line["duration_ms"] < 60_000 for line in lines)
    assert [line["id"].rpartition("-")[2] for line in lines] == ["1", "1", "2"]
    assert len(events(tmp_path, "boot_renewed")) == 1
    assert "No findings" in collector(shim.environ, "audit", str(shim.log))


def test_a_state_folder_that_is_deleted_touches_no_call(start: Start, tmp_path: Path):
    with start(VM_USAGE_WORKERS="2") as shim:
        post(shim, "m-1")
        shim.wait_for_lines(1)
        shutil.rmtree(tmp_path / "state")
        for n in range(2, 8):
            assert post(shim, f"m-{n}").status_code == 200
        lines = shim.wait_for_lines(7)
        assert shim.stop() == lines
        assert shim.process.returncode == 0
    assert outcomes(lines) == {f"m-{n}": "completed" for n in range(1, 8)}
    with start() as shim:
        assert post(shim, "m-8").status_code == 200
        assert len(shim.wait_for_lines(8)) == 8
