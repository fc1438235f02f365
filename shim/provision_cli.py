"""The command line of ``usage-shim provision``: says what it finds, changes what it is told to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from shim import provision
from shim import provision_files as files
from shim.places import ETC
from shim.provision import Survey
from shim.settings import Settings


def check(config: Path, upstreams_env: Path, environ: Mapping[str, str]) -> int:
    """Say what is metered, what has drifted and what cannot be metered; 1 where something has drifted."""
    known = files.known_upstreams(upstreams_env, environ)
    found = provision.survey(files.read_text(config), Settings.from_env(environ).port, known)
    _say(found, "drifted")
    return 1 if found.drift else 0


def apply(config: Path, upstreams_env: Path, environ: Mapping[str, str]) -> int:
    """Point every entry that can be metered at the shim; 0, also where nothing is left to do."""
    text = files.read_text(config)
    known = files.known_upstreams(upstreams_env, environ)
    found = provision.survey(text, Settings.from_env(environ).port, known)
    if found.drift:
        made = files.read_record(config)
        new, made = provision.pointed_at_shim(text, found.steps, made)
        if found.upstreams:
            files.add_upstreams(upstreams_env, found.upstreams)
        if not files.backup_path(config).exists():
            files.replace(files.backup_path(config), text)
        files.write_record(config, made)
        files.replace(config, new)
    _say(found, "now metered")
    for name, base in sorted(found.upstreams.items()):
        click.echo(f"new upstream {name} = {base} in {upstreams_env}")
    if found.upstreams:
        click.echo(f"The shim must know them: {READ_BY_SERVICE if upstreams_env.parent == ETC else SOURCE_IT}")
    if found.drift:
        click.echo("PicoClaw reads its config at start: restart it.")
    return 0


def revert(config: Path, upstreams_env: Path, environ: Mapping[str, str]) -> int:
    """Restore every entry as it was before the first apply."""
    text = files.read_text(config)
    known = files.known_upstreams(upstreams_env, environ)
    new, restored = provision.taken_back(text, files.read_record(config), known)
    if restored:
        files.replace(config, new)
    backup = files.backup_path(config)
    if backup.exists() and files.read_text(backup) == new:
        backup.unlink()
    elif backup.exists():
        click.echo(f"{config} was changed by others too; as it was before the first apply it is in {backup}.")
    files.record_path(config).unlink(missing_ok=True)
    for name in restored:
        click.echo(f"{name}: restored")
    if not restored:
        click.echo("Nothing to restore: no entry leads through the shim.")
    return 0


def _say(found: Survey, drifted: str) -> None:
    for step in found.steps:
        if step.reason:
            click.echo(f"{step.entry.name}: not metered: {step.reason}")
        elif step.wanted:
            click.echo(f"{step.entry.name}: {drifted}: {step.entry.base or 'default base'} -> {step.wanted}")
        else:
            click.echo(f"{step.entry.name}: metered")
        if step.note and step.wanted:
            click.echo(f"  note: {step.note}")
    for line in found.outside:
        click.echo(f"{line} (not metered)")
    if not found.steps:
        click.echo("The config has no model_list entries.")


READ_BY_SERVICE: Final = "systemctl try-restart usage-shim."
SOURCE_IT: Final = "start it with the variables of that file (set -a; . FILE; set +a)."
ACTIONS: Final = {"check": check, "apply": apply, "revert": revert}


@click.group("provision", short_help="Point a runtime that reads no variable at the shim.")
def command() -> None:
    """Point a runtime that reads no base-URL variable at the shim, and back."""


@command.command("picoclaw")
@click.option("--config", type=click.Path(path_type=Path), help="Its config.json; else where PicoClaw looks.")
@click.option("--upstreams-env", type=click.Path(path_type=Path), help="Where new upstreams are written.")
@click.option("--check", "action", flag_value="check", help="Show what is metered; exit 1 if an entry has drifted.")
@click.option("--apply", "action", flag_value="apply", help="Point every entry that can be metered at the shim.")
@click.option("--revert", "action", flag_value="revert", help="Restore every entry as it was.")
def picoclaw_command(config: Path | None, upstreams_env: Path | None, action: str | None) -> None:
    """Rewrite model_list[].api_base of PicoClaw's config.json; every other byte stays as it is."""
    if action is None:
        raise click.UsageError("Give one of --check, --apply and --revert.")
    environ = os.environ
    path = config or provision.config_path(environ)
    raise SystemExit(ACTIONS[action](path, upstreams_env or files.default_upstreams_env(environ), environ))
