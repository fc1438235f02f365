"""``usage-collector push``: send records to the hub."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from collector.commands.opening import open_ledger
from collector.hub.settings import PushSettings
from collector.push import Pushed, Pusher, PushError, backoff, client
from collector.settings import Settings
from shim.names import ConfigError

TRIES: Final = 3


@click.command("push")
@click.option("--once", is_flag=True, help="Send what waits, then end; for cron.")
@click.option("--again", is_flag=True, help="Send everything once more; the hub keeps what it has.")
@click.option("--db", type=click.Path(path_type=Path), help="The ledger file.")
@click.pass_obj
def command(settings: Settings, once: bool, again: bool, db: Path | None) -> None:
    """Send new and changed records to the hub that VM_USAGE_HUB names.

    `usage-collector run` does this by itself. Exit status 1 where the hub did not take everything.

    \b
    VM_USAGE_HUB=https://hub.example usage-collector push --once
    """
    push = PushSettings.from_env(settings.environ)
    if push is None:
        raise ConfigError("VM_USAGE_HUB is not set, so nothing leaves this VM: set it to the hub's URL.")
    settings = replace(settings, db=db) if db else settings
    if not settings.db.exists():
        raise click.ClickException(f"there is no ledger at {settings.db} yet: run `usage-collector ingest`.")
    with closing(open_ledger(settings)) as ledger, client(push) as http:
        pusher = Pusher(ledger, settings.vm, push, http)
        if again:
            pusher.start_again()
        try:
            sent, refused = everything(pusher, push.rate, for_ever=not once)
        except PushError as error:
            raise click.ClickException(f"{error}; {ledger.waiting(pusher.cursor)} records wait here.") from error
        except KeyboardInterrupt:
            sys.exit(130)
    click.echo(f"{sent} records sent to {push.url}, {refused} of them refused (usage-collector doctor says why)")


def everything(pusher: Pusher, rate: int, *, for_ever: bool) -> tuple[int, int]:
    """Send until nothing waits (or until interrupted): records sent and refused. Raises ``PushError``."""
    sent = refused = 0
    while True:
        began = time.monotonic()
        pushed = _patiently(pusher)
        sent, refused = sent + pushed.sent, refused + pushed.refused
        if not pushed.waiting and not for_ever:
            return sent, refused
        pause = pushed.sent / rate - (time.monotonic() - began)
        time.sleep(max(pause, 0.0 if pushed.waiting else 5.0))


def _patiently(pusher: Pusher) -> Pushed:
    for failures in range(1, TRIES):
        try:
            return pusher.step()
        except PushError as error:
            if error.wait > 10:
                raise
            time.sleep(backoff(failures, error.wait))
    return pusher.step()
