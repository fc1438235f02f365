"""Where files live when nobody says otherwise (CONTRACTS 1)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ETC: Final = Path("/etc/vm-usage")
SHIPPED_ALLOWLIST: Final = Path(__file__).with_name("allowlist.yaml")
CHECKOUT_ALLOWLIST: Final = Path(__file__).parent.parent / "allowlist.yaml"


def state_folder(environ: Mapping[str, str]) -> Path:
    """The state folder: ``VM_USAGE_STATE``, else systemd's ``STATE_DIRECTORY``, else root's or the user's own."""
    if given := environ.get("VM_USAGE_STATE") or environ.get("STATE_DIRECTORY"):
        return Path(given)
    if xdg := environ.get("XDG_STATE_HOME"):
        return Path(xdg) / "vm-usage"
    if os.geteuid() == 0:
        return Path("/var/lib/vm-usage")
    return Path(environ.get("HOME") or Path.home()) / ".local/state/vm-usage"


def allowlist_file(environ: Mapping[str, str]) -> Path:
    """The allowlist in force: ``VM_USAGE_ALLOWLIST``, else the one in /etc, else the one shipped with the program."""
    if given := environ.get("VM_USAGE_ALLOWLIST"):
        return Path(given)
    if (ETC / "allowlist.yaml").exists():
        return ETC / "allowlist.yaml"
    return SHIPPED_ALLOWLIST if SHIPPED_ALLOWLIST.exists() else CHECKOUT_ALLOWLIST
