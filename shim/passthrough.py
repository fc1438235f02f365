"""Runs a command as if nobody were between: its output is copied byte for byte and shown to an observer on the way.

Standard input and standard error stay the command's own. Standard output is a pipe, or a pseudo-terminal where ours is
a terminal; where standard input is one too, both are, in raw mode, so that keys, window size and job control reach the
command. Signals sent to us go on to it, but not those that the terminal has sent to the whole group anyway.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

FORWARDED: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
SI_KERNEL: Final = 0x80  # siginfo's si_code for signals that the terminal sends: <asm-generic/siginfo.h>
READ_BYTES: Final = 65536
# A daemon that the command left behind may hold the pipe open for ever; what is written already is still copied.
DRAIN_SECONDS: Final = 0.2
LONGEST_DRAIN_SECONDS: Final = 2.0
STDIN, STDOUT, STDERR = 0, 1, 2
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126


def run(command: Sequence[str], environ: Mapping[str, str], observe: Callable[[bytes], object]) -> int:
    """Run ``command`` to its end, show its output to ``observe``, and return its exit status (128+n for signal n).

    127 where there is no such command and 126 where it cannot be executed, with a sentence on standard error.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    try:
        with _output() as (ours, theirs, terminal):
            try:
                child = _spawn(command, environ, theirs, terminal)
            except OSError as error:
                return _not_run(command[0], error)
            os.close(theirs)
            keys = STDIN if terminal and os.isatty(STDIN) else None
            to = (child, ours if terminal else None, keys is not None)
            threading.Thread(target=_forward, args=to, daemon=True).start()
            with _raw(keys):
                status = _copy(child, ours, keys, observe)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


@contextlib.contextmanager
def _output() -> Iterator[tuple[int, int, bool]]:
    """Our end, the command's end, and whether they are a pseudo-terminal. Our end is closed afterwards."""
    terminal = os.isatty(STDOUT)
    ours, theirs = pty.openpty() if terminal else os.pipe()
    if terminal:
        mode = termios.tcgetattr(STDOUT)
        if not os.isatty(STDIN):
            mode[1] &= ~termios.OPOST  # our own terminal still turns newlines into what it shows
        termios.tcsetattr(theirs, termios.TCSANOW, mode)
        _copy_window_size(ours)
    try:
        yield ours, theirs, terminal
    finally:
        os.close(ours)


def _spawn(command: Sequence[str], environ: Mapping[str, str], output: int, terminal: bool) -> int:
    """Start the command with ``output`` as its standard output; its process id. Raises ``OSError``."""
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, output, STDOUT)]
    keys = terminal and os.isatty(STDIN)
    if keys:
        # Opened by the leader of a new session, the terminal becomes its controlling one.
        actions = [(os.POSIX_SPAWN_OPEN, STDIN, os.ttyname(output), os.O_RDWR, 0), (os.POSIX_SPAWN_DUP2, STDIN, STDOUT)]
        if os.isatty(STDERR):
            actions.append((os.POSIX_SPAWN_DUP2, STDIN, STDERR))
    return os.posix_spawnp(
        command[0],
        list(command),
        dict(environ),
        file_actions=actions,
        setsid=bool(keys),
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores these two; the command must not
    )


def _copy(child: int, ours: int, keys: int | None, observe: Callable[[bytes], object]) -> int:
    """Copy until the command has ended and its output is through; its wait status."""
    ended = os.pidfd_open(child)
    poll = select.poll()
    for fd in (ours, ended) if keys is None else (ours, ended, keys):
        poll.register(fd, select.POLLIN)
    status: int | None = None
    output, deadline = True, 0.0
    try:
        while status is None or (output and time.monotonic() < deadline):
            ready = {fd for fd, _ in poll.poll(None if status is None else DRAIN_SECONDS * 1000)}
            if not ready:
                break
            if keys in ready and not _pass_keys(keys, ours):
                poll.unregister(keys)
            if ours in ready and not _pass_output(ours, observe):
                poll.unregister(ours)
                output = False
            if ended in ready:
                poll.unregister(ended)
                status = os.waitpid(child, 0)[1]
                deadline = time.monotonic() + LONGEST_DRAIN_SECONDS
    finally:
        os.close(ended)
    assert status is not None
    return status


def _pass_output(ours: int, observe: Callable[[bytes], object]) -> bool:
    """Copy what there is; whether more can come."""
    try:
        data = os.read(ours, READ_BYTES)
    except OSError:  # a pseudo-terminal whose other side is closed gives EIO
        return False
    if not data:
        return False
    observe(data)
    try:
        _write(STDOUT, data)
    except BrokenPipeError:
        _hang_up(ours)
        return False
    return True


def _hang_up(ours: int) -> None:
    """Our reader is gone: let the command's next write fail, as it would have without us."""
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, ours, inheritable=False)
    os.close(nothing)


def _pass_keys(keys: int | None, ours: int) -> bool:
    """Copy what was typed; whether more can come."""
    assert keys is not None
    try:
        data = os.read(keys, READ_BYTES)
        _write(ours, data)
    except OSError:  # either terminal is gone
        return False
    return bool(data)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])


def _forward(child: int, terminal: int | None, own_session: bool) -> None:
    """Pass signals on for as long as the process lives: a daemon thread, the signals are blocked everywhere else.

    ``own_session``: the command has a session of its own, where signals of our terminal do not reach it.
    """
    while True:
        info = signal.sigwaitinfo(FORWARDED)
        if info.si_signo == signal.SIGWINCH and terminal is not None:
            with contextlib.suppress(OSError):
                _copy_window_size(terminal)
        elif own_session or info.si_code != SI_KERNEL:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, info.si_signo)


def _copy_window_size(terminal: int) -> None:
    size = fcntl.ioctl(STDOUT, termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _raw(keys: int | None) -> Iterator[None]:
    """Our terminal in raw mode while the command has the keys."""
    if keys is None:
        yield
        return
    mode = termios.tcgetattr(keys)
    tty.setraw(keys, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, mode)


def _not_run(name: str, error: OSError) -> int:
    missing = isinstance(error, FileNotFoundError)
    print(f"usage-shim: {name} cannot be run: {error.strerror}.", file=sys.stderr)
    return NOT_FOUND if missing else NOT_EXECUTABLE
