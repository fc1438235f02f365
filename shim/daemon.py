"""``usage-shim run``: from an environment to a running shim, without anything that only the other commands need."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from dataclasses import replace

from shim.allowlist import Allowlist, load
from shim.names import ConfigError
from shim.proxies import Proxies
from shim.settings import Settings

# structlog loads rich where it finds it, for tracebacks on a terminal. The daemon writes none; rich is five megabytes.
sys.modules.setdefault("rich", None)  # type: ignore[arg-type]


def start(environ: MutableMapping[str, str], workers: int | None = None) -> int:
    """Run the shim until it is told to stop; the exit code. ``workers``: instead of ``VM_USAGE_WORKERS``.

    A configuration that cannot be used is one sentence on stderr and 2.
    """
    try:
        return _start(environ, workers)
    except ConfigError as error:
        print(f"usage-shim: {error}", file=sys.stderr)
        return 2


def check(settings: Settings) -> Allowlist:
    """Everything that a start would refuse but the log and the port. Raises ``ConfigError``."""
    allowlist = load(settings.allowlist, settings.allow)
    if settings.runtime in allowlist.self_reporting:
        raise ConfigError(
            f"VM_USAGE_RUNTIME is {settings.runtime}, which keeps its own record and is never metered: unset it."
        )
    Proxies.from_env(os.environ)
    return allowlist


def _start(environ: MutableMapping[str, str], workers: int | None) -> int:
    from shim.notify import listen_sockets
    from shim.server import check_log, listen, serve

    settings = Settings.from_env(environ)
    if workers is not None:
        settings = replace(settings, workers=workers)
    check(settings)
    check_log(settings)
    inherited = listen_sockets(environ)
    if settings.workers == 1:
        serve(settings, environ, inherited or [listen(settings)])
        return 0
    from shim.workers import Supervisor

    return Supervisor(settings, environ, inherited).run()
