"""``usage-collector export``: the ledger's records for other programs."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

import click
import orjson

from collector.commands.chosen import chooses, filter_of
from collector.commands.report import closing_query
from collector.export import csv, focus, otlp, otlp_send, parquet
from collector.export.records import DayOf
from collector.ledger import Entry
from collector.query import Query
from collector.settings import Settings
from collector.windows import Calendar

FORMATS: Final = ("csv", "parquet", "focus", "otlp")


@click.command("export")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File to write; standard output unless given.")
@chooses
@click.option("--db", type=click.Path(path_type=Path), help="The ledger file.")
@click.option("--hub", metavar="URL", help="Records of the hub there instead of this VM's.")
@click.option("--endpoint", metavar="URL", help="otlp: where to send; else OTEL_EXPORTER_OTLP_ENDPOINT.")
@click.option("--header", "given", multiple=True, metavar="NAME=VALUE", help="otlp: a header to send along.")
@click.option("--semconv", type=click.Choice(tuple(otlp.NAMES)), default="latest", help="otlp: which set of names.")
@click.option(
    "--encoding", type=click.Choice(tuple(otlp_send.ENCODINGS)), default="protobuf", help="otlp: how to send."
)
@click.pass_obj
def command(
    settings: Settings,
    /,
    form: str,
    output: Path | None,
    db: Path | None,
    hub: str | None,
    endpoint: str | None,
    given: tuple[str, ...],
    semconv: str,
    encoding: str,
    **options: str | None,
) -> None:
    """Write records as CSV or Parquet, FOCUS-shaped rows, or send sums to an OpenTelemetry collector.

    An unknown cost is an empty cell or a null, never a zero; cost_status says what a cost is worth.

    \b
    usage-collector export --format csv --window month > usage.csv
    usage-collector export --format parquet --since 2026-11-01 -o usage.parquet
    usage-collector export --format focus --window month -o focus.csv
    usage-collector export --format otlp --endpoint http://127.0.0.1:4318
    usage-collector export --format otlp -o metrics.json
    usage-collector export --format otlp --hub https://hub.example -o metrics.json
    """
    with closing_query(settings, db, hub) as query:
        where = filter_of(query, options)
        if form == "otlp":
            made = otlp.requests(query.groups(where), semconv, _first_seen(query), time.time())
            _otlp(made, output, encoding, endpoint, _headers(given))
        elif hub is None:
            _records(query.ledger.scan(where), query.calendar.today, form, output)
        else:
            calendar = Calendar(settings.zone)
            _records(query.scan(where, calendar), calendar.today, form, output)


def _records(entries: Iterable[Entry], day_of: DayOf, form: str, output: Path | None) -> None:
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("Parquet is no text: give --output FILE")
    if output is None:
        _write(day_of, entries, form, sys.stdout.buffer)
        return
    # written beside and renamed, so that a file of that name is always a whole export
    partial = output.with_name(f".{output.name}.partial")
    try:
        with partial.open("wb") as file:
            count = _write(day_of, entries, form, file)
        partial.replace(output)
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written ({error.strerror}).") from error
    finally:
        partial.unlink(missing_ok=True)
    click.echo(f"{count} rows written to {output}", err=True)


def _write(day_of: DayOf, entries: Iterable[Entry], form: str, out: IO[bytes]) -> int:
    if form == "parquet":
        try:
            return parquet.write(entries, day_of, out)
        except ImportError:
            raise click.ClickException("Parquet needs pyarrow: pip install 'vm-usage[parquet]'.") from None
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=False)
    try:
        return focus.write(entries, text) if form == "focus" else csv.write(entries, day_of, text)
    finally:
        text.flush()
        text.detach()


def _first_seen(query: Query) -> float:
    """When counting began, epoch seconds."""
    seen = [row.first_seen for row in query.vms() if row.first_seen is not None]
    return min((datetime.fromisoformat(at).timestamp() for at in seen), default=0.0)


def _otlp(
    made: Iterable[dict[str, Any]], output: Path | None, encoding: str, endpoint: str | None, headers: dict[str, str]
) -> None:
    if output is not None:
        output.write_bytes(b"".join(orjson.dumps(request) + b"\n" for request in made))
        return
    url = otlp_send.endpoint(endpoint, os.environ)
    try:
        taken, rejected = otlp_send.send(made, url, {**otlp_send.headers(os.environ), **headers}, encoding)
    except otlp_send.ExportError as error:
        raise click.ClickException(str(error)) from error
    except ImportError:
        raise click.ClickException("Protobuf needs: pip install 'vm-usage[otlp]', or give --encoding json.") from None
    click.echo(f"{taken} data points taken, {rejected} rejected by {url}", err=True)
    if rejected:
        sys.exit(1)


def _headers(given: tuple[str, ...]) -> dict[str, Any]:
    for text in given:
        if "=" not in text:
            raise click.UsageError("--header must be NAME=VALUE")
    return {name.strip(): value for name, _, value in (text.partition("=") for text in given)}
