"""Who may speak to the shim. Pure: values in, a refusal or nothing out.

Loopback is not a boundary: a web page can reach it (DNS rebinding, cross-site requests). No browser is a client of
ours, so whatever a browser cannot help sending is refused: a Host that is not loopback's own name with our port, any
``Origin``, any ``Sec-Fetch-Site``, any preflight. A refused request reaches no upstream and is told no more than why.
What the HTTP parser lets through and a proxy must not (forms of the target, versions, upgrades) is refused here too.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

SECRET_HEADER: Final = "x-vm-usage-secret"  # noqa: S105 (its name, not its value)
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
# TRACE would echo credentials; CONNECT makes a tunnel to anywhere; OPTIONS is a browser asking for leave.
METHODS_REFUSED: Final = ("CONNECT", "TRACE", "OPTIONS")
VERSIONS: Final = ((1, 1), (1, 0))


class Headers(Protocol):
    """Header fields by name, case ignored."""

    def getall(self, name: str, default: list[str]) -> list[str]: ...

    def __contains__(self, name: object) -> bool: ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not served. ``reason``: the counter's label; ``message``: one sentence for a person."""

    status: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Door:
    """Which Host values are ours: loopback names with our port, and the extra ones (``VM_USAGE_ALLOWED_HOSTS``)."""

    own: frozenset[str]
    extra: frozenset[str]

    @classmethod
    def of(cls, port: int, extra: frozenset[str]) -> Door:
        """The door of a listener on ``port``."""
        own = {f"{name}:{port}" for name in LOOPBACK_NAMES}
        return cls(frozenset(own | set(LOOPBACK_NAMES) if port == 80 else own), extra)

    def is_extra(self, host: str) -> bool:
        """Whether ``host`` (with or without a port) is one of the extra ones."""
        return host in self.extra or host.rpartition(":")[0] in self.extra


def refuse(method: str, target: str, version: tuple[int, int], headers: Headers, door: Door) -> Refusal | None:
    """Why this request may not pass, ``None`` where it may. The secret of an extra host is ``admit``'s affair."""
    hosts = headers.getall("Host", [])
    if len(hosts) != 1:
        return Refusal(400, "host", "Exactly one Host header is needed.")
    host = hosts[0]
    if host not in door.own and not _is_ours(host.lower(), door):
        return Refusal(403, "host", "This Host is not served here.")
    if "Origin" in headers or "Sec-Fetch-Site" in headers:
        return Refusal(403, "browser", "Browsers are not served here.")
    if method in METHODS_REFUSED:
        return Refusal(405, "method", f"{method} is not served here.")
    if not target.startswith("/") or "#" in target:
        return Refusal(400, "target", "Only an absolute path is served as request target.")
    if version not in VERSIONS:
        return Refusal(505, "version", "HTTP/1.1 and HTTP/1.0 are served here.")
    if "Transfer-Encoding" in headers:
        return _refuse_coding(version, headers)
    return None


def _refuse_coding(version: tuple[int, int], headers: Headers) -> Refusal | None:
    """Chunks are taken apart here, so a body that is coded otherwise could not be passed on as it is."""
    if version == (1, 0):
        return Refusal(400, "framing", "HTTP/1.0 has no Transfer-Encoding.")
    codings = [value.strip().lower() for value in headers.getall("Transfer-Encoding", [])]
    return None if codings == ["chunked"] else Refusal(501, "framing", "The only transfer coding served is chunked.")


def admit(target: str, headers: Mapping[str, str], door: Door, secret: bytes) -> str | Refusal:
    """The target to route: without the secret where it carried one. A call for an extra host must bring the secret."""
    if headers.get("Host", "").lower() in door.own:
        return target
    given = headers.get(SECRET_HEADER)
    if given is not None:
        return target if _same(given, secret) else _no_secret()
    segment, slash, rest = target[1:].partition("/")
    if slash and _same(segment, secret):
        return "/" + rest
    return _no_secret()


def _no_secret() -> Refusal:
    return Refusal(403, "secret", "A call for this Host must carry the tunnel's secret.")


def _is_ours(host: str, door: Door) -> bool:
    return host in door.own or door.is_extra(host)


def _same(given: str, secret: bytes) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), secret)
