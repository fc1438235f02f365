"""``usage-collector ingest``: one pass over logs and runtime stores, and what came of it."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, FileSizeColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from collector.commands.opening import open_ingest, open_ledger
from collector.ingest_report import IngestReport
from collector.settings import Settings


@click.command("ingest")
@click.option("--log", "logs", multiple=True, type=click.Path(path_type=Path), help="Usage log; may be repeated.")
@click.option("--home", "homes", multiple=True, type=click.Path(path_type=Path), help="Home folder; may be repeated.")
@click.option("--db", type=click.Path(path_type=Path), help="The ledger file.")
@click.pass_obj
def command(settings: Settings, logs: tuple[Path, ...], homes: tuple[Path, ...], db: Path | None) -> None:
    """Read usage logs and runtime stores once.

    Prints what was read, what was refused and why. Without --log and --home: the log and homes of the settings; with
    one of them, only what is named. What was read before is not read again and never counted twice.
    """
    if db is not None:
        settings = replace(settings, db=db)
    chosen = bool(logs or homes)
    with closing(open_ledger(settings)) as ledger:
        ingest = open_ingest(settings, ledger, logs=logs if chosen else None, homes=homes if chosen else None)
        with progress_bar() as bar:
            task = bar.add_task("reading", total=None)
            report = ingest.once(lambda size: bar.update(task, advance=size))
        ingest.close()
    for line in lines(report):
        click.echo(line)


def progress_bar() -> Progress:
    """How much was read so far, on standard error and only where that is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        FileSizeColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def lines(report: IngestReport) -> list[str]:
    """The report as lines of text."""
    found = [
        f"logs: {report.files} files read, {report.unchanged} unchanged, {report.lines} lines, {report.new_lines} new"
    ]
    for title, counts in (("refused", report.refused), ("quarantined", report.quarantined)):
        found += [f"  {title}: {count} {reason}" for reason, count in sorted(counts.items())]
    if report.missing_lines:
        found.append(f"  missing: {report.missing_lines} lines by their numbers")
    for name, one in sorted(report.runtimes.items()):
        text = f"{name}: {one.files} files ({one.unchanged} unchanged), {one.sessions} sessions, {one.records} records"
        skipped = ", ".join(f"{count} {reason}" for reason, count in sorted(one.skipped.items()))
        if one.evidence:
            text += f", {one.evidence} kept as evidence"
        found.append(f"{text}, skipped {skipped}" if skipped else text)
    if report.lost_workers:
        found.append(f"{report.lost_workers} reading processes ended early; this one read what they had left")
    found += [f"not read: {path}: {reason}" for path, reason in report.errors]
    return found
