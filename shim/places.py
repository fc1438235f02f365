"""Where files live when nobody says otherwise (CONTRACTS 1)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ETC: Final = Path("/etc/vm-usage")
SHIPPED_ALLOWLIST: Final = Path(__file__).with_name("allowlist.yaml")
CHECKOUT_ALLOWLIST: Final = Path(__file__).parent.parent / "allowlist.yaml"
CAPTURE_LOG: Final = "capture.jsonl"
USER_STATE: Final = Path(".local/state/vm-usage")


def state_folder(environ: Mapping[str, str]) -> Path:
    """The state folder: ``VM_USAGE_STATE``, else systemd's ``STATE_DIRECTORY``, else root's or the user's own."""
    if given := environ.get("VM_USAGE_STATE") or environ.get("STATE_DIRECTORY"):
        return Path(given)
    if xdg := environ.get("XDG_STATE_HOME"):
        return Path(xdg) / "vm-usage"
    if os.geteuid() == 0:
        return Path("/var/lib/vm-usage")
    return Path(environ.get("HOME") or Path.home()) / USER_STATE


def user_state_folder(environ: Mapping[str, str]) -> Path:
    """Where ``usage-shim capture`` keeps a user's key and log: ``VM_USAGE_STATE`` if this user owns it, else their own.

    Root has one in its home too: what root makes in /var/lib/vm-usage the shim's user could not read.
    """
    given = environ.get("VM_USAGE_STATE")
    if given and os.path.isdir(given) and os.stat(given).st_uid == os.geteuid() and os.access(given, os.W_OK):
        return Path(given)
    if xdg := environ.get("XDG_STATE_HOME"):
        return Path(xdg) / "vm-usage"
    return Path(environ.get("HOME") or Path.home()) / USER_STATE


def capture_logs(homes: Iterable[Path], environ: Mapping[str, str]) -> list[Path]:
    """Where captured lines of the users of ``homes`` may be, whether or not the files exist; without repeats.

    ``capture.jsonl`` in ``~/.local/state/vm-usage`` of every home and, for the user who asks, in the state folder of
    ``environ``. Lines here are written by agents' users: only wires that are captured (``cursor-cli``) may count.
    """
    folders = [home / USER_STATE for home in homes] + [state_folder(environ), user_state_folder(environ)]
    return list(dict.fromkeys(folder / CAPTURE_LOG for folder in folders))


def allowlist_file(environ: Mapping[str, str]) -> Path:
    """The allowlist in force: ``VM_USAGE_ALLOWLIST``, else the one in /etc, else the one shipped with the program."""
    if given := environ.get("VM_USAGE_ALLOWLIST"):
        return Path(given)
    if (ETC / "allowlist.yaml").exists():
        return ETC / "allowlist.yaml"
    return SHIPPED_ALLOWLIST if SHIPPED_ALLOWLIST.exists() else CHECKOUT_ALLOWLIST
