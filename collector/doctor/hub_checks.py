"""The push to the hub: whether it is set up, how it last went, and which records the hub does not take."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from collector.doctor import NOTE, OK, WRONG, Finding, Ward
from collector.hub.settings import PushSettings
from collector.ledger.sqlite import SqliteLedger
from collector.push_state import last_push
from collector.secret_file import read_secret
from shim.names import ConfigError

LATE_SECONDS: Final = 3600
SHOWN: Final = 5


def push(ward: Ward) -> Iterator[Finding]:
    """Whether records reach the hub."""
    try:
        settings = PushSettings.from_env(ward.environ)
        if settings is None:
            yield Finding("hub", OK, "VM_USAGE_HUB is not set: nothing leaves this VM")
            return
        read_secret(settings.token_file, "VM_USAGE_HUB_TOKEN_FILE")
    except ConfigError as error:
        yield Finding("hub", WRONG, str(error), "usage-collector push --once")
        return
    ledger = ward.query.ledger if ward.query is not None else None
    if not isinstance(ledger, SqliteLedger):
        return
    state = last_push(ledger)
    if state is None:
        yield Finding("hub", NOTE, f"nothing was pushed to {settings.url} yet", "usage-collector push --once")
        return
    when = f"{datetime.fromtimestamp(state.at, UTC):%Y-%m-%d %H:%M} UTC"
    if state.error is not None:
        text = f"{settings.url}, {when}: {state.error}; {state.waiting} records wait here"
        yield Finding("hub", WRONG, text, "usage-collector push --once")
    elif ward.now - state.at > LATE_SECONDS and state.waiting:
        yield Finding("hub", WRONG, f"the last push to {settings.url} was {when}", "systemctl status usage-collector")
    else:
        yield Finding("hub", OK, f"pushed to {settings.url}, last {when}; {state.waiting} records wait")


def refused(ward: Ward) -> Iterator[Finding]:
    """Records of this VM that the hub does not take, by reason."""
    ledger = ward.query.ledger if ward.query is not None else None
    if not isinstance(ledger, SqliteLedger):
        return
    query = "SELECT reason, count(*), min(id) FROM push_refused GROUP BY reason ORDER BY 2 DESC, 1"
    for reason, count, example in ledger.select(query)[:SHOWN]:
        text = f"the hub does not take {count} records ({reason}), {example} for one"
        yield Finding("hub", WRONG, text, "usage-collector push --once --again")


CHECKS: Final = (("hub", push), ("hub", refused))
