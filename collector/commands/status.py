"""``usage-collector status``: windows, shim, sources, lag and refusals on one screen."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
import orjson
from rich.console import Console

from collector.commands.report import closing_query
from collector.commands.table import console, plain, print_sums
from collector.doctor.shim_checks import shim_status
from collector.rows import GapRow, RefusedRow, SourceRow, as_json
from collector.settings import Settings

WINDOWS: Final = ("today", "week", "month", "all")
SHOWN: Final = 5


@click.command("status")
@click.option("--db", type=click.Path(path_type=Path), help="The ledger file.")
@click.option("--hub", metavar="URL", help="Ask the hub there instead of this VM's ledger.")
@click.option("--json", "as_object", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(settings: Settings, db: Path | None, hub: str | None, as_object: bool) -> None:
    """Show today, week and month, the shim, the sources and their lag, and what was refused or is missing."""
    with closing_query(settings, db, hub) as query:
        windows, sources = query.summary(WINDOWS), query.sources()
        refused, gaps = query.refused(), query.gaps()
    shim = shim_status(settings.shim_port)
    if as_object:
        parts: dict[str, Any] = {
            "windows": [as_json(row) for row in windows],
            "shim": shim,
            "sources": [asdict(row) for row in sources],
            "refused": [asdict(row) for row in refused],
            "gaps": [asdict(row) for row in gaps],
        }
        sys.stdout.write(orjson.dumps(parts).decode() + "\n")
        return
    out = console()
    print_sums(out, "window", [((row.window,), row) for row in windows])
    out.print(shim_line(shim, settings.shim_port))
    show_sources(sources, out)
    show_refused(refused, out)
    show_gaps(gaps, out)


def shim_line(shim: dict[str, Any] | None, port: int) -> str:
    """The shim in one line."""
    if shim is None:
        return f"shim: none answers on port {port}"
    parts = [f"{shim['in_flight']} in flight", f"{shim['lines_written']} lines written"]
    if shim["waiting"]:
        parts.append(f"{shim['waiting']} waiting for the log ({shim['log_error']})")
    if not shim["metering"]:
        parts.append("metering nothing: VM_USAGE_LOG is not set for it")
    return f"shim: {shim['version']} on port {port}, " + ", ".join(parts)


def show_sources(sources: list[SourceRow], out: Console) -> None:
    """How many sources are read and how far behind, and those that cannot be read."""
    broken = [source for source in sources if not source.ok]
    lag = sum(source.lag_bytes for source in sources)
    latest = max((source.last_read_at or "" for source in sources), default="")
    text = f"sources: {len(sources) - len(broken)} read, {lag:,} bytes behind"
    out.print(text + (f", last read {latest[:19]} UTC" if latest else ""))
    for source in broken[:SHOWN]:
        out.print(plain(f"  not readable: {source.path}: {source.error}"))
    _more(broken, out)


def show_refused(refused: list[RefusedRow], out: Console) -> None:
    """What counts nowhere, and why."""
    out.print(f"refused: {sum(row.count for row in refused):,} records")
    for row in refused[:SHOWN]:
        out.print(plain(f"  {row.count:,} {row.reason} ({row.runtime}, {row.vm})"))
    _more(refused, out)


def show_gaps(gaps: list[GapRow], out: Console) -> None:
    """Usage lines that were written and never arrived."""
    out.print(f"missing: {sum(gap.lines for gap in gaps):,} usage lines")
    for gap in gaps[:SHOWN]:
        out.print(plain(f"  {gap.lines:,} of {gap.vm}: {gap.boot}-{gap.first_seq} to {gap.last_seq}"))
    _more(gaps, out)


def _more(rows: list[Any], out: Console) -> None:
    if len(rows) > SHOWN:
        out.print(f"  and {len(rows) - SHOWN} more: usage-collector status --json")
