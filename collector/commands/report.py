"""``usage-collector report``: tokens and cost by day, model, runtime, session or vm."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import orjson

from collector import money, windows
from collector.commands.opening import open_query
from collector.query import Query
from collector.rows import Filter, Page, as_json
from collector.settings import Settings

KINDS: Final = ("day", "model", "runtime", "session", "vm")
EVERYTHING: Final = Page(limit=10**9)


@click.command("report")
@click.option("--by", type=click.Choice(KINDS), default="day", show_default=True, help="What a row stands for.")
@click.option("--window", type=click.Choice(windows.WINDOWS), help="Named window; all unless given.")
@click.option("--since", help="First day, YYYY-MM-DD.")
@click.option("--until", help="Last day, YYYY-MM-DD, included.")
@click.option("--runtime", help="Only this runtime.")
@click.option("--vm", help="Only this VM.")
@click.option("--db", type=click.Path(path_type=Path), help="The ledger file.")
@click.option("--format", "form", type=click.Choice(("table", "json", "csv")), default="table", show_default=True)
@click.pass_obj
def command(
    settings: Settings,
    by: str,
    window: str | None,
    since: str | None,
    until: str | None,
    runtime: str | None,
    vm: str | None,
    db: Path | None,
    form: str,
) -> None:
    """Show tokens and cost. A cost that is not known reads "unknown" and is never $0.00."""
    if window and (since or until):
        raise click.UsageError("give --window or --since and --until, not both")
    with closing_query(settings, db) as query:
        try:
            span = query.window(window) if window else windows.between(since, until)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        rows = ask(query, by, Filter(span, runtime=runtime, vm=vm))
    if form == "json":
        sys.stdout.write(orjson.dumps({"rows": rows}).decode() + "\n")
    elif form == "csv":
        write_csv(rows)
    else:
        write_table(rows, by)


def closing_query(settings: Settings, db: Path | None) -> Any:
    """The query layer as a context that closes its ledger."""
    query = open_query(replace(settings, db=db) if db else settings)

    class Closing(closing):  # type: ignore[type-arg]
        def __enter__(self) -> Query:
            return query

    return Closing(query.ledger)


def ask(query: Query, by: str, where: Filter) -> list[dict[str, Any]]:
    """Rows as JSON objects."""
    answers: dict[str, Any] = {
        "day": query.aggregates,
        "model": query.models,
        "runtime": query.runtimes,
        "session": lambda where: query.sessions(where, EVERYTHING).rows,
        "vm": query.vms,
    }
    return [as_json(row) for row in answers[by](where)]


def write_csv(rows: Sequence[dict[str, Any]]) -> None:
    """Rows as CSV; unknown is empty."""
    if rows:
        writer = csv.DictWriter(sys.stdout, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, "cost_usd": money.plain(row["cost_pico"])})


def write_table(rows: Sequence[dict[str, Any]], by: str) -> None:
    """Rows as plain columns."""
    key = {"session": "session_id"}.get(by, by)
    for row in rows:
        tokens = "unknown" if row["total_tokens"] is None else f"{row['total_tokens']:,}"
        click.echo(
            f"{row[key] or 'unknown'!s:32.32} {row['calls']:>8} {tokens:>14} "
            f"{money.show(row['cost_pico']):>12} {row['cost_status']}"
        )
