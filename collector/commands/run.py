"""``usage-collector run``: follow the sources, serve the API and the page."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from collector.api.access import Access
from collector.api.server import application
from collector.commands.opening import open_query
from collector.follow import Follower
from collector.hub.settings import PushSettings
from collector.memory import share_one_heap
from collector.metrics import Exposition
from collector.serving import serve_until_stopped
from collector.settings import Settings
from shim.names import ConfigError

if TYPE_CHECKING:
    from collector.push_loop import PushLoop


@click.command("run")
@click.pass_obj
def command(settings: Settings) -> None:
    """Follow the usage log and the runtimes' stores; serve the API and the page until told to stop."""
    share_one_heap()
    token = read_token(settings)
    follower = Follower(settings)
    pushing = _pushing(settings)
    follower.start()
    if pushing is not None:
        pushing.start()
    try:
        asyncio.run(_serve(settings, token, follower.alive))
    except OSError as error:
        click.echo(
            f"usage-collector: port {settings.api_port} on {settings.api_bind} cannot be used "
            f"({error.strerror}): set VM_USAGE_API_PORT.",
            err=True,
        )
        sys.exit(2)
    finally:
        if pushing is not None:
            pushing.stop()
        follower.stop()


def _pushing(settings: Settings) -> PushLoop | None:
    """The push to the hub; ``None`` where no hub is set and nothing leaves the VM."""
    push = PushSettings.from_env(settings.environ)
    if push is None:
        return None
    from collector.push_loop import PushLoop  # with an HTTP client, which a VM without a hub need not hold

    return PushLoop(settings, push)


async def _serve(settings: Settings, token: bytes | None, healthy: Callable[[], bool]) -> None:
    access = Access.of(settings.allowed_hosts, token)
    app = application(lambda: open_query(settings), access, Exposition())
    await serve_until_stopped(app, settings.api_bind, settings.api_port, healthy=healthy)


def read_token(settings: Settings) -> bytes | None:
    """The API's token. Raises ``ConfigError`` for one that others can read, or none where one is needed."""
    path = settings.api_token_file
    if path is None:
        if settings.api_bind not in ("127.0.0.1", "::1", "localhost"):
            raise ConfigError("VM_USAGE_API_BIND is not loopback: set VM_USAGE_API_TOKEN_FILE as well.")
        return None
    try:
        if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
            raise ConfigError(f"{path} can be read by others: run chmod 600 on it.")
        token = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"VM_USAGE_API_TOKEN_FILE {path} cannot be read ({error.strerror}).") from error
    if not token:
        raise ConfigError(f"VM_USAGE_API_TOKEN_FILE {path} is empty: put a token into it.")
    return token
