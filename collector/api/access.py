"""Who may read the API and the page. Pure: values in, a refusal or nothing out.

A browser is a client here, but only of our own page: the Host must be ours (DNS rebinding), a foreign ``Origin`` or a
cross-site ``Sec-Fetch-Site`` is refused, and nothing but GET and HEAD is served. Off loopback a bearer token is needed.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
METHODS: Final = ("GET", "HEAD")
# What a browser says of a request that the user typed, or that our own page made.
OWN_SITE: Final = (None, "none", "same-origin")


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a request is not answered: HTTP status and one sentence."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Access:
    """Host names that are ours, without port, and the token that readers need (``None``: none, loopback only)."""

    hosts: frozenset[str]
    token: bytes | None = None

    @classmethod
    def of(cls, extra: tuple[str, ...] = (), token: bytes | None = None) -> Access:
        """Loopback's own names and ``extra`` ones (``VM_USAGE_ALLOWED_HOSTS``)."""
        return cls(frozenset(LOOPBACK_NAMES) | {name.lower() for name in extra}, token)

    def deny(self, method: str, hosts: list[str], headers: Mapping[str, str]) -> Denial | None:
        """Why a request is not answered, ``None`` where it is. ``hosts``: every Host header there is."""
        if len(hosts) != 1 or _name(hosts[0]) not in self.hosts:
            return Denial(403, "This Host is not served here: use 127.0.0.1, or name it in VM_USAGE_ALLOWED_HOSTS.")
        origin = headers.get("Origin")
        if origin is not None and origin.partition("://")[2].lower() != hosts[0].lower():
            return Denial(403, "Other sites may not read this API.")
        if headers.get("Sec-Fetch-Site") not in OWN_SITE and headers.get("Sec-Fetch-Mode") != "navigate":
            return Denial(403, "Other sites may not read this API.")
        if method not in METHODS:
            return Denial(405, "This API is read-only: GET and HEAD are served.")
        if self.token is not None and not _bears(headers.get("Authorization", ""), self.token):
            return Denial(401, "A bearer token is needed: it is in the file that VM_USAGE_API_TOKEN_FILE names.")
        return None


def is_loopback(address: str) -> bool:
    """Whether a bind address can be reached from this machine alone."""
    if address == "localhost":
        return True
    try:
        return ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """A Host value without its port, in lower case."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() and (not name.count(":") or name.endswith("]")) else host.lower()


def _bears(authorization: str, token: bytes) -> bool:
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token)
