"""The shim's configuration: one frozen object, built once from an environment.

``Settings.from_env`` checks every value and says in one sentence what is wrong with it. Nothing else of the shim reads
the environment, except the proxy variables (``shim.proxies``) and what systemd passes (``shim.notify``).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shim import places
from shim.line import NAME
from shim.names import ConfigError, resolve, upstream_urls
from shim.upstreams import Upstream, known_upstreams

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOOPBACK_BINDS: Final = ("127.0.0.1", "::1", "localhost")
SECRET: Final = re.compile(rb"[A-Za-z0-9._~-]{16,256}")
HOST_ENTRY: Final = re.compile(r"[A-Za-z0-9._-]+(?::\d{1,5})?|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the shim runs with.

    ``log``: the usage log, ``None`` forwards and meters nothing. ``runtime``: the runtime of URLs that name none.
    ``allowed_hosts``: extra Host values, lower case. ``tunnel_secret_file``: holds what a call for one must carry.
    ``drain_seconds``: how long calls in flight may go on after SIGTERM. ``upstreams``: name to upstream.
    """

    log: Path | None
    runtime: str | None
    allow: str | None
    allowlist: Path
    state: Path
    upstreams: Mapping[str, Upstream]
    vm: str | None = None
    bind: str = "127.0.0.1"
    port: int = 4141
    allowed_hosts: frozenset[str] = frozenset()
    tunnel_secret_file: Path | None = None
    workers: int = 1
    drain_seconds: float = 20.0
    fingerprint: bool = True
    ca_file: Path | None = None
    log_level: str = "info"

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read and check ``VM_USAGE_*``. Raises ``ConfigError`` with one sentence naming the variable."""
        values = resolve(environ)
        # The places know systemd's and the user's own folders too, which are not ours to rename.
        around = {**{k: v for k, v in environ.items() if k in ("STATE_DIRECTORY", "XDG_STATE_HOME", "HOME")}, **values}
        hosts = _hosts(values.get("VM_USAGE_ALLOWED_HOSTS", ""))
        return cls(
            log=Path(values["VM_USAGE_LOG"]) if "VM_USAGE_LOG" in values else None,
            runtime=_name(values, "VM_USAGE_RUNTIME"),
            allow=values.get("VM_USAGE_ALLOW"),
            allowlist=places.allowlist_file(around),
            state=places.state_folder(around),
            upstreams=known_upstreams(upstream_urls(values)),
            vm=_name(values, "VM_USAGE_VM"),
            bind=_bind(values.get("VM_USAGE_SHIM_BIND", "127.0.0.1"), hosts),
            port=_integer(values, "VM_USAGE_SHIM_PORT", 4141, 1, 65535),
            allowed_hosts=hosts,
            tunnel_secret_file=_secret_file(values.get("VM_USAGE_TUNNEL_SECRET_FILE")),
            workers=_integer(values, "VM_USAGE_WORKERS", 1, 1, 64),
            drain_seconds=_seconds(values, "VM_USAGE_DRAIN_SECONDS", 20.0),
            fingerprint=_one_of(values, "VM_USAGE_FINGERPRINT", ("on", "off"), "on") == "on",
            ca_file=_readable(values, "VM_USAGE_CA_FILE"),
            log_level=_one_of(values, "VM_USAGE_LOG_LEVEL", LOG_LEVELS, "info"),
        )


def _integer(values: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise ConfigError(f"{name} is {text!r}: give a whole number from {low} to {high}.")
    return int(text)


def _seconds(values: Mapping[str, str], name: str, default: float) -> float:
    text = values.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,5}(\.\d{1,3})?", text):
        raise ConfigError(f"{name} is {text!r}: give seconds, such as 20.")
    return float(text)


def _one_of(values: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    text = values.get(name, default).lower()
    if text not in choices:
        raise ConfigError(f"{name} is {text!r}: give one of {', '.join(choices)}.")
    return text


def _name(values: Mapping[str, str], name: str) -> str | None:
    text = values.get(name)
    if text is not None and not NAME.fullmatch(text):
        raise ConfigError(f"{name} is {text!r}: give up to 64 letters, digits and _ . : -")
    return text


def _hosts(text: str) -> frozenset[str]:
    hosts = [host.strip().lower() for host in text.split(",") if host.strip()]
    for host in hosts:
        if not HOST_ENTRY.fullmatch(host):
            raise ConfigError(f"VM_USAGE_ALLOWED_HOSTS has {host!r}: give host names, each with or without a port.")
    return frozenset(hosts)


def _bind(address: str, hosts: frozenset[str]) -> str:
    if address not in LOOPBACK_BINDS and not hosts:
        raise ConfigError(
            f"VM_USAGE_SHIM_BIND is {address!r}, which is not loopback: name in VM_USAGE_ALLOWED_HOSTS who may call."
        )
    return address


def _readable(values: Mapping[str, str], name: str) -> Path | None:
    if name not in values:
        return None
    path = Path(values[name])
    try:
        path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read ({error.strerror}); mend it or unset {name}.") from error
    return path


def _secret_file(text: str | None) -> Path | None:
    if text is None:
        return None
    read_secret(Path(text))
    return Path(text)


def read_secret(path: Path) -> bytes:
    """The tunnel's secret. Only its owner may be able to read the file, as with an SSH key. Raises ``ConfigError``."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(4096).strip()
    except OSError as error:
        raise ConfigError(f"VM_USAGE_TUNNEL_SECRET_FILE: {path} cannot be read ({error.strerror}).") from error
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"VM_USAGE_TUNNEL_SECRET_FILE: {path} can be read by others: chmod 600 it.")
    if not SECRET.fullmatch(secret):
        raise ConfigError(f"VM_USAGE_TUNNEL_SECRET_FILE: {path} must hold 16 to 256 letters, digits and . _ ~ -")
    return secret
