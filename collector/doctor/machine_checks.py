"""Allowlist, permissions, clock and disk of this machine."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from collector.doctor import NOTE, OK, WRONG, Finding, Ward
from shim.allowlist import load
from shim.identity import KEY_FILE, existing_key
from shim.names import ConfigError

LEAST_FREE: Final = 0.05
FUTURE_SECONDS: Final = 300


def allowlist(ward: Ward) -> Iterator[Finding]:
    """Whether the allowlist in force is valid, and what it meters."""
    try:
        found = load(ward.settings.allowlist, ward.settings.allow)
    except ConfigError as error:
        yield Finding("allowlist", WRONG, str(error), f"$EDITOR {ward.settings.allowlist}; usage-shim check")
        return
    yield Finding("allowlist", OK, f"{ward.settings.allowlist} meters {', '.join(sorted(found.metered)) or 'nothing'}")


def permissions(ward: Ward) -> Iterator[Finding]:
    """Whether log, key and ledger can be used by us and by nobody else."""
    settings = ward.settings
    if settings.log and settings.log.exists():
        yield from _readable(settings.log, "usermod -aG vm-usage $USER")
        yield from _private(settings.log)
    key = settings.state / KEY_FILE
    if key.exists() and existing_key(settings.state) is None:
        yield Finding(
            "permissions", NOTE, f"{key} cannot be read here: twins are found by numbers alone", f"ls -l {key}"
        )
    for path in (key, settings.db):
        if path.exists():
            yield from _private(path)
    folder = settings.db.parent
    if not os.access(folder if folder.exists() else folder.parent, os.W_OK):
        yield Finding(
            "permissions", WRONG, f"{folder} cannot be written here, so nothing is ingested", f"ls -ld {folder}"
        )


def _readable(path: Path, mend: str) -> Iterator[Finding]:
    if os.access(path, os.R_OK):
        yield Finding("permissions", OK, f"{path} can be read")
    else:
        yield Finding("permissions", WRONG, f"{path} cannot be read here", mend)


def _private(path: Path) -> Iterator[Finding]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if mode & 0o007:
        yield Finding("permissions", WRONG, f"{path} is open to every user ({mode:04o})", f"chmod o-rwx {path}")


def clock(ward: Ward) -> Iterator[Finding]:
    """Whether the ledger holds calls from the future, which a clock that was set back leaves behind."""
    if ward.query is None:
        return
    latest = max((seen.last_ms or 0 for seen in ward.query.ledger.seen("vm")), default=0) / 1000
    if latest > ward.now + FUTURE_SECONDS:
        ahead = int(latest - ward.now)
        yield Finding(
            "clock", WRONG, f"the last call is {ahead} s in the future: the clock was set back", "timedatectl"
        )
    else:
        yield Finding("clock", OK, "no call is in the future")


def disk(ward: Ward) -> Iterator[Finding]:
    """Whether log and ledger have room to grow."""
    folders = {path.parent for path in (ward.settings.log, ward.settings.db) if path is not None}
    for folder in sorted(folders):
        if not folder.exists():
            continue
        usage = shutil.disk_usage(folder)
        free = usage.free / usage.total
        text = f"{folder}: {usage.free / 2**30:.1f} GiB free ({free:.0%})"
        if free < LEAST_FREE:
            yield Finding("disk", WRONG, text, f"du -xh --max-depth=1 {folder} | sort -h | tail")
        else:
            yield Finding("disk", OK, text)


CHECKS: Final = (("allowlist", allowlist), ("permissions", permissions), ("clock", clock), ("disk", disk))
