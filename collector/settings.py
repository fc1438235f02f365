"""The collector's configuration: one frozen object, built once from an environment (names in ``shim.names``)."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import Final

from collector import windows
from shim.identity import vm_name
from shim.names import ConfigError, resolve, upstream_urls
from shim.places import ETC, allowlist_file, state_folder

FIRST_USER_ID: Final = 1000
NOBODY: Final = 65534
NO_SHELL: Final = ("nologin", "false")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the collector was told. ``log`` is ``None`` where no usage log is set; paths need not exist yet.

    ``environ`` is the environment as given: runtime readers look up their own overriding variables in it.
    """

    log: Path | None
    allow: str | None
    allowlist: Path
    vm: str
    state: Path
    db: Path
    zone: tzinfo
    homes: tuple[Path, ...]
    interval: float
    shim_port: int
    allowed_hosts: tuple[str, ...]
    api_bind: str
    api_port: int
    api_token_file: Path | None
    prices: Path
    acu_usd: str | None
    retention_days: int | None
    log_level: str
    upstream_urls: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read an environment. Raises ``ConfigError`` with a sentence that names the variable."""
        own = resolve(environ)
        state = state_folder(environ)
        return cls(
            log=_path(own, "VM_USAGE_LOG"),
            allow=own.get("VM_USAGE_ALLOW"),
            allowlist=allowlist_file(environ),
            vm=vm_name(own, state),
            state=state,
            db=_path(own, "VM_USAGE_DB") or state / "ledger.db",
            zone=windows.zone_from({**environ, **own}),
            homes=_homes(own.get("VM_USAGE_HOMES"), environ),
            interval=_number(own, "VM_USAGE_INTERVAL", 5.0, least=0.05),
            shim_port=_port(own, "VM_USAGE_SHIM_PORT", 4141),
            allowed_hosts=_names(own.get("VM_USAGE_ALLOWED_HOSTS")),
            api_bind=own.get("VM_USAGE_API_BIND", "127.0.0.1"),
            api_port=_port(own, "VM_USAGE_API_PORT", 8900),
            api_token_file=_path(own, "VM_USAGE_API_TOKEN_FILE"),
            prices=_path(own, "VM_USAGE_PRICES") or ETC / "prices.yaml",
            acu_usd=own.get("VM_USAGE_ACU_USD"),
            retention_days=_days(own),
            log_level=own.get("VM_USAGE_LOG_LEVEL", "info"),
            upstream_urls=upstream_urls(own),
            environ=dict(environ),
        )


def _path(own: Mapping[str, str], name: str) -> Path | None:
    return Path(own[name]) if name in own else None


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _number(own: Mapping[str, str], name: str, default: float, least: float) -> float:
    try:
        value = float(own.get(name, default))
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        raise ConfigError(f"{name} {own.get(name)!r} is not a number of at least {least:g}: mend it.")
    return value


def _port(own: Mapping[str, str], name: str, default: int) -> int:
    text = own.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise ConfigError(f"{name} {text!r} is not a port number from 0 to 65535: mend it.")
    return int(text)


def _days(own: Mapping[str, str]) -> int | None:
    if "VM_USAGE_RETENTION_DAYS" not in own:
        return None
    return int(_number(own, "VM_USAGE_RETENTION_DAYS", 0, least=1))


def _homes(text: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The homes named, else the user's own, else (as root) every home of a real user."""
    if text:
        return tuple(Path(part) for part in text.split(":") if part)
    if os.geteuid() == 0:
        return _real_homes(pwd.getpwall(), environ.get("HOME"))
    return (Path(environ.get("HOME") or Path.home()),)


def _real_homes(users: Sequence[pwd.struct_passwd], own: str | None) -> tuple[Path, ...]:
    """Root's own home and those of people and agents: accounts with a shell, from the first ordinary user id on."""
    found = [Path(own)] if own else []
    for user in users:
        real = user.pw_uid == 0 or FIRST_USER_ID <= user.pw_uid < NOBODY
        if real and not user.pw_shell.endswith(NO_SHELL):
            found.append(Path(user.pw_dir))
    return tuple(home for home in dict.fromkeys(found) if home.is_dir())
