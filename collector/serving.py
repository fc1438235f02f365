"""A web application as a service: it tells systemd when it serves, that it lives, and that it stops."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Callable

from aiohttp import web

from shim.notify import Notify


async def serve_until_stopped(
    app: web.Application,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    healthy: Callable[[], bool] = lambda: True,
) -> None:
    """Serve ``app`` until SIGTERM or SIGINT. Raises ``OSError`` where the port cannot be used.

    ``healthy`` is asked before each watchdog ping: while it says no, systemd hears nothing and in the end restarts us.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    notify = Notify(os.environ)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        notify.ready()
        await _until(stopped, notify, healthy)
        notify.stopping()
    finally:
        await runner.cleanup()


async def _until(stopped: asyncio.Event, notify: Notify, healthy: Callable[[], bool]) -> None:
    """Wait for the end; meanwhile ping the watchdog, where there is one."""
    while not stopped.is_set():
        try:
            await asyncio.wait_for(stopped.wait(), notify.watchdog_seconds)
        except TimeoutError:
            if healthy():
                notify.alive()
