"""A log that is full, gone, moved or forbidden: each call is forwarded, and its line comes when the log is back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.programs import BIN, Shim
from tests.faults.conftest import Start
from tests.faults.processes import started_by
from tests.faults.upstream import Upstream
from tests.faults.watch import events, eventually, metric, outcomes, post, status
from tests.privileges import bound_by_modes

MIB = 2**20


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0777", "tmpfs", folder], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Path:
    """Take all room that is left; the file to delete to give it back."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for block in (65536, 4096, 1):
            try:
                while file.write(b"x" * block):
                    pass
            except OSError:
                continue
    return ballast


def test_a_full_disk_of_1_mib_filled_and_freed_loses_nothing(start: Start, small_disk: Path, tmp_path: Path):
    log = small_disk / "usage.jsonl"
    with start(VM_USAGE_LOG=str(log)) as shim:
        shim.log = log
        post(shim, "m-1")
        ballast = fill(small_disk)
        for n in range(2, 40):
            assert post(shim, f"m-{n}").status_code == 200
        shown = status(shim)
        assert (shown["log_error"], shown["waiting"] > 20) == ("ENOSPC", True)
        assert metric(shim, "usage_shim_waiting_lines") == shown["waiting"]
        ballast.unlink()
        eventually(lambda: len(log.read_bytes().splitlines()) == 39)
        assert outcomes(shim.lines()) == {f"m-{n}": "completed" for n in range(1, 40)}
        assert [line["id"].rpartition("-")[2] for line in shim.lines()] == [str(n) for n in range(1, 40)]
        assert status(shim)["log_error"] is None
    assert len(events(tmp_path, "log_write_failed")) == 1


def test_lines_that_wait_at_a_kill_come_with_their_tokens_at_the_next_start(start: Start, small_disk: Path):
    import signal

    log = small_disk / "usage.jsonl"
    with start(VM_USAGE_LOG=str(log)) as shim:
        shim.log = log
        ballast = fill(small_disk)
        for n in range(1, 11):
            post(shim, f"m-{n}")
        eventually(lambda: status(shim)["waiting"] >= 9)
        shim.stop(signal.SIGKILL)
    ballast.unlink()
    with start(VM_USAGE_LOG=str(log)) as shim:
        eventually(lambda: len(log.read_bytes().splitlines()) >= 10)
        whole = [line for line in log.read_bytes().splitlines() if line.endswith(b"}")]
        shim.log.write_bytes(b"\n".join(whole) + b"\n")
        assert {line["model"]: line["input_tokens"] for line in shim.lines()} == {f"m-{n}": n for n in range(1, 11)}


def test_a_read_only_file_system_keeps_calls_going(start: Start, small_disk: Path):
    log = small_disk / "usage.jsonl"
    with start(VM_USAGE_LOG=str(log)) as shim:
        shim.log = log
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
        assert post(shim, "m-1").status_code == 200
        assert status(shim)["log_error"] == "EROFS"
        subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
        assert outcomes(eventually(shim.lines)) == {"m-1": "completed"}


def deleted(log: Path) -> None:
    log.unlink()


def renamed(log: Path) -> None:
    log.rename(log.with_suffix(".1"))


def folder_moved(log: Path) -> None:
    log.parent.rename(log.parent.with_name("moved"))


def became_a_folder(log: Path) -> None:
    log.rename(log.with_suffix(".1"))
    log.mkdir()


@pytest.mark.parametrize("damage", [deleted, renamed, folder_moved])
def test_the_next_line_is_in_a_new_log(start: Start, tmp_path: Path, damage: Callable[[Path], None]):
    log = tmp_path / "logs" / "usage.jsonl"
    with start(VM_USAGE_LOG=str(log)) as shim:
        shim.log = log
        post(shim, "m-1")
        eventually(shim.lines)
        damage(log)
        assert post(shim, "m-2").status_code == 200
        assert outcomes(eventually(shim.lines)) == {"m-2": "completed"}


def test_a_log_that_becomes_a_folder_keeps_lines_waiting(shim: Shim, tmp_path: Path):
    post(shim, "m-1")
    eventually(shim.lines)
    became_a_folder(shim.log)
    for n in range(2, 5):
        assert post(shim, f"m-{n}").status_code == 200
    assert status(shim)["log_error"] == "EISDIR"
    shim.log.rmdir()
    assert len(outcomes(eventually(lambda: shim.log.is_file() and shim.lines()))) == 3
    assert len(events(tmp_path, "log_write_failed")) == 1


def test_permission_lost_and_given_back(upstream: Upstream, tmp_path: Path):
    """Where tests run as root, the shim runs without root's power to read and write whatever it likes."""
    logs = tmp_path / "logs"
    logs.mkdir()
    command = [*bound_by_modes(), BIN / "usage-shim", "run"]
    with started_by(tmp_path, command, upstream, VM_USAGE_LOG=str(logs / "usage.jsonl")) as shim:
        logs.chmod(0)
        assert post(shim, "m-1").status_code == 200
        assert status(shim)["log_error"] == "EACCES"
        logs.chmod(0o755)
        assert outcomes(eventually(shim.lines)) == {"m-1": "completed"}


def test_state_that_cannot_be_kept_never_touches_a_call(start: Start, tmp_path: Path):
    (tmp_path / "state").mkdir()
    with start() as shim:
        before = status(shim)["inflight_durable"]
        shim.stop()
    assert before
    blocked = next((tmp_path / "state").rglob("inflight"))
    blocked.rmdir()
    blocked.write_text("a file where the folder was")
    with start() as shim:
        assert post(shim, "m-1").status_code == 200
        assert status(shim)["inflight_error"] == "EEXIST"
        assert len(eventually(shim.lines)) == 1
