"""Events on stderr, one JSON object per line: a snake_case past-tense name and keys.

No event holds a URL query, a header value, a body or model text. systemd's journal adds time and unit, so the time is
written only where stderr is not the journal. Trouble that repeats is said once by whoever meets it; counters hold the
rest.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, Final, Protocol, TextIO

import orjson
import structlog

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class EventLog(Protocol):
    """What the shim's parts need of a logger."""

    def debug(self, event: str, /, **keys: Any) -> Any: ...
    def info(self, event: str, /, **keys: Any) -> Any: ...
    def warning(self, event: str, /, **keys: Any) -> Any: ...
    def error(self, event: str, /, **keys: Any) -> Any: ...


def event_log(level: str = "info", out: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> EventLog:
    """A logger that writes events of ``level`` and above to ``out`` (stderr)."""
    stamp: list[Any] = [] if "JOURNAL_STREAM" in environ else [structlog.processors.TimeStamper("iso", key="at")]
    logger: EventLog = structlog.wrap_logger(
        structlog.PrintLogger(out or sys.stderr),
        processors=[structlog.processors.add_log_level, *stamp, _as_json],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        cache_logger_on_first_use=True,
    )
    return logger


def _as_json(logger: Any, method: str, keys: Any) -> str:
    return orjson.dumps({"event": keys.pop("event"), **keys}, default=str).decode()
