"""``usage-collector stores``: show the service the session stores of the allowlist's runtimes, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from collector.settings import Settings
from collector.stores import RUNTIMES, drop_in, grants, present
from shim.names import ConfigError

DROP_IN: Final = Path("/etc/systemd/system/usage-collector.service.d/stores.conf")
SEEN: Final = "# Present: "


@click.command("stores")
@click.option("--home", "homes", multiple=True, type=click.Path(path_type=Path), help="Instead of VM_USAGE_HOMES.")
@click.option("--runtime", "runtimes", multiple=True, type=click.Choice(sorted(RUNTIMES)), help="Only these.")
@click.option("--systemd", "action", flag_value="systemd", help="Print the drop-in of usage-collector.service.")
@click.option("--acl", "action", flag_value="acl", help="Print the commands that let the service read them.")
@click.option("--apply", "action", flag_value="apply", help="As root: do both, and restart the service if need be.")
@click.option("--remove", "action", flag_value="remove", help="As root: take both back.")
@click.pass_obj
def command(settings: Settings, homes: tuple[Path, ...], runtimes: tuple[str, ...], action: str | None) -> None:
    """List the session stores that are there; show them to usage-collector.service with --apply.

    The service sees no home. --apply binds the stores into it, read-only, and sets access lists, each as the home's
    own user; usage-stores.timer does that again for stores and files that have come since.
    """
    homes, chosen = homes or settings.homes, runtimes or tuple(sorted(RUNTIMES))
    if action == "systemd":
        click.echo(drop_in(homes, chosen), nl=False)
    elif action == "acl":
        for home in homes:
            click.echo(f"# as the user of {home}")
            click.echo("".join(f"{line}\n" for line in grants(home, chosen)), nl=False)
    elif action == "apply":
        _as_root()
        sys.exit(apply(homes, chosen))
    elif action == "remove":
        _as_root()
        sys.exit(remove(homes))
    else:
        for path in present(homes, chosen):
            click.echo(path)


def apply(homes: Sequence[Path], runtimes: Sequence[str]) -> int:
    """Set access lists and write the drop-in; the service is restarted where it would see more or less than before."""
    failed = [home for home in homes if not _as_owner(home, grants(home, runtimes))]
    for home in failed:
        click.echo(f"usage-collector: not every store of {home} could be shared.", err=True)
    text = drop_in(homes, runtimes)
    text += "".join(f"{SEEN}{path}\n" for path in present(homes, runtimes))
    if not DROP_IN.exists() or DROP_IN.read_text() != text:
        DROP_IN.parent.mkdir(mode=0o755, exist_ok=True)
        DROP_IN.write_text(text)
        _systemctl("daemon-reload")
        _systemctl("try-restart", "usage-collector.service")
        click.echo(f"{DROP_IN} written; the service sees {text.count(SEEN)} stores.")
    return 1 if failed else 0


def remove(homes: Sequence[Path]) -> int:
    """Take the access lists of every store back, and the drop-in."""
    failed = [home for home in homes if not _as_owner(home, grants(home, take_back=True))]
    if DROP_IN.exists():
        DROP_IN.unlink()
        if not any(DROP_IN.parent.iterdir()):
            DROP_IN.parent.rmdir()
        _systemctl("daemon-reload")
        _systemctl("try-restart", "usage-collector.service")
    return 1 if failed else 0


def _as_root() -> None:
    if os.geteuid() != 0:
        raise ConfigError("only root can do that: run it with sudo, or read the stores as their own user.")


def _as_owner(home: Path, lines: Sequence[str]) -> bool:
    """Run shell commands as the user whose home it is: what is not his stays untouched."""
    if not lines:
        return True
    owner = home.stat()
    done = subprocess.run(
        ["/bin/sh", "-c", "\n".join(["failed=0", *(f"{line} || failed=1" for line in lines), "exit $failed"])],
        user=owner.st_uid,
        group=owner.st_gid,
        extra_groups=[],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        check=False,
    )
    return done.returncode == 0


def _systemctl(*arguments: str) -> None:
    """Best effort: the drop-in counts from the next start in any case."""
    if Path("/run/systemd/system").is_dir():
        subprocess.run(["systemctl", *arguments], check=False)
