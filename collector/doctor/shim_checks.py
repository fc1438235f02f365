"""Opt-in, the shim, and whether its lines arrive."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx

from collector.doctor import NOTE, OK, WRONG, Finding, Ward
from shim.provision import config_drift

# Variables by which runtimes are pointed at a base URL (deploy/README.md has the whole list).
BASE_URLS: Final = (
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "ANTHROPIC_BASE_URL",
    "GOOGLE_GEMINI_BASE_URL",
    "OPENROUTER_BASE_URL",
    "KIMI_BASE_URL",
)
QUIET_SECONDS: Final = 24 * 3600


def shim_status(port: int) -> dict[str, Any] | None:
    """``/-/status`` of the shim on this port, ``None`` where none answers."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/-/status", timeout=3, trust_env=False)
        return answer.json() if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        return None


def opt_in(ward: Ward) -> Iterator[Finding]:
    """Which of our variables and which base URLs are seen here."""
    log = ward.settings.log
    if log is None:
        yield Finding(
            "opt-in",
            WRONG,
            "VM_USAGE_LOG is not set here: no usage log is read, and a shim without it meters nothing",
            "echo VM_USAGE_LOG=/var/log/vm-usage/usage.jsonl >> /etc/default/usage-shim",
        )
    else:
        yield Finding("opt-in", OK, f"usage log: {log}")
    mark = f":{ward.settings.shim_port}/"
    pointed = [name for name in BASE_URLS if mark in ward.environ.get(name, "") + "/"]
    if pointed:
        yield Finding("opt-in", OK, f"this environment points at the shim: {', '.join(pointed)}")
    elsewhere = [name for name in BASE_URLS if ward.environ.get(name) and name not in pointed]
    if elsewhere:
        yield Finding(
            "opt-in",
            NOTE,
            f"this environment points elsewhere: {', '.join(elsewhere)}; those calls do not pass the shim",
            "usage-shim env --runtime RUNTIME",
        )


def shim_is_up(ward: Ward) -> Iterator[Finding]:
    """Whether the shim answers, meters, and who reaches it."""
    port = ward.settings.shim_port
    if ward.shim is None:
        yield Finding("shim", WRONG, f"no shim answers on 127.0.0.1:{port}", "systemctl status usage-shim")
        return
    yield Finding("shim", OK, f"shim {ward.shim.get('version')} answers on 127.0.0.1:{port}")
    if not ward.shim.get("metering"):
        yield Finding(
            "shim",
            WRONG,
            "the shim meters nothing: its own VM_USAGE_LOG is not set",
            "echo VM_USAGE_LOG=/var/log/vm-usage/usage.jsonl >> /etc/default/usage-shim; systemctl restart usage-shim",
        )
    if error := ward.shim.get("log_error"):
        yield Finding("shim", WRONG, f"the shim cannot write its log: {error}", f"df -h; ls -l {ward.shim.get('log')}")
    if ward.shim.get("metering") and not ward.shim.get("inflight_durable", True):
        error = ward.shim.get("inflight_error")
        yield Finding(
            "shim", NOTE, f"calls in flight would not survive a crash of the shim: {error}", "ls -ld /var/lib/vm-usage"
        )
    for name, why in (ward.shim.get("reload_refused") or {}).items():
        yield Finding(
            "shim", WRONG, f"the changed {name} was refused, the old one is in force: {why}", "usage-shim check"
        )
    yield from _reached(ward.shim)


def _reached(status: dict[str, Any]) -> Iterator[Finding]:
    by: dict[str, int] = {}
    for row in status.get("calls") or []:
        by[row["runtime"]] = by.get(row["runtime"], 0) + row["count"]
    if by:
        yield Finding(
            "shim", OK, "metered calls since its start: " + ", ".join(f"{name} {n}" for name, n in by.items())
        )
    for row in status.get("refused") or []:
        yield Finding("shim", NOTE, f"{row['count']} calls were forwarded and not metered: {row['reason']}")


def lines_arrive(ward: Ward) -> Iterator[Finding]:
    """Whether the log is there and how old its last line is."""
    log = ward.settings.log
    if log is None:
        return
    if not log.exists():
        yield Finding("lines", WRONG, f"{log} does not exist: no call was metered yet", "usage-shim status")
        return
    age = ward.now - log.stat().st_mtime
    when = datetime.fromtimestamp(log.stat().st_mtime, UTC)
    level = NOTE if age > QUIET_SECONDS else OK
    yield Finding(
        "lines", level, f"last line written {when:%Y-%m-%d %H:%M} UTC", "usage-shim status" if level == NOTE else None
    )


def picoclaw_points_at_shim(ward: Ward) -> Iterator[Finding]:
    """Whether PicoClaw's configuration still sends its calls through the shim."""
    for home in ward.settings.homes:
        config = Path(ward.environ.get("PICOCLAW_CONFIG") or home / ".picoclaw/config.json")
        if not config.is_file():
            continue
        drift = config_drift(config, ward.settings.shim_port, ward.environ)
        if not drift:
            yield Finding("picoclaw", OK, f"{config} points at the shim")
        for what in drift:
            yield Finding(
                "picoclaw", WRONG, f"{config}: {what}", f"usage-shim provision picoclaw --config {config} --apply"
            )


CHECKS: Final = (
    ("opt-in", opt_in),
    ("shim", shim_is_up),
    ("lines", lines_arrive),
    ("picoclaw", picoclaw_points_at_shim),
)
