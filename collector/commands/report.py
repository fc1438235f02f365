"""``usage-collector report``: tokens and cost by day, model, runtime, session or vm."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import orjson

from collector import money
from collector.commands.chosen import chooses, filter_of
from collector.commands.opening import open_query
from collector.commands.table import console, missing, plain, print_sums
from collector.export.csv import cell
from collector.hub.settings import checked_url
from collector.query import Query
from collector.remote import RemoteError, RemoteQuery
from collector.rows import Filter, Page, SessionRow, Sums, as_json, second_estimate
from collector.secret_file import read_secret
from collector.settings import Settings

# More rows than there are.
EVERYTHING: Final = 10**9
# Sessions in a table, where nobody asks for more; a script gets them all.
SHOWN_SESSIONS: Final = 100
FORMS: Final = ("table", "json", "csv")
TEXTS: Final = (str, tuple, list)


@dataclass(frozen=True, slots=True)
class Kind:
    """One ``--by``: the question for at most so many rows, the titles of the columns that name a row, and those names.

    All but sessions are few and always shown whole.
    """

    ask: Callable[[Query, Filter, int], Sequence[Any]]
    title: str
    names: Callable[[Any], Sequence[str]]


KINDS: Final[Mapping[str, Kind]] = {
    "day": Kind(lambda query, where, _: query.aggregates(where), "day", lambda row: (row.day or "no time",)),
    "model": Kind(lambda query, where, _: query.models(where), "model", lambda row: (row.model or "unknown",)),
    "runtime": Kind(lambda query, where, _: query.runtimes(where), "runtime", lambda row: (row.runtime,)),
    "session": Kind(
        lambda query, where, limit: query.sessions(where, Page(limit)).rows,
        "session|runtime",
        lambda row: (row.session_id, row.runtime),
    ),
    "vm": Kind(lambda query, where, _: query.vms(where), "vm", lambda row: (row.vm,)),
}


@click.command("report")
@click.option("--by", type=click.Choice(list(KINDS)), default="day", show_default=True, help="What a row stands for.")
@chooses
@click.option("--db", type=click.Path(path_type=Path), help="The ledger file.")
@click.option("--hub", metavar="URL", help="Ask the hub there instead of this VM's ledger.")
@click.option("--format", "form", type=click.Choice(FORMS), default="table", show_default=True)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"At most N sessions, the most recent ones; 0 for all. A table shows {SHOWN_SESSIONS}, JSON and CSV all.",
)
@click.pass_obj
def command(
    settings: Settings,
    /,
    by: str,
    db: Path | None,
    hub: str | None,
    form: str,
    limit: int | None,
    **options: str | None,
) -> None:
    """Show tokens and cost. A cost that is not known reads "unknown" and is never $0.00.

    \b
    usage-collector report --window month
    usage-collector report --by session --runtime picoclaw --since 2026-11-01
    usage-collector report --by vm --hub https://hub.example
    usage-collector report --by model --format json | jq '.rows[] | {model, cost_usd, cost_status}'
    """
    if limit is None:
        limit = SHOWN_SESSIONS if form == "table" and by == "session" else EVERYTHING
    elif by != "session":
        raise click.UsageError("--limit is for --by session: all else is always shown whole")
    limit, kind = limit or EVERYTHING, KINDS[by]
    with closing_query(settings, db, hub) as query:
        where = filter_of(query, options)
        # One more than is shown tells whether there are more.
        rows = kind.ask(query, where, limit + 1)
        total = query.total(where)
    write(kind, rows, total, form, limit)


def write(kind: Kind, rows: Sequence[Any], total: Sums, form: str, limit: int) -> None:
    """Print rows in one of ``FORMS``, at most ``limit`` of them."""
    more = limit < len(rows)
    rows = rows[:limit] if more else rows
    if form == "json":
        sys.stdout.write(orjson.dumps({"rows": [as_json(row) for row in rows]}).decode() + "\n")
    elif form == "csv":
        write_csv([as_json(row) for row in rows])
    else:
        write_table(kind, rows, total, more=more)


@contextmanager
def closing_query(settings: Settings, db: Path | None, hub: str | None = None) -> Iterator[Any]:
    """The query layer of the ledger, or of a hub by its URL, as a context that closes it."""
    if hub is None:
        query = open_query(replace(settings, db=db) if db else settings)
        with closing(query.ledger):
            yield query
        return
    if db is not None:
        raise click.UsageError("give --db or --hub, not both")
    path = settings.api_token_file
    token = read_secret(path, "VM_USAGE_API_TOKEN_FILE") if path else None
    try:
        with closing(RemoteQuery(checked_url(hub.rstrip("/"), "--hub"), token)) as remote:
            yield remote
    except RemoteError as error:
        raise click.ClickException(str(error)) from error


def write_csv(rows: Sequence[dict[str, Any]]) -> None:
    """Rows as CSV; unknown is empty, several names in one cell are parted by spaces."""
    if rows:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(rows[0])
        for row in rows:
            exact = {**row, "cost_usd": money.plain(row["cost_pico"])}
            writer.writerow([_text(value) if type(value) in TEXTS else value for value in exact.values()])


def _text(value: str | Sequence[str]) -> str:
    return cell("text", value if isinstance(value, str) else " ".join(value))


def write_table(kind: Kind, rows: Sequence[Any], total: Sums, *, more: bool = False) -> None:
    """Rows with their total; sentences say what the total leaves out and whether there are more rows."""
    out = console()
    if not rows:
        out.print("No calls there. `usage-collector doctor` says what is missing.")
        return
    print_sums(out, kind.title, [(kind.names(row), row) for row in rows], total if more or len(rows) > 1 else None)
    for row in rows:
        if isinstance(row, SessionRow) and (second := second_estimate(row)):
            out.print(plain(f"{row.session_id}: {second}"), soft_wrap=True)
    if left_out := missing(total):
        out.print(left_out)
    if more:
        shown = "is the most recent session" if len(rows) == 1 else f"are the {len(rows):,} most recent sessions"
        out.print(f"Above {shown}, the total is of all; --limit 0 shows all.")
