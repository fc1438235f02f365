"""``usage-shim capture`` as a process: nobody who runs a command through it can tell, and each turn has its line."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from shim.capture import may_write
from shim.line import Line, decode
from shim.places import capture_logs
from tests.privileges import bound_by_modes

RUNS = Path(__file__).with_name("cursor_cli")
CAPTURE = [sys.executable, "-m", "shim", "capture"]


class Captured:
    """A user with a home and a log, running commands through capture."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "usage.jsonl"
        self.home = folder / "home"
        self.home.mkdir()
        kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
        self.environ = {**kept, "HOME": str(self.home), "VM_USAGE_LOG": str(self.log), "VM_USAGE_VM": "vm-1"}

    def run(self, *command: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        environ: Mapping[str, str] = options.pop("env", self.environ)  # type: ignore[assignment]
        argv = [*CAPTURE, "--runtime", "cursor", "--", *command]
        return subprocess.run(argv, env=environ, capture_output=True, timeout=30, **options)  # type: ignore[call-overload, no-any-return]

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        argv = [*CAPTURE, "--runtime", "cursor", "--", *command]
        return subprocess.Popen(argv, env=self.environ, stdout=subprocess.PIPE)

    def replay(self, run: str, then: str = "") -> subprocess.CompletedProcess[bytes]:
        return self.run("sh", "-c", f"cat {RUNS / run}.ndjson; {then}")

    def lines(self, log: Path | None = None) -> list[Line]:
        log = log or self.log
        return [decode(data) for data in log.read_bytes().splitlines(keepends=True)] if log.exists() else []


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    return Captured(tmp_path)


def test_output_passes_byte_for_byte_and_each_turn_has_a_line(captured: Captured) -> None:
    for run in ("run1", "run2_resume", "run3_old_build"):
        done = captured.replay(run)
        assert (done.stdout, done.stderr, done.returncode) == ((RUNS / f"{run}.ndjson").read_bytes(), b"", 0)
    lines = captured.lines()
    assert [line.tokens.total for line in lines] == [12120, 12480, None]
    assert [line.usage for line in lines] == ["reported", "reported", "missing"]
    assert [(line.runtime, line.upstream, line.wire, line.model) for line in lines] == [
        ("cursor", "cursor", "cursor-cli", "GPT-5")
    ] * 3


def test_a_resumed_chat_is_one_session_with_two_responses(captured: Captured) -> None:
    captured.replay("run1")
    captured.replay("run2_resume")
    first, second = captured.lines()
    assert first.session == second.session != ""
    assert first.response != second.response
    assert "dddd0000" not in captured.log.read_text()


def test_every_run_has_a_boot_of_its_own_that_counts_from_one(captured: Captured) -> None:
    captured.run("sh", "-c", f"cat {RUNS}/run1.ndjson {RUNS}/run2_resume.ndjson")
    captured.replay("run1")
    ids = [(line.boot, line.seq) for line in captured.lines()]
    assert [seq for _, seq in ids] == [1, 2, 1]
    assert ids[0][0] == ids[1][0] < ids[2][0]


def test_input_and_errors_are_the_commands_own(captured: Captured) -> None:
    done = captured.run("sh", "-c", "cat; echo trouble >&2; exit 5", input=b"a\x00b\xff")
    assert (done.stdout, done.stderr, done.returncode) == (b"a\x00b\xff", b"trouble\n", 5)
    assert captured.lines() == []


def test_arguments_are_the_commands_own(captured: Captured) -> None:
    code = "import sys; print(sys.argv[1:])"
    done = captured.run(sys.executable, "-c", code, "--help", "--", "--runtime", "x")
    assert done.stdout.decode() == "['--help', '--', '--runtime', 'x']\n"


def test_a_command_killed_by_a_signal_is_told_as_a_shell_tells_it(captured: Captured) -> None:
    assert captured.run("sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize(("command", "status"), [("no-such-command-here", 127), ("/etc", 126)])
def test_a_command_that_cannot_run_has_the_usual_status(captured: Captured, command: str, status: int) -> None:
    done = captured.run(command)
    assert (done.returncode, done.stdout) == (status, b"")
    assert command.encode() in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_command_and_a_cut_turn_has_a_line(captured: Captured, number: int) -> None:
    process = captured.start("sh", "-c", f"head -1 {RUNS}/run1.ndjson; exec sleep 60")
    assert process.stdout
    process.stdout.readline()
    process.send_signal(number)
    assert process.wait(10) == 128 + number
    process.stdout.close()
    (line,) = captured.lines()
    assert (line.outcome, line.usage, line.tokens.known) == ("interrupted", "missing", False)


def test_a_command_that_handles_a_signal_goes_on(captured: Captured) -> None:
    process = captured.start("sh", "-c", "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    assert (process.stdout.read(), process.wait(10)) == (b"caught\n", 9)
    process.stdout.close()


def test_a_failed_turn_is_told(captured: Captured) -> None:
    record = '{"type":"result","subtype":"error","is_error":true,"session_id":"s","request_id":"r"}'
    captured.run("sh", "-c", f"echo '{record}'; exit 1")
    captured.replay("../cursor_cli/run1", "true")
    captured.run("sh", "-c", f"head -1 {RUNS}/run1.ndjson; exit 1")
    assert [line.outcome for line in captured.lines()] == ["failed", "completed", "failed"]


def test_a_reader_that_hangs_up_is_the_commands_to_notice(captured: Captured) -> None:
    process = captured.start("sh", "-c", "while echo y; do :; done; exit 7")
    assert process.stdout
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(10) in (7, 128 + signal.SIGPIPE)


def test_a_daemon_left_behind_does_not_hold_us(captured: Captured) -> None:
    began = time.monotonic()
    assert captured.run("sh", "-c", "sleep 5 2>/dev/null & echo done").stdout == b"done\n"
    assert time.monotonic() - began < 4


def test_the_model_asked_for_stands_where_no_record_names_one(captured: Captured) -> None:
    result = '{"type":"result","session_id":"s","usage":{"inputTokens":1,"outputTokens":1}}'
    captured.run("sh", "-c", f"echo '{result}'", "cursor-agent", "--model", "gpt-5.2")
    captured.run("sh", "-c", f"echo '{result}'", "cursor-agent", "--model=sonnet-4.5")
    assert [line.model for line in captured.lines()] == ["gpt-5.2", "sonnet-4.5"]


def test_nothing_of_what_was_said_is_kept(captured: Captured) -> None:
    said = re.compile(rb'": ?"(?!init|result|system|success)')
    soiled = said.sub(rb'": "Kanarienvogel says ', (RUNS / "run1.ndjson").read_bytes())
    output = captured.home / "soiled.ndjson"
    output.write_bytes(soiled)
    words = ("sh", "--api-key=Kanarienvogel", "--model", "Kanarienvogel says")
    done = captured.run("sh", "-c", f"cat {output}; cat {output} >&2; head -1 {output}", *words)
    assert done.stdout.startswith(soiled)
    assert [(line.model, line.tokens.total) for line in captured.lines()] == [(None, 12120), (None, None)]
    kept = [path for path in captured.home.parent.rglob("*") if path.is_file() and path != output]
    assert b"kanarienvogel" not in b"".join(path.read_bytes() for path in kept).lower()


class TestWhereLinesGo:
    def test_without_a_log_nothing_is_metered(self, captured: Captured) -> None:
        del captured.environ["VM_USAGE_LOG"]
        assert captured.replay("run1").returncode == 0
        assert list(captured.home.iterdir()) == []

    def test_a_log_that_cannot_be_written_is_replaced_by_the_users_own(self, captured: Captured) -> None:
        captured.log.mkdir()
        assert captured.replay("run1").stderr == b""
        (own,) = [log for log in capture_logs([captured.home], captured.environ) if log.exists()]
        assert own == captured.home / ".local/state/vm-usage/capture.jsonl"
        assert [line.seq for line in captured.lines(own)] == [1]

    def test_a_log_in_a_folder_that_is_closed_to_the_user_is_replaced_too(self, captured: Captured) -> None:
        captured.log.parent.joinpath("closed").mkdir(mode=0)
        environ = captured.environ | {"VM_USAGE_LOG": str(captured.log.parent / "closed/usage.jsonl")}
        argv = [*bound_by_modes(), *CAPTURE, "--runtime", "cursor", "--", "cat", str(RUNS / "run1.ndjson")]
        done = subprocess.run(argv, env=environ, capture_output=True, timeout=30)
        assert (done.returncode, done.stderr, done.stdout) == (0, b"", (RUNS / "run1.ndjson").read_bytes())
        assert [line.seq for line in captured.lines(captured.home / ".local/state/vm-usage/capture.jsonl")] == [1]

    def test_a_home_that_cannot_be_written_is_said_and_the_command_runs(self, captured: Captured) -> None:
        captured.environ["HOME"] = captured.environ["XDG_STATE_HOME"] = "/proc/1"
        done = captured.replay("run1")
        assert (done.returncode, done.stdout) == (0, (RUNS / "run1.ndjson").read_bytes())
        assert b"not metered" in done.stderr

    def test_narrowing_the_allowlist_stops_it(self, captured: Captured) -> None:
        captured.environ["VM_USAGE_ALLOW"] = "picoclaw"
        captured.replay("run1")
        assert captured.lines() == []

    def test_wrong_configuration_is_said_and_the_command_runs(self, captured: Captured) -> None:
        captured.environ["VM_USAGE_LOGG"] = "x"
        done = captured.replay("run1")
        assert (done.returncode, done.stdout) == (0, (RUNS / "run1.ndjson").read_bytes())
        assert b"VM_USAGE_LOG?" in done.stderr

    def test_a_runtime_without_readable_output_is_refused(self, captured: Captured) -> None:
        argv = [*CAPTURE, "--runtime", "picoclaw", "--", "true"]
        assert subprocess.run(argv, env=captured.environ, capture_output=True, timeout=30).returncode == 2

    def test_the_key_is_the_users_own(self, captured: Captured) -> None:
        captured.replay("run1")
        key = captured.home / ".local/state/vm-usage/reference.key"
        assert key.stat().st_mode & 0o777 == 0o600

    @pytest.mark.skipif(os.geteuid() != 0, reason="root alone could make files in folders of others")
    def test_root_makes_no_log_in_a_folder_of_another_user(self, tmp_path: Path) -> None:
        os.chown(tmp_path, 65534, -1)
        assert not may_write(tmp_path / "usage.jsonl")
        (tmp_path / "usage.jsonl").touch()
        assert may_write(tmp_path / "usage.jsonl")


def on_a_terminal(argv: list[str], environ: dict[str, str], keys: bytes = b"") -> tuple[bytes, int]:
    """What a terminal shows of ``argv``, and its exit status. ``keys`` are typed after the first output."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(argv[0], argv, environ)
    shown, deadline = b"", time.monotonic() + 20
    while time.monotonic() < deadline and select.select([terminal], [], [], 1)[0] is not None:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        shown += data
        if keys and data:
            os.write(terminal, keys)
            keys = b""
    os.close(terminal)
    return shown, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
class TestOnATerminal:
    def capture(self, captured: Captured, *command: str, keys: bytes = b"") -> tuple[bytes, int]:
        return on_a_terminal([*CAPTURE, "--runtime", "cursor", "--", *command], captured.environ, keys)

    def test_the_command_has_a_terminal_too(self, captured: Captured) -> None:
        code = "import os; print([os.isatty(fd) for fd in (0, 1, 2)], os.getpgrp() == os.tcgetpgrp(0))"
        assert self.capture(captured, sys.executable, "-c", code) == (b"[True, True, True] True\r\n", 0)

    def test_keys_reach_the_command(self, captured: Captured) -> None:
        shown, status = self.capture(captured, "sh", "-c", "echo ready; read word; echo got $word", keys=b"hello\r")
        assert shown.endswith(b"got hello\r\n")
        assert status == 0

    def test_interrupt_from_the_keyboard_reaches_the_command_once(self, captured: Captured) -> None:
        script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"
        shown, status = self.capture(captured, "sh", "-c", script, keys=b"\x03")
        assert (shown.count(b"caught"), status) == (1, 9)

    def test_records_on_a_terminal_are_read(self, captured: Captured) -> None:
        shown, _ = self.capture(captured, "cat", str(RUNS / "run1.ndjson"))
        assert shown == (RUNS / "run1.ndjson").read_bytes().replace(b"\n", b"\r\n")
        assert [line.tokens.total for line in captured.lines()] == [12120]
