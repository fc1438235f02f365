"""``usage-collector audit``: review per-VM logs on their own."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from collector.audit.review import Reviewer
from collector.audit.show import as_json, print_text
from collector.settings import Settings
from collector.windows import Calendar


@click.command("audit")
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print the review.")
@click.option("--json", "as_json_flag", is_flag=True, help="The same as --format json.")
@click.pass_obj
def command(settings: Settings, logs: tuple[Path, ...], form: str, as_json_flag: bool) -> None:
    """Review usage LOGs (plain, .gz or .zst) without a ledger.

    Prints totals per day and model, restarts and interrupted calls, and findings: lines that are no usage lines,
    gaps, duplicates, unknown keys and suspicious strings. Exit status 1 where there is a finding.

    \b
    usage-collector audit /var/log/vm-usage/usage.jsonl*
    usage-collector audit --json fleet/*/usage.jsonl.gz | jq .findings
    """
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        size = sum(path.stat().st_size for path in logs if path.is_file())
        task = progress.add_task("reading", total=size)
        reviewer = Reviewer(Calendar(settings.zone), lambda count: progress.update(task, advance=count))
        audit = reviewer.review(logs)
    if as_json_flag or form == "json":
        sys.stdout.write(orjson.dumps(as_json(audit), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        print_text(audit, Console())
    sys.exit(0 if audit.clean else 1)
