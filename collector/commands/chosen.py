"""The options by which a command is told which records it is about, and what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from collector import windows
from collector.query import Query
from collector.rows import Filter

Command = TypeVar("Command", bound=Callable[..., Any])

OPTIONS: Final = (
    click.option("--window", type=click.Choice(windows.WINDOWS), help="Named window; all unless given."),
    click.option("--since", metavar="DAY", help="First day, YYYY-MM-DD."),
    click.option("--until", metavar="DAY", help="Last day, YYYY-MM-DD, included."),
    click.option("--runtime", help="Only this runtime."),
    click.option("--model", help="Only this model."),
    click.option("--vm", help="Only this VM."),
)


def chooses(command: Command) -> Command:
    """Give a command the options above."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def filter_of(query: Query, options: dict[str, str | None]) -> Filter:
    """The filter that the options mean. Raises ``click.UsageError``."""
    window, since, until = options["window"], options["since"], options["until"]
    if window and (since or until):
        raise click.UsageError("give --window or --since and --until, not both")
    try:
        span = query.window(window) if window else windows.between(since, until)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return Filter(span, runtime=options["runtime"], model=options["model"], vm=options["vm"])
