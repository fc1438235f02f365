"""The command line. Commands are found by name and imported when used, so the daemon loads only what it runs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from shim import __version__
from shim.names import ConfigError

# Commands that live in modules of their own: name -> module and attribute.
ELSEWHERE: Final = {
    "env": "shim.env:command",
    "provision": "shim.provision_cli:command",
    "optin": "shim.optin:command",
    "capture": "shim.capture:command",
}
STATUS_SECONDS: Final = 3.0


class Commands(click.Group):
    """The commands of this module and those of ``ELSEWHERE``."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*super().list_commands(context), *ELSEWHERE})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        where = ELSEWHERE.get(name)
        if where is None:
            return super().get_command(context, name)
        module, _, attribute = where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="usage-shim")
def shim() -> None:
    """Forward LLM calls untouched and write one content-free line per call.

    Configuration is by VM_USAGE_* variables; the README lists them.
    """


@shim.command("run")
@click.option("--workers", type=click.IntRange(1, 64), default=None, help="Processes that share the port.")
def run_command(workers: int | None) -> None:
    """Run the daemon in the foreground."""
    from shim.daemon import start

    sys.exit(start(os.environ, workers))


@shim.command("check")
def check_command() -> None:
    """Validate the configuration: 0 where the shim would start."""
    from shim.daemon import check
    from shim.settings import Settings

    settings = Settings.from_env(os.environ)
    allowlist = check(settings)
    if settings.log is None:
        click.echo("VM_USAGE_LOG is unset: calls are forwarded and not metered.")
    else:
        click.echo(f"log: {settings.log}")
    click.echo(f"allowlist: {settings.allowlist}")
    click.echo(f"metered: {', '.join(sorted(allowlist.metered)) or 'no runtime'}")
    click.echo(f"runtime of URLs that name none: {settings.runtime or 'none'}")
    click.echo(f"upstreams: {len(settings.upstreams)}")
    click.echo("The configuration is valid.")


@shim.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print what the shim answers.")
def status_command(as_json: bool) -> None:
    """Show the counters of the running shim."""
    import orjson

    from shim.settings import Settings

    settings = Settings.from_env(os.environ)
    answer = fetch_status(settings.bind, settings.port)
    if answer is None:
        click.echo(f"No shim answers on port {settings.port}.", err=True)
        sys.exit(1)
    if as_json:
        click.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
        return
    for line in status_lines(answer):
        click.echo(line)


def fetch_status(bind: str, port: int) -> dict[str, Any] | None:
    """What the running shim says of itself, ``None`` where none answers."""
    import http.client

    import orjson

    host = "::1" if ":" in bind else "127.0.0.1"
    connection = http.client.HTTPConnection(host, port, timeout=STATUS_SECONDS)
    try:
        connection.request("GET", "/-/status")
        response = connection.getresponse()
        value = orjson.loads(response.read())
        return value if response.status == 200 and isinstance(value, dict) else None
    except (OSError, http.client.HTTPException, orjson.JSONDecodeError):
        return None
    finally:
        connection.close()


def status_lines(answer: dict[str, Any]) -> list[str]:
    """The state for a person: plain values first, then every counter that has counted."""
    lines = []
    for name, value in answer.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for row in value:
                labels = " ".join(str(v) for k, v in row.items() if k != "count")
                lines.append(f"{name + ' ' + labels:<56} {row['count']}")
        elif value not in ([], {}, None):
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            lines.append(f"{name:<56} {shown}")
    return lines


def run(arguments: Sequence[str]) -> int:
    """Run a command; the exit code. A configuration that cannot be used is one sentence on stderr and 2."""
    try:
        shim.main(args=list(arguments), prog_name="usage-shim", standalone_mode=False)
    except ConfigError as error:
        click.echo(f"usage-shim: {error}", err=True)
        return 2
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except click.exceptions.Exit as end:
        return end.exit_code
    return 0
