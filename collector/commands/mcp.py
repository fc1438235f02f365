"""``usage-collector mcp``: the ledger for agents, as an MCP server on standard input and output."""

from __future__ import annotations

from pathlib import Path

import click

from collector.commands.report import closing_query
from collector.settings import Settings
from shim.names import ConfigError


@click.command("mcp")
@click.option("--db", type=click.Path(path_type=Path), help="The ledger file.")
@click.option("--hub", metavar="URL", help="Serve what the hub there knows instead of this VM's ledger.")
@click.pass_obj
def command(settings: Settings, db: Path | None, hub: str | None) -> None:
    """Serve get_cost_summary, list_sessions, get_session and explain_cost to an agent over stdio.

    \b
    {"mcpServers": {"vm-usage": {"command": "usage-collector", "args": ["mcp"]}}}
    """
    try:
        from collector.agent_tools import server
    except ModuleNotFoundError as error:
        raise ConfigError("The mcp extra is not installed: pip install 'vm-usage[mcp]'.") from error
    with closing_query(settings, db, hub) as query:
        server(query).run("stdio")
