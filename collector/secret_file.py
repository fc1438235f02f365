"""Secrets come from files that nobody else can read, never from a command line."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from shim.names import ConfigError


def read_secret(path: Path, variable: str) -> str:
    """The secret in a file, without surrounding white space.

    Raises ``ConfigError`` for a file that is missing, empty or open to others than its owner; ``variable`` names it.
    """
    try:
        if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
            raise ConfigError(f"{variable}: {path} can be read by others: run chmod 600 on it.")
        secret = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigError(f"{variable}: {path} cannot be read ({error.strerror}): mend it.") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{variable}: {path} does not hold a plain token: put the token into it.") from None
    if not secret:
        raise ConfigError(f"{variable}: {path} is empty: put the token into it.")
    return secret
