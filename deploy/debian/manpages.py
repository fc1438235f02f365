"""Writes the man pages of both commands from what ``--help`` says: ``python manpages.py FOLDER``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from collector.cli import group as collector
from shim import __version__
from shim.cli import shim

# Beside what --help says.
FILES = {
    "/etc/default/usage-shim, usage-collector, usage-hub": "Settings of the services; every variable with its meaning.",
    "/etc/vm-usage/allowlist.yaml": "Which runtimes are metered. Reloaded when it changes.",
    "/var/log/vm-usage/usage.jsonl": "The usage log: one content-free line per call.",
    "/var/lib/vm-usage": "Keys, in-flight file, ledger.",
}


def escaped(text: str) -> str:
    """Text that troff takes literally."""
    text = text.replace("\\", "\\\\").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.splitlines())


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record:
            yield f".TP\n.B {escaped(record[0])}\n{escaped(record[1])}\n"


def page(name: str, top: click.Group) -> str:
    """One command with all its own, in man(7)."""
    day = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    context = click.Context(top, info_name=name)
    about = (top.help or "").split("\n\n")
    parts = [
        f'.TH {name.upper()} 1 "{day}" "vm-usage {__version__}"\n',
        f".SH NAME\n{name} \\- {escaped(about[0].rstrip('.'))}\n",
        f".SH SYNOPSIS\n.B {name}\nCOMMAND [OPTIONS]\n.SH DESCRIPTION\n",
        "".join(f".PP\n{escaped(text)}\n" for text in about),
        ".SH COMMANDS\n",
    ]
    for command_name in top.list_commands(context):
        command = top.get_command(context, command_name)
        if command is None:
            continue
        inner = click.Context(command, info_name=command_name, parent=context)
        parts.append(f".SS {escaped(command.get_usage(inner).removeprefix('Usage: '))}\n")
        help_text = (command.help or "").replace("\b\n", "").split("\n\n")
        parts.append(".PP\n".join(f"{escaped(text)}\n" for text in help_text))
        parts += options(command, inner)
    parts.append(".SH FILES\n")
    parts += [f".TP\n.B {escaped(path)}\n{escaped(text)}\n" for path, text in FILES.items()]
    parts.append(".SH EXIT STATUS\n0 ok, 1 failed, 2 bad usage or bad configuration.\n")
    return "".join(parts)


def main() -> None:
    folder = Path(sys.argv[1])
    for name, top in (("usage-shim", shim), ("usage-collector", collector)):
        (folder / f"{name}.1").write_text(page(name, top))


if __name__ == "__main__":
    main()
