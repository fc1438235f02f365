"""``usage-shim capture --runtime cursor -- CMD …``: usage lines for a runtime that only its own output knows.

Cursor's CLI talks to Cursor's servers in its own protocol, which no base URL can meter, but prints each turn's usage.
This runs the command untouched and writes one line per ``result`` record, and one for a turn that was cut off.

It runs as the agent's user, who can neither write the shim's log nor read its key. A line goes to ``VM_USAGE_LOG``
where this user may write there, else to the user's own log (``places.capture_logs``), which the collector follows; key
and references are the user's own too. Each run is a boot of its own, so its numbers are gap-checked as the shim's are.
``VM_USAGE_LOG`` unset meters nothing, as everywhere. Whatever is wrong with the metering, the command runs and its exit
status is ours.
"""

from __future__ import annotations

import functools
import io
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import click

from shim import allowlist, passthrough
from shim.counters import Counters
from shim.cursor_cli import CursorOutput, Turn
from shim.identity import load_key, reference, vm_name
from shim.ids import Boot
from shim.inflight import Inflight
from shim.line import Line, model_or_none
from shim.log import event_log
from shim.names import ConfigError, resolve
from shim.places import CAPTURE_LOG, allowlist_file, user_state_folder
from shim.sink import Sink

WIRE: Final = "cursor-cli"
UPSTREAM: Final = "cursor"
# Options of cursor-agent that name a model: what was asked for, where no record says what was used.
MODEL_OPTIONS: Final = ("--model", "-m")


class Output(Protocol):
    """Standard output of a runtime's CLI, read for its turns; never raises on input."""

    def feed(self, data: bytes) -> list[Turn]: ...
    def finish(self) -> list[Turn]: ...


OUTPUTS: Final[Mapping[str, type[Output]]] = {"cursor": CursorOutput}


def capture(runtime: str, command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run ``command``, write its turns as lines, return its exit status.

    Raises ``ConfigError`` for a runtime whose output is not known; any other fault of the configuration is one
    sentence on standard error, and the command runs unmetered.
    """
    if runtime not in OUTPUTS:
        raise ConfigError(f"the output of {runtime} is not known: capture works for {', '.join(OUTPUTS)}.")
    try:
        meter = Meter.from_env(runtime, command, environ)
    except Exception as error:
        print(f"usage-shim capture: not metered: {error}", file=sys.stderr)
        meter = None
    status = passthrough.run(command, environ, meter.observe if meter else lambda data: None)
    if meter:
        meter.end(status)
    return status


class Meter:
    """Writes the turns of one run. ``logs``: where lines may go; the first that can be written gets them."""

    def __init__(self, runtime: str, logs: Sequence[Path], key: bytes, vm: str, asked_model: str | None) -> None:
        self._runtime = runtime
        self._logs = [log for log in logs if may_write(log)]
        self._key = key
        self._vm = vm
        self._asked_model = asked_model
        self._output: Output | None = OUTPUTS[runtime]()
        self._sink: Sink | None = None
        self._began = time.time()
        self.lost = 0

    @classmethod
    def from_env(cls, runtime: str, command: Sequence[str], environ: Mapping[str, str]) -> Meter | None:
        """The meter that the environment asks for, ``None`` where it asks for none (no log, not allowed).

        Raises ``ConfigError``.
        """
        settings = resolve(environ)
        around = {**environ, **settings}
        if "VM_USAGE_LOG" not in settings:
            return None
        if not allowlist.load(allowlist_file(around), settings.get("VM_USAGE_ALLOW")).allows(runtime):
            return None
        state = user_state_folder(around)
        logs = (Path(settings["VM_USAGE_LOG"]), state / CAPTURE_LOG)
        return cls(runtime, logs, load_key(state), vm_name(settings, state), _asked_model(command))

    def observe(self, data: bytes) -> None:
        """Look at output on its way. Never raises: a fault ends the metering of this run, not the run."""
        if self._output is not None:
            self._take(functools.partial(self._output.feed, data), 0)

    def end(self, status: int) -> None:
        """Write what is left and say what was lost. ``status``: how the command ended, as a shell says it."""
        if self._output is not None:
            self._take(self._output.finish, status)
        if self._sink is not None:
            self.lost += self._sink.close()
        if self.lost:
            print(f"usage-shim capture: {self.lost} usage lines could not be written.", file=sys.stderr)

    def _take(self, turns: Callable[[], Sequence[Turn]], status: int) -> None:
        try:
            self._write(turns(), status)
        except Exception:
            self._output = None
            self.lost += 1

    def _write(self, turns: Sequence[Turn], status: int) -> None:
        for turn in turns:
            line = self._line(turn, status)
            self._began = time.time()
            while not self._append(line):
                if not self._logs:
                    self.lost += 1
                    break

    def _append(self, line: Line) -> bool:
        """Whether the line is in a log; the next log is tried where this one refuses."""
        if self._sink is None:
            if not self._logs:
                return False
            boot, counters = Boot(), Counters()
            # Standard error is the command's: what the sink would log is said once, at the end.
            silent = event_log("error", io.StringIO())
            self._sink = Sink(self._logs.pop(0), boot, Inflight(None, boot, counters), counters, silent)
        self._sink.append(line)
        if self._sink.waiting:
            self._sink = None  # its boot goes with it: the line gets a new id in the next log
            return False
        return True

    def _line(self, turn: Turn, status: int) -> Line:
        session = reference(self._key, "session", turn.session_id) if turn.session_id else None
        outcome = turn.outcome or ("failed" if 0 < status < 128 else "interrupted")
        duration = turn.duration_ms if turn.outcome else round((time.time() - self._began) * 1000)
        return Line(
            id="",
            ts=self._began,
            vm=self._vm,
            runtime=self._runtime,
            upstream=UPSTREAM,
            wire=WIRE,
            model=turn.model or self._asked_model,
            session=session or reference(self._key, "gap", f"{os.getpid()} {self._began}"),
            session_source="body" if session else "gap",
            response=reference(self._key, "response", turn.request_id) if turn.request_id else None,
            tokens=turn.tokens,
            usage=turn.usage,
            outcome=outcome,
            stream=turn.streamed,
            duration_ms=duration,
        )


def may_write(log: Path) -> bool:
    """Whether this user may append to ``log``, or make it in a folder of theirs.

    Root could make it anywhere, but the shim's user could not write a log that root made in its folder.
    """
    try:
        if log.exists():
            return os.access(log, os.W_OK)
        folder = next((parent for parent in log.absolute().parents if parent.exists()), Path("/"))
        return os.access(folder, os.W_OK | os.X_OK) and (os.geteuid() != 0 or folder.stat().st_uid == 0)
    except PermissionError:  # the folder is not even theirs to look into, as the shim's is not
        return False


def _asked_model(command: Sequence[str]) -> str | None:
    """The model that the command line asks for."""
    for index, word in enumerate(command):
        option, given, value = word.partition("=")
        if option in MODEL_OPTIONS:
            return model_or_none(value if given else next(iter(command[index + 1 :]), None))
    return None


@click.command(
    "capture",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a command and write a line for each turn that its output reports.",
)
@click.option("--runtime", required=True, type=click.Choice(sorted(OUTPUTS)), help="Whose output it is.")
@click.argument("argv", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(runtime: str, argv: tuple[str, ...]) -> None:
    """Run COMMAND with its streams untouched and write one usage line per result record. Its exit status is ours."""
    sys.exit(capture(runtime, argv, os.environ))
