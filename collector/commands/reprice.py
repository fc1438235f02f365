"""``usage-collector reprice``: what other prices would make of records that have theirs."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import orjson
from rich.table import Table

from collector.commands import table
from collector.commands.chosen import chooses, filter_of
from collector.commands.opening import open_ledger, open_query
from collector.ledger import Estimate, estimates
from collector.money import show, to_pico
from collector.pricelists import pricer
from collector.reprice import Change, changes, differences
from collector.settings import Settings


@click.command("reprice")
@chooses
@click.option("--db", type=click.Path(path_type=Path), help="The ledger file.")
@click.option("--apply", "apply_", is_flag=True, help="Write the new prices beside the first, with today's date.")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
@click.pass_obj
def command(settings: Settings, /, db: Path | None, apply_: bool, form: str, **options: str | None) -> None:
    """Show what the prices of now (book, prices.yaml, ACU rate) would make of records priced before.

    A record keeps the price it came in with; --apply writes a second, dated estimate beside it and changes no sum.

    \b
    usage-collector reprice --since 2026-11-01
    usage-collector reprice --since 2026-11-01 --model acme-large-2 --apply
    """
    settings = replace(settings, db=db) if db else settings
    query = open_query(settings)
    with closing(query.ledger):
        found = list(changes(query.ledger.scan(filter_of(query, options)), pricer(settings)))
    rows = [one.row() for one in differences(found)]
    written = _apply(settings, found) if apply_ else None
    if form == "json":
        sys.stdout.write(orjson.dumps({"rows": rows, "written": written}).decode() + "\n")
    else:
        _show(rows, written)


def _apply(settings: Settings, found: list[Change]) -> int:
    now = int(time.time() * 1000)
    with closing(open_ledger(settings)) as ledger, ledger.transaction() as tx:
        made = ((one.entry.id, Estimate(now, one.priced.cost_pico, one.kind, one.rates)) for one in found)
        return estimates.add(tx, made)


def _cost(usd: float | None, status: str) -> str:
    return show(None) if usd is None else f"{show(to_pico(usd))} {status}"


def _show(rows: list[dict[str, Any]], written: int | None) -> None:
    console = table.console()
    if not rows:
        console.print("Every record has the price that it would have now.")
        return
    shown = Table("runtime", box=None, pad_edge=False)
    shown.add_column("model", no_wrap=True, max_width=22 if console.is_terminal else None, overflow="ellipsis")
    for name in ("records", "cost", "repriced"):
        shown.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        old, new = _cost(row["cost_usd"], row["cost_status"]), _cost(row["repriced_usd"], row["repriced_status"])
        shown.add_row(row["runtime"], row["model"] or "unknown", str(row["records"]), old, new)
    console.print(shown)
    console.print("\nNothing was changed; --apply writes it." if written is None else f"\n{written} estimates written.")
