"""``usage-collector hub``: gather the records of many VMs."""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from contextlib import closing
from pathlib import Path

import click
from aiohttp import web

from collector import windows
from collector.api.access import Access, is_loopback
from collector.api.server import application
from collector.commands.run import read_token
from collector.hub import tokens
from collector.hub.batch import PATH
from collector.hub.limits import Rates
from collector.hub.opening import open_fleet, open_fleet_query, open_tokens
from collector.hub.server import Ingest
from collector.hub.settings import HubSettings
from collector.hub.writer import Writer
from collector.ingest_report import silent
from collector.metrics import Exposition
from collector.retention import Retention
from collector.rows import iso
from collector.serving import serve_until_stopped
from collector.settings import Settings
from shim.names import ConfigError


@click.group("hub", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Take in what VMs push; serve the API and the page over all of them.

    \b
    usage-collector hub token create web-1 --output web-1.token
    usage-collector hub
    """
    if context.invoked_subcommand is None:
        _run(context.obj)


def _run(settings: Settings) -> None:
    hub = HubSettings.from_env(settings.environ)
    token = read_token(settings)
    if token is None and not is_loopback(hub.bind):
        raise ConfigError("VM_USAGE_HUB_BIND is not loopback: set VM_USAGE_API_TOKEN_FILE as well.")
    tls = _tls(hub)
    # Several hubs may share a server; there one host alone runs `hub expire`.
    retention = Retention(settings.retention_days if hub.clickhouse is None or hub.embedded else None)
    writer = Writer(lambda: open_fleet(settings, hub), lambda: open_tokens(settings, hub), retention)
    writer.start()
    try:
        asyncio.run(_serve(settings, hub, token, tls, writer))
    except OSError as error:
        click.echo(
            f"usage-collector: port {hub.port} on {hub.bind} cannot be used ({error.strerror}): set VM_USAGE_HUB_PORT.",
            err=True,
        )
        sys.exit(2)
    finally:
        writer.stop()


async def _serve(
    settings: Settings, hub: HubSettings, token: bytes | None, tls: ssl.SSLContext | None, writer: Writer
) -> None:
    access = Access.of(settings.allowed_hosts, token)
    ingest = web.post(PATH, Ingest(writer, Rates(time.monotonic)).take)
    app = application(lambda: open_fleet_query(settings, hub), access, Exposition(), own=(ingest,))
    await serve_until_stopped(app, hub.bind, hub.port, tls=tls, healthy=writer.alive)


def _tls(hub: HubSettings) -> ssl.SSLContext | None:
    if hub.cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(hub.cert, hub.key)
    except OSError as error:
        raise ConfigError(f"VM_USAGE_HUB_CERT {hub.cert} cannot be used ({error}): mend it.") from error
    return context


@command.group("token")
def token_group() -> None:
    """Tokens by which VMs may push."""


@token_group.command("create")
@click.argument("vm")
@click.option("--also", multiple=True, metavar="NAME", help="A name that the VM had before; may be repeated.")
@click.option("--days", type=click.IntRange(1), help="How long it is valid; for ever unless given.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write it there, 0600, instead of printing it.")
@click.pass_obj
def create(settings: Settings, vm: str, also: tuple[str, ...], days: int | None, output: Path | None) -> None:
    """Make a token for VM and show it once; the hub keeps a hash of it."""
    try:
        clear, token = tokens.new(vm, also, int(time.time()), days)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with closing(open_tokens(settings, HubSettings.from_env(settings.environ))) as store:
        store.add_token(token)
    if output is None:
        click.echo(clear)
        return
    output.touch(mode=0o600)
    output.chmod(0o600)
    output.write_text(clear + "\n", encoding="ascii")


@token_group.command("list")
@click.pass_obj
def show(settings: Settings) -> None:
    """Show id, VM, names, creation and state of every token."""
    now = time.time()
    with closing(open_tokens(settings, HubSettings.from_env(settings.environ))) as store:
        found = store.tokens()
    for token in found:
        state = "revoked" if token.revoked else "expired" if token.why_not(now) else "valid"
        made = (iso(token.created * 1000) or "")[:10]
        click.echo(f"{token.id}  {token.vm}  {','.join(token.names)}  {made}  {state}")


@token_group.command("revoke")
@click.argument("name")
@click.pass_obj
def revoke(settings: Settings, name: str) -> None:
    """Revoke the token with this id, or every token of this VM. Hubs that run know it within seconds."""
    with closing(open_tokens(settings, HubSettings.from_env(settings.environ))) as store:
        count = store.revoke(name, int(time.time()))
    if not count:
        raise click.ClickException(f"no valid token has the id or the VM {name}.")
    click.echo(f"{count} revoked")


@command.command("ingest")
@click.argument("where")
@click.pass_obj
def ingest(settings: Settings, where: str) -> None:
    """Take in the usage logs of VMs in the folder, or matching the pattern, WHERE; again is a no-op.

    \b
    usage-collector hub ingest /srv/logs
    usage-collector hub ingest '/srv/logs/*/usage.jsonl*'
    """
    from collector.hub import from_files
    from collector.ledger.sqlite import SqliteLedger
    from collector.pricelists import pricer
    from shim import allowlist

    files = from_files.logs(where)
    if not files:
        raise click.ClickException(f"no usage log is at {where}.")
    zone = windows.zone_name(settings.zone)
    with (
        closing(SqliteLedger(settings.state / from_files.STAGING, zone)) as staging,
        closing(open_fleet(settings, HubSettings.from_env(settings.environ))) as store,
    ):
        permitted = allowlist.load(settings.allowlist, settings.allow)
        report, changed = from_files.ingest(staging, store, files, permitted, pricer(settings), silent)
    refused, faulty = sum(report.refused.values()), sum(report.quarantined.values())
    click.echo(
        f"{report.lines} lines read, {changed} records new, {refused} refused, {faulty} no usage lines, "
        f"{report.missing_lines} missing"
    )
    for path, reason in report.errors:
        click.echo(f"not readable: {path}: {reason}", err=True)
    if report.errors:
        sys.exit(1)


@command.command("schema")
@click.option("--cluster", metavar="NAME", help="For a cluster: replicated per shard, distributed.")
@click.pass_obj
def schema(settings: Settings, cluster: str | None) -> None:
    """Print the statements that make the ClickHouse tables; the hub runs them itself where it may."""
    from collector.ledger import clickhouse_schema

    cluster = cluster or HubSettings.from_env(settings.environ).cluster
    for statement in clickhouse_schema.statements(cluster):
        click.echo(statement + ";\n")


@command.command("expire")
@click.pass_obj
def expire(settings: Settings) -> None:
    """Let records older than VM_USAGE_RETENTION_DAYS go; every total stays.

    A hub does it by itself, unless its store is a ClickHouse server: there run it from cron on one host.
    """
    if settings.retention_days is None:
        raise ConfigError("VM_USAGE_RETENTION_DAYS is not set, so records are kept for ever: set it.")
    with closing(open_fleet(settings, HubSettings.from_env(settings.environ))) as store:
        count = Retention(settings.retention_days).turn(store)
    click.echo(f"{count} records expired")
