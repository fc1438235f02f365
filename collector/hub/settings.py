"""What an operator sets of push and hub (names in ``shim.names``), each as one frozen object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from shim.names import ConfigError, resolve
from shim.places import ETC

DEFAULT_RATE: Final = 2000


@dataclass(frozen=True, slots=True)
class PushSettings:
    """Where a VM pushes to. ``rate``: most records per second."""

    url: str
    token_file: Path
    ca_file: Path | None
    rate: int

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> PushSettings | None:
        """The push of an environment, ``None`` where no hub is set. Raises ``ConfigError``."""
        own = resolve(environ)
        url = own.get("VM_USAGE_HUB", "").rstrip("/")
        if not url:
            return None
        return cls(
            url=checked_url(url, "VM_USAGE_HUB"),
            token_file=Path(own.get("VM_USAGE_HUB_TOKEN_FILE", ETC / "hub.token")),
            ca_file=_path(own, "VM_USAGE_HUB_CA_FILE"),
            rate=_whole(own, "VM_USAGE_HUB_RATE", DEFAULT_RATE),
        )


@dataclass(frozen=True, slots=True)
class HubSettings:
    """How a hub serves and stores. ``cert`` and ``key``: for TLS on the hub itself, both or neither."""

    bind: str
    port: int
    cert: Path | None
    key: Path | None
    clickhouse: str | None
    password_file: Path | None
    cluster: str | None

    @property
    def embedded(self) -> bool:
        """Whether ClickHouse runs inside this process."""
        return self.clickhouse is not None and self.clickhouse.startswith("chdb:")

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> HubSettings:
        """The hub of an environment. Raises ``ConfigError``."""
        own = resolve(environ)
        cert, key = _path(own, "VM_USAGE_HUB_CERT"), _path(own, "VM_USAGE_HUB_KEY")
        if (cert is None) != (key is None):
            raise ConfigError("TLS needs both VM_USAGE_HUB_CERT and VM_USAGE_HUB_KEY: set the other one too.")
        return cls(
            bind=own.get("VM_USAGE_HUB_BIND", "127.0.0.1"),
            port=_whole(own, "VM_USAGE_HUB_PORT", 8901, least=0, most=65535),
            cert=cert,
            key=key,
            clickhouse=_checked_dsn(own.get("VM_USAGE_CLICKHOUSE")),
            password_file=_path(own, "VM_USAGE_CLICKHOUSE_PASSWORD_FILE"),
            cluster=own.get("VM_USAGE_CLICKHOUSE_CLUSTER"),
        )


def checked_url(url: str, name: str) -> str:
    """A hub's URL. Raises ``ConfigError`` for one that would send a token in clear over a network."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise ConfigError(f"{name} {url!r} is no URL: use https://HOST.") from None
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query:
        raise ConfigError(f"{name} {url!r} is no URL of a hub: use https://HOST.")
    if parts.scheme == "http" and not _is_loopback(host):
        raise ConfigError(f"{name} {url!r} would send the token in clear: use https://, http:// is for loopback.")
    return url


def _checked_dsn(dsn: str | None) -> str | None:
    """A ClickHouse DSN. Raises ``ConfigError`` for one that would send records and password in clear."""
    if dsn is None:
        return None
    try:
        parts = urlsplit(dsn)
        safe = parts.scheme in ("chdb", "https") or (parts.scheme == "http" and _is_loopback(parts.hostname or ""))
    except ValueError:
        safe = False
    if not safe:
        raise ConfigError("VM_USAGE_CLICKHOUSE must be chdb:///PATH or https://USER@HOST:8443/DATABASE: mend it.")
    return dsn


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _path(own: Mapping[str, str], name: str) -> Path | None:
    return Path(own[name]) if name in own else None


def _whole(own: Mapping[str, str], name: str, default: int, least: int = 1, most: int = 10**6) -> int:
    text = own.get(name, str(default))
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise ConfigError(f"{name} {text!r} is not a whole number from {least} to {most}: mend it.")
    return int(text)
