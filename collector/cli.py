"""``usage-collector``: the commands. Exit status 0 ok, 1 failed, 2 bad usage or bad configuration.

A command is imported when it is used: a report does not wait for the runtime readers or the web server.
"""

from __future__ import annotations

import importlib
import os
from typing import Final

import click

from collector import memory
from collector.settings import Settings
from shim import __version__

# Name and one line of help; each is ``command`` in ``collector.commands.<name>``.
COMMANDS: Final = {
    "ingest": "Read usage logs and runtime stores once.",
    "run": "Follow the sources; serve the API and the page.",
    "report": "Show tokens and cost by day, model, runtime, session or vm.",
    "status": "Show windows, shim, sources, lag and refusals.",
    "doctor": "Say what is wrong on this VM and how to mend it.",
    "stores": "Show the service the session stores, and nothing else of a home.",
    "audit": "Review usage logs on their own.",
    "export": "Write CSV, Parquet, FOCUS-shaped rows, or send OTLP.",
    "reprice": "Show what the prices of now would say.",
    "reconcile": "Set a vendor's bill beside our records.",
    "push": "Send records to the hub.",
    "hub": "Gather the records of many VMs.",
    "mcp": "Serve the ledger to an agent over stdio.",
}


class Commands(click.Group):
    """The table above as commands."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"collector.commands.{name}").command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group("usage-collector", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="usage-collector")
@click.pass_context
def group(context: click.Context) -> None:
    """True token usage and cost of the agent runtimes on this VM.

    Configuration is by VM_USAGE_* variables; the README lists them. Completion for bash:
    eval "$(_USAGE_COLLECTOR_COMPLETE=bash_source usage-collector)"
    """
    memory.collect_rarely()
    context.obj = Settings.from_env(os.environ)
