"""Entry point: runs the command line and turns the two kinds of expected failure into a sentence and an exit status."""

from __future__ import annotations

import sys

import click

from collector.ledger import LedgerError
from shim.names import ConfigError


def main() -> None:
    """Run ``usage-collector``; exit status 2 for bad usage or configuration, 1 for what failed."""
    from collector.cli import group

    try:
        group()
    except ConfigError as error:
        click.echo(f"usage-collector: {error}", err=True)
        sys.exit(2)
    except LedgerError as error:
        click.echo(f"usage-collector: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
