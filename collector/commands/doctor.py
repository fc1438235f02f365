"""``usage-collector doctor``: what is wrong on this VM, each finding with the command that mends it."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict

import click
import orjson
from rich.console import Console

from collector.commands.table import plain
from collector.doctor import (
    NOTE,
    OK,
    WRONG,
    Finding,
    Ward,
    examine,
    hub_checks,
    ledger_checks,
    machine_checks,
    shim_checks,
)
from collector.settings import Settings

MARKS = {OK: "[green]ok   [/]", NOTE: "[yellow]note [/]", WRONG: "[red]wrong[/]"}
CHECKS = (*shim_checks.CHECKS, *machine_checks.CHECKS, *ledger_checks.CHECKS, *hub_checks.CHECKS)


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_obj
def command(settings: Settings, as_json: bool) -> None:
    """Say what is wrong on this VM and how to mend it.

    Looks at opt-in variables, the shim and who reaches it, lines arriving, allowlist, permissions, clock, disk, the
    ledger, stores, gaps, refusals and the price book. Changes nothing. Exit status 1 where something is wrong.
    """
    findings = list(examine(ward(settings), CHECKS))
    if as_json:
        sys.stdout.write(orjson.dumps({"rows": [asdict(finding) for finding in findings]}).decode() + "\n")
    else:
        show(findings, Console(highlight=False))
    sys.exit(1 if any(finding.level == WRONG for finding in findings) else 0)


def ward(settings: Settings) -> Ward:
    """Everything the checks look at, gathered once."""
    from collector.commands.opening import open_query
    from collector.ledger import LedgerError

    query, trouble = None, None
    try:
        query = open_query(settings) if settings.db.exists() else None
    except LedgerError as error:
        trouble = str(error)
    status = shim_checks.shim_status(settings.shim_port)
    return Ward(settings, query, status, time.time(), trouble, dict(os.environ))


def show(findings: list[Finding], console: Console) -> None:
    """One line a finding and, below it, what mends it."""
    for finding in findings:
        console.print(MARKS[finding.level], end=" ")
        console.print(plain(f"{finding.check}: {finding.text}"), soft_wrap=True)
        if finding.mend and finding.level != OK:
            console.print(plain(f"      mend: {finding.mend}"), soft_wrap=True)
    wrong = sum(finding.level == WRONG for finding in findings)
    console.print(f"\n{wrong} wrong." if wrong else "\nNothing is wrong.", style="bold")
