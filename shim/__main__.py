"""``usage-shim`` and ``python -m shim``."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and exit with its code: 0 ok, 1 failed, 2 bad usage or bad configuration."""
    if sys.argv[1:] == ["run"]:  # the daemon: the libraries of a command line would stay in its memory
        from shim.daemon import start

        sys.exit(start(os.environ))
    from shim.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
