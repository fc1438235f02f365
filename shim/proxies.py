"""The proxy variables: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, as curl and Go read them.

Lower-case names come first. Loopback never goes through a proxy. NO_PROXY is a comma-separated list of host names
(with their subdomains), addresses, networks (``10.0.0.0/8``) and ``*``, each with or without a port.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from shim.names import ConfigError
from shim.upstreams import Upstream


@dataclass(frozen=True, slots=True)
class Proxy:
    """One HTTP proxy. ``authorization``: the value of Proxy-Authorization, ``None`` where the URL has no user."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Proxies:
    """Which proxy an upstream is reached through."""

    by_scheme: Mapping[str, Proxy]
    exceptions: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Proxies:
        """Read the variables. Raises ``ConfigError`` for a proxy that is not an ``http://`` URL."""
        by_scheme = {}
        for scheme in ("http", "https"):
            # HTTP_PROXY in upper case can be set by a CGI request's Proxy header, but we are no CGI program.
            if url := _value(environ, f"{scheme}_proxy") or _value(environ, "all_proxy"):
                by_scheme[scheme] = _proxy(url, scheme)
        excepted = _value(environ, "no_proxy").lower().replace(" ", ",").split(",")
        return cls(by_scheme, tuple(entry for entry in excepted if entry))

    def of(self, upstream: Upstream) -> Proxy | None:
        """The proxy for ``upstream``, ``None`` for a direct connection."""
        proxy = self.by_scheme.get(upstream.scheme)
        if proxy is None or _is_loopback(upstream.host):
            return None
        return None if any(_matches(entry, upstream) for entry in self.exceptions) else proxy


def _value(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _proxy(text: str, scheme: str) -> Proxy:
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        host, port = url.hostname, url.port or 80
    except ValueError:
        host, port, url = None, 0, urlsplit("")
    if url.scheme != "http" or not host:
        raise ConfigError(f"{scheme.upper()}_PROXY must be an http:// URL with a host, other kinds are not spoken.")
    if url.username is None:
        return Proxy(host, port)
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return Proxy(host, port, "Basic " + base64.b64encode(pair.encode()).decode())


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address.is_loopback if address else host == "localhost" or host.endswith(".localhost")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _matches(entry: str, upstream: Upstream) -> bool:
    if entry == "*":
        return True
    name, colon, port = entry.rpartition(":")
    if colon and port.isdigit() and ":" not in name.strip("[]"):
        if int(port) != upstream.port:
            return False
        entry = name
    address = _address(upstream.host)
    if address is not None:
        return _in_network(entry.strip("[]"), address)
    entry = entry.removeprefix("*").removeprefix(".")
    host = upstream.host.lower()
    return host == entry or host.endswith(f".{entry}")


def _in_network(entry: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
