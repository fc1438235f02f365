"""``usage-collector``: the commands. Exit status 0 ok, 1 failed, 2 bad usage or bad configuration."""

from __future__ import annotations

import os

import click

from collector.commands import audit, doctor, export, ingest, mcp, reconcile, report, reprice, run, status
from collector.settings import Settings
from shim import __version__


@click.group("usage-collector", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="usage-collector")
@click.pass_context
def group(context: click.Context) -> None:
    """True token usage and cost of the agent runtimes on this VM."""
    context.obj = Settings.from_env(os.environ)


for module in (ingest, run, report, status, doctor, audit, export, reprice, reconcile, mcp):
    group.add_command(module.command)
