"""``usage-collector status``: windows, sources, lag and refusals."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path

import click
import orjson

from collector import money
from collector.commands.opening import open_query
from collector.rows import as_json
from collector.settings import Settings


@click.command("status")
@click.option("--db", type=click.Path(path_type=Path), help="The ledger file.")
@click.option("--json", "as_object", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(settings: Settings, db: Path | None, as_object: bool) -> None:
    """Show today, week and month, the sources and what was refused."""
    query = open_query(replace(settings, db=db) if db else settings)
    windows, sources = query.summary(("today", "week", "month", "all")), query.sources()
    refused, gaps = query.refused(), query.gaps()
    query.ledger.close()
    if as_object:
        parts = {
            "windows": [as_json(row) for row in windows],
            "sources": [asdict(row) for row in sources],
            "refused": [asdict(row) for row in refused],
            "gaps": [asdict(row) for row in gaps],
        }
        sys.stdout.write(orjson.dumps(parts).decode() + "\n")
        return
    for row in windows:
        click.echo(f"{row.window:8} {row.calls:>8} calls {money.show(row.cost_pico):>12} {row.cost_status}")
    broken = [source for source in sources if not source.ok]
    click.echo(f"sources: {len(sources)}, not readable: {len(broken)}, lag: {sum(s.lag_bytes for s in sources)} bytes")
    for source in broken:
        click.echo(f"  {source.path}: {source.error}")
    for one in refused:
        click.echo(f"refused: {one.count} {one.reason} {one.runtime} {one.vm}")
    for gap in gaps:
        click.echo(f"missing: {gap.lines} lines of {gap.vm}, {gap.boot}-{gap.first_seq} to {gap.last_seq}")
