"""``usage-shim`` and ``python -m shim``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code: 0 ok, 1 failed, 2 bad usage or bad configuration."""
    from shim.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
