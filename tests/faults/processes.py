"""Shims that are started in a way of their own: sabotaged, without root's powers, or handed a socket."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.programs import Shim, clean_environment, free_port, wait_until_healthy
from tests.faults.upstream import Upstream


def spawn(
    folder: Path, command: Sequence[str | Path], upstream: Upstream, port: int, fds: Sequence[int] = (), **settings: str
) -> Shim:
    """A shim over ``folder`` that ``command`` starts; ``fds``: descriptors it inherits."""
    log = folder / "usage.jsonl"
    given = {"VM_USAGE_LOG": str(log), "VM_USAGE_SHIM_PORT": str(port), "VM_USAGE_UPSTREAM_OPENAI": upstream.url}
    environ = clean_environment(folder, **given | settings)
    with (folder / "shim.err").open("ab") as err:
        process = subprocess.Popen(command, env=environ, pass_fds=fds, stderr=err)
    return Shim(f"http://127.0.0.1:{port}", Path(environ["VM_USAGE_LOG"]), process, environ)


def wait_for(shim: Shim, folder: Path) -> None:
    """Until it answers."""
    wait_until_healthy(shim.process, shim.url + "/-/healthz", folder / "shim.err")


@contextmanager
def started_by(folder: Path, command: Sequence[str | Path], upstream: Upstream, **settings: str) -> Iterator[Shim]:
    """A shim that ``command`` starts, until the block ends."""
    shim = spawn(folder, command, upstream, free_port(), **settings)
    try:
        wait_for(shim, folder)
        yield shim
    finally:
        shim.process.kill()
        shim.process.wait(10)
