"""``python -m tests.vm``: boots a Debian machine, does to it what a fleet does, and says what held.

Stages run in order on one machine, so a later one builds on an earlier one; ``fleet`` and ``quickstart`` have machines
of their own. ``python -m tests.vm install opt_in`` runs some of them. Needs root, mmdebstrap and systemd-nspawn.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

STAGES: Final = (
    "install",
    "opt_in",
    "stores",
    "hub",
    "restarts",
    "upgrade",
    "rotation",
    "operations",
    "purge",
    "fleet",
    "quickstart",
)
HERE: Final = Path(__file__).parent


def main() -> int:
    chosen = [word for word in sys.argv[1:] if word in STAGES] or STAGES
    options = [word for word in sys.argv[1:] if word not in STAGES]
    files = [str(HERE / f"test_{stage}.py") for stage in chosen]
    return int(pytest.main(["-v", "-p", "no:cacheprovider", "--timeout", "600", "--durations", "8", *options, *files]))


if __name__ == "__main__":
    sys.exit(main())
