"""``usage-collector reconcile``: the vendor's bill beside our records."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import click
import orjson
from rich.table import Table

from collector import reconcile, reconcile_files, windows
from collector.commands import table
from collector.commands.report import closing_query
from collector.ledger import Entry
from collector.money import show, to_pico
from collector.reconcile import CLASSES, Item, ReconcileError, Row
from collector.reconcile_cursor import LATE_SECONDS, CursorAdmin, api_key, base_url
from collector.rows import Filter
from collector.settings import Settings
from shim.names import resolve

DEFAULT_DAYS: Final = 7
Scan = Callable[[Filter], Iterable[Entry]]
VENDORS: Final = ("cursor", *reconcile_files.FORMATS)


@click.command("reconcile")
@click.argument("vendor", type=click.Choice(VENDORS))
@click.argument("export", required=False, type=click.Path(path_type=Path))
@click.option("--since", metavar="DAY", help="First day, YYYY-MM-DD; a week ago, or the export's first, unless given.")
@click.option("--until", metavar="DAY", help="Last day, included; today, or the export's last, unless given.")
@click.option("--email", help="cursor: only this user's events.")
@click.option("--headless", is_flag=True, help="cursor: only events of the CLI.")
@click.option("--db", type=click.Path(path_type=Path), help="The ledger file.")
@click.option("--hub", metavar="URL", help="Take the records of the hub there instead of this VM's.")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
@click.pass_obj
def command(
    settings: Settings,
    vendor: str,
    export: Path | None,
    since: str | None,
    until: str | None,
    email: str | None,
    headless: bool,
    db: Path | None,
    hub: str | None,
    form: str,
) -> None:
    """Set the bill of VENDOR beside our records, per day and model.

    cursor asks Cursor's Admin API (key in VM_USAGE_CURSOR_KEY_FILE, a 0600 file); openai, anthropic and openrouter
    read a usage EXPORT, JSON or CSV, whose days are UTC. The ledger is not changed.

    \b
    usage-collector reconcile cursor --since 2026-11-01
    usage-collector reconcile cursor --hub https://hub.example
    usage-collector reconcile anthropic usage.csv --format json
    """
    try:
        span = windows.between(since, until)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if (vendor == "cursor") is (export is not None):
        raise click.UsageError("cursor takes no export" if export else f"{vendor} needs the export's file")
    try:
        with closing_query(settings, db, hub) as query:
            calendar = query.calendar if hub is None else windows.Calendar(settings.zone)
            scan = query.ledger.scan if hub is None else partial(query.scan, calendar=calendar)
            if export is None:
                rows = _cursor(scan, calendar, settings, span, email, headless=headless)
            else:
                rows = _file(scan, vendor, export, span)
    except ReconcileError as error:
        raise click.ClickException(str(error)) from error
    if form == "json":
        sys.stdout.write(orjson.dumps({"rows": [asdict(row) for row in rows]}).decode() + "\n")
    else:
        _show(rows)


def _cursor(
    scan: Scan,
    calendar: windows.Calendar,
    settings: Settings,
    span: windows.Window,
    email: str | None,
    *,
    headless: bool,
) -> list[Row]:
    now = time.time()
    today = calendar.today(now)
    until = span.until or today
    span = windows.Window(span.since or until - timedelta(days=DEFAULT_DAYS - 1), until)
    start, end = calendar.bounds(span)
    names = resolve(settings.environ)
    with CursorAdmin(api_key(names), base_url(names)) as admin:
        found = admin.events(start or 0.0, min(end or now, now), email)
        events = [one for one in found if one.headless or not headless]
    theirs = [one.item(calendar.today(one.ts)) for one in events]
    ours = reconcile.ours(scan(Filter(span, runtime="cursor")), calendar.today)
    return reconcile.compare(ours, theirs, calendar.today(now - LATE_SECONDS))


def _file(scan: Scan, vendor: str, export: Path, span: windows.Window) -> list[Row]:
    theirs = reconcile_files.read(export, vendor)
    days = [item.day for item in theirs]
    first, last = span.since or min(days, default=None), span.until or max(days, default=None)
    # the export's days are UTC: ours are looked for a day around and cut by the same days
    wider = windows.Window(first and first - timedelta(days=1), last and last + timedelta(days=1))
    entries = (entry for entry in scan(Filter(wider)) if reconcile.made_at(entry) == vendor)
    ours = reconcile.ours(entries, lambda ts: datetime.fromtimestamp(ts, UTC).date())
    return reconcile.compare(_within(ours, first, last), _within(theirs, first, last))


def _within(items: Iterable[Item], first: date | None, last: date | None) -> list[Item]:
    return [item for item in items if (first is None or item.day >= first) and (last is None or item.day <= last)]


def _show(rows: list[Row]) -> None:
    console = table.console()
    if not rows:
        console.print("Neither side has anything in these days.")
        return
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("day", no_wrap=True)
    shown.add_column("model", no_wrap=True, max_width=18 if console.is_terminal else None, overflow="ellipsis")
    shown.add_column("", no_wrap=True)
    for name in ("calls", "tokens", "ours", "billed"):
        shown.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(
            row.day + ("*" if row.open else ""),
            table.plain(row.model),
            row.state.replace("_", " "),
            f"{row.our_calls}/{'-' if row.their_calls is None else row.their_calls}",
            f"{_tokens(row.our_tokens)}/{_tokens(row.their_tokens)}",
            _usd(row.our_cost_usd),
            _usd(row.billed_usd if row.billed_usd is not None else row.value_usd),
        )
    console.print(shown)
    console.print("\ncalls and tokens: ours/theirs")
    if any(row.open for row in rows):
        console.print("* the vendor may still add events to this day")


def _tokens(found: dict[str, int]) -> str:
    return table.count(sum(found.get(name, 0) for name in CLASSES)) if found else "-"


def _usd(value: float | None) -> str:
    return "-" if value is None else show(to_pico(value))
