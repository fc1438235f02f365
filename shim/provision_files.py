"""The files that provisioning writes: the config, what was changed in it, its backup, and new upstreams.

Every write is a whole new file put in place of the old one, with the old one's owner and mode, so PicoClaw never reads
half a config. What was changed is kept beside the config (``config.json.vm-usage.json``), so that it can be taken back
even after others have edited the file; the backup is the file as it was before the first change.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from shim.names import UPSTREAM_NAME, UPSTREAM_PREFIX, ConfigError, upstream_urls
from shim.places import ETC, user_state_folder

RECORD_SUFFIX: Final = ".vm-usage.json"
BACKUP_SUFFIX: Final = ".before-vm-usage"
RECORD_VERSION: Final = 1
UPSTREAMS_FILE: Final = "upstreams.env"
UPSTREAMS_HEAD: Final = (
    "# Upstreams found by usage-shim provision, read by usage-shim.service: restart it after a change.\n"
)


@dataclass(frozen=True, slots=True)
class Made:
    """One change to an entry. ``now``: our api_base. ``was``: the JSON text it replaced, ``None`` where there was none.

    ``inserted``: the whole text that was put in where there was none.
    """

    model_name: str
    now: str
    was: str | None
    inserted: str | None = None


def read_text(path: Path) -> str:
    """The text of a config. Raises ``ConfigError`` where there is none to read."""
    try:
        return path.read_bytes().decode("utf-8")  # as it is: no newline is to change
    except FileNotFoundError as error:
        raise ConfigError(f"there is no PicoClaw config at {path}: name it with --config.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error


def replace(path: Path, text: str, mode: int = 0o600) -> None:
    """Put ``text`` at ``path`` whole; an existing file keeps its owner and mode, a link stays a link.

    Raises ``ConfigError`` where that is not allowed.
    """
    path = path.resolve()
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        old = path.stat() if path.exists() else None
        owner = old or path.parent.stat()
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        if os.geteuid() == 0:
            os.chown(draft, owner.st_uid, owner.st_gid)
        draft.chmod(old.st_mode & 0o777 if old else mode)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written ({error.strerror}).") from error


def record_path(config: Path) -> Path:
    """Where the changes made to a config are kept."""
    return config.with_name(config.name + RECORD_SUFFIX)


def backup_path(config: Path) -> Path:
    """Where a config is kept as it was before the first change."""
    return config.with_name(config.name + BACKUP_SUFFIX)


def read_record(config: Path) -> list[Made]:
    """The changes that are in force; empty where none are known."""
    try:
        data = json.loads(record_path(config).read_text(encoding="utf-8"))
        return [Made(**made) for made in data["changes"]] if data["version"] == RECORD_VERSION else []
    except (OSError, ValueError, TypeError, KeyError):
        return []  # without a record, a base URL is worked out from the upstream's name


def write_record(config: Path, made: list[Made]) -> None:
    """Keep the changes that are in force. Raises ``ConfigError``."""
    data = {"version": RECORD_VERSION, "changes": [asdict(change) for change in made]}
    replace(record_path(config), json.dumps(data, indent=2) + "\n")


def default_upstreams_env(environ: Mapping[str, str]) -> Path:
    """Where new upstreams are written: in /etc for whoever may write there, else in the user's state folder."""
    if os.geteuid() == 0 or os.access(ETC, os.W_OK):
        return ETC / UPSTREAMS_FILE
    return user_state_folder(environ) / UPSTREAMS_FILE


def known_upstreams(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Upstreams that an operator or an earlier run gave, by name as in URLs."""
    variables = dict(_variables(path))
    variables |= {name: value for name, value in environ.items() if UPSTREAM_NAME.fullmatch(name) and value}
    return upstream_urls(variables)


def add_upstreams(path: Path, new: Mapping[str, str]) -> None:
    """Add upstreams (name to base URL) to the file, leaving what is there. Raises ``ConfigError``."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        old = path.read_text(encoding="utf-8") if path.exists() else UPSTREAMS_HEAD
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}): give another --upstreams-env.") from error
    lines = [f"{UPSTREAM_PREFIX}{name.upper().replace('-', '_')}={base}\n" for name, base in sorted(new.items())]
    replace(path, old if not lines else old.rstrip("\n") + "\n" + "".join(lines), mode=0o644)


def _variables(path: Path) -> list[tuple[str, str]]:
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, given, value = line.strip().partition("=")
        if given and UPSTREAM_NAME.fullmatch(name):
            found.append((name, value.strip().strip("'\"")))
    return found
