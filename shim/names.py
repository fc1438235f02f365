"""Every environment variable of the product: one table, read by both programs, README, /etc/default and the tests.

``resolve`` turns an environment into plain ``VM_USAGE_*`` names: it applies the aliases, and an unknown
``VM_USAGE_*`` name is an error that says which known one is nearest, so a typing mistake never passes in silence.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "VM_USAGE_"
UPSTREAM_PREFIX: Final = "VM_USAGE_UPSTREAM_"
UPSTREAM_NAME: Final = re.compile(r"VM_USAGE_UPSTREAM_[A-Z0-9]+(?:_[A-Z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: its full name, default as shown to people, who reads it (``shim``, ``collector``, ``hub``) and help."""

    name: str
    default: str
    read_by: str
    help: str


SETTINGS: Final = (
    Setting("VM_USAGE_LOG", "unset", "shim collector", "Usage log to append to and to follow. Unset: the shim forwards and meters nothing."),
    Setting("VM_USAGE_RUNTIME", "unset", "shim", "The VM's one runtime, for URLs that name none."),
    Setting("VM_USAGE_ALLOW", "all token-blind", "shim collector", "Comma-separated token-blind runtimes; narrows the allowlist, never widens it."),
    Setting("VM_USAGE_ALLOWLIST", "/etc/vm-usage/allowlist.yaml, else the shipped one", "shim collector", "Path of the allowlist file."),
    Setting("VM_USAGE_VM", "keyed hash of the machine id", "shim collector", "Name of this VM in lines, ledger and hub: letters, digits and _ . : - up to 64."),
    Setting("VM_USAGE_SHIM_PORT", "4141", "shim collector", "Port of the shim."),
    Setting("VM_USAGE_SHIM_BIND", "127.0.0.1", "shim", "Address the shim listens on. Anything but loopback also needs VM_USAGE_ALLOWED_HOSTS."),
    Setting("VM_USAGE_ALLOWED_HOSTS", "loopback names", "shim collector hub", "Comma-separated extra Host names that may be used to reach the shim or the page."),
    Setting("VM_USAGE_TUNNEL_SECRET_FILE", "unset", "shim", "0600 file whose secret every call for an extra Host name must carry (header x-vm-usage-secret or first path segment)."),
    Setting("VM_USAGE_WORKERS", "1", "shim", "Shim processes that share the port."),
    Setting("VM_USAGE_DRAIN_SECONDS", "20", "shim", "How long streams in flight may go on after SIGTERM; what is cut then is `interrupted`."),
    Setting("VM_USAGE_FINGERPRINT", "on", "shim", "on or off: sessions from a keyed fingerprint of a conversation's head where a call names none."),
    Setting("VM_USAGE_CA_FILE", "system store", "shim", "PEM file of extra certificate authorities for upstreams."),
    Setting("VM_USAGE_LOG_LEVEL", "info", "shim collector hub", "debug, info, warning or error. Debug adds events, never content."),
    Setting("VM_USAGE_STATE", "/var/lib/vm-usage, without root $XDG_STATE_HOME/vm-usage", "shim collector hub", "Folder of keys, in-flight file and ledger."),
    Setting("VM_USAGE_DB", "ledger.db (hub: hub.db) in the state folder", "collector hub", "The ledger file."),
    Setting("VM_USAGE_TZ", "the machine's", "collector hub", "Time zone of days and windows, an IANA name."),
    Setting("VM_USAGE_HOMES", "home of the user; as root every home of a real user", "collector", "Colon-separated homes whose session stores are read."),
    Setting("VM_USAGE_API_PORT", "8900", "collector", "Port of the API and the page."),
    Setting("VM_USAGE_API_BIND", "127.0.0.1", "collector", "Address of the API and the page. Off loopback a token is required."),
    Setting("VM_USAGE_API_TOKEN_FILE", "unset", "collector hub", "0600 file with the bearer token that readers of the API need."),
    Setting("VM_USAGE_INTERVAL", "5", "collector", "Seconds between looks at logs and stores while following."),
    Setting("VM_USAGE_PRICES", "/etc/vm-usage/prices.yaml", "collector", "Operator's prices with effective dates; they come before the price book."),
    Setting("VM_USAGE_ACU_USD", "unset", "collector", "USD of one Devin ACU by your contract. Unset: ACU are shown as ACU."),
    Setting("VM_USAGE_CURSOR_KEY", "unset", "collector", "Cursor's admin API key, for reconcile cursor. A file is safer."),
    Setting("VM_USAGE_CURSOR_KEY_FILE", "unset", "collector", "0600 file with Cursor's admin API key, for reconcile cursor."),
    Setting("VM_USAGE_CURSOR_API", "https://api.cursor.com", "collector", "Base URL of Cursor's admin API."),
    Setting("VM_USAGE_HUB", "unset", "collector", "URL of the hub that records are pushed to. Unset: nothing leaves the VM."),
    Setting("VM_USAGE_HUB_TOKEN_FILE", "/etc/vm-usage/hub.token", "collector", "0600 file with this VM's hub token."),
    Setting("VM_USAGE_HUB_CA_FILE", "system store", "collector", "PEM file of the hub's certificate authority."),
    Setting("VM_USAGE_HUB_RATE", "2000", "collector", "Most records pushed per second."),
    Setting("VM_USAGE_HUB_PORT", "8901", "hub", "Port of the hub."),
    Setting("VM_USAGE_HUB_BIND", "127.0.0.1", "hub", "Address of the hub."),
    Setting("VM_USAGE_HUB_CERT", "unset", "hub", "PEM certificate chain for TLS on the hub itself."),
    Setting("VM_USAGE_HUB_KEY", "unset", "hub", "PEM private key for TLS on the hub itself."),
    Setting("VM_USAGE_CLICKHOUSE", "unset", "hub", "ClickHouse DSN: chdb:///path or https://user@host:8443/db. Unset: the hub's ledger is SQLite."),
    Setting("VM_USAGE_CLICKHOUSE_PASSWORD_FILE", "unset", "hub", "0600 file with the ClickHouse password."),
    Setting("VM_USAGE_CLICKHOUSE_CLUSTER", "unset", "hub", "Cluster name: replicated tables per shard with a distributed table over them."),
    Setting("VM_USAGE_RETENTION_DAYS", "unset", "collector hub", "Days that single records are kept; daily rollups stay."),
)  # fmt: skip

ALIASES: Final = {
    "CLAWMETRY_VM_USAGE_LOG": "VM_USAGE_LOG",
    "CLAWMETRY_VM_USAGE_RUNTIME": "VM_USAGE_RUNTIME",
    "CLAWMETRY_VM_USAGE_ALLOW": "VM_USAGE_ALLOW",
}
KNOWN: Final = frozenset(setting.name for setting in SETTINGS)


class ConfigError(ValueError):
    """Configuration that cannot be used. The message is one sentence for a person and ends in the remedy; exit code 2."""


def resolve(environ: Mapping[str, str]) -> dict[str, str]:
    """Our variables of an environment under their own names; empty values count as unset.

    Raises ``ConfigError`` for an unknown ``VM_USAGE_*`` name.
    """
    found = {own: environ[alias] for alias, own in ALIASES.items() if environ.get(alias)}
    for name, value in environ.items():
        if not name.startswith(PREFIX):
            continue
        if name not in KNOWN and not UPSTREAM_NAME.fullmatch(name):
            raise ConfigError(_unknown(name))
        if value:
            found[name] = value
    return found


def upstream_urls(settings: Mapping[str, str]) -> dict[str, str]:
    """Upstream name as in URLs (lower case, ``-``) to base URL, from resolved settings."""
    return {
        name.removeprefix(UPSTREAM_PREFIX).lower().replace("_", "-"): value
        for name, value in settings.items()
        if name.startswith(UPSTREAM_PREFIX)
    }


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "see --help for the names."
    return f"{name} is not a variable of vm-usage: {hint}"
