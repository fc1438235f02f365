"""Tokens of VMs. A token is random and long, so that its plain SHA-256 may be stored; it is shown once.

A holder may write as its VM and as names that the VM had before, as nobody else.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from shim.line import NAME

PREFIX: Final = "vmu_"
BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Token:
    """What the hub keeps of a token. Times in epoch seconds; ``names``: as which its holder may write.

    ``id`` is the beginning of the hash: enough to name it, of no use to anyone else.
    """

    id: str
    hash: str
    vm: str
    names: tuple[str, ...]
    created: int
    expires: int | None = None
    revoked: int | None = None

    def why_not(self, now: float) -> str | None:
        """Why it does not open the door any more, ``None`` while it does."""
        if self.revoked is not None:
            return "This token was revoked: ask for a new one (usage-collector hub token create)."
        if self.expires is not None and self.expires <= now:
            return "This token has expired: ask for a new one (usage-collector hub token create)."
        return None


def new(vm: str, also: tuple[str, ...], now: int, days: int | None) -> tuple[str, Token]:
    """A new token in clear and what is kept of it. Raises ``ValueError`` for a name that no VM can have."""
    for name in (vm, *also):
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be a VM's name: letters, digits and _ . : - up to 64")
    clear = PREFIX + secrets.token_urlsafe(BYTES)
    digest = digest_of(clear)
    expires = None if days is None else now + days * 86_400
    return clear, Token(digest[:12], digest, vm, (vm, *also), now, expires)


def digest_of(clear: str) -> str:
    """The hash under which a token is kept."""
    return hashlib.sha256(clear.encode()).hexdigest()
