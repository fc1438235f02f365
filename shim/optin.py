"""``usage-shim optin``: base-URL variables for a whole machine, from one source file, and back.

``/etc/vm-usage/optin.env`` is the source; from it are made a file for login shells, one for systemd's user managers and
a drop-in for each named unit. A value of a user's or a unit's own wins everywhere. What was made is written down, and
removal takes exactly that back; nothing is on by default.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from shim import allowlist, env
from shim.names import ConfigError
from shim.settings import Settings

SOURCE: Final = "etc/vm-usage/optin.env"
RECORD: Final = "etc/vm-usage/optin.json"
PROFILE: Final = "etc/profile.d/vm-usage.sh"
USER_MANAGERS: Final = "etc/environment.d/60-vm-usage.conf"
# Early among a unit's drop-ins, so that one which an operator adds later wins.
DROP_IN: Final = "etc/systemd/system/{unit}.d/10-vm-usage.conf"
UNIT_FOLDERS: Final = tuple(f"{place}/systemd/system" for place in ("etc", "run", "usr/local/lib", "usr/lib", "lib"))
UNIT: Final = re.compile(r"[A-Za-z0-9:_.@-]+\.service")
NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
# No quotes, blanks, $ or %: the same text for a shell, for environment.d and for a unit.
VALUE: Final = re.compile(r"[A-Za-z0-9._~:/@+,=\[\]-]*")
MADE_BY: Final = "# Made by usage-shim optin from /etc/vm-usage/optin.env; usage-shim optin --remove takes it back.\n"
SOURCE_HEAD: Final = (
    "# Base URLs that point agents at the shim. KEY=value, no quotes. After a change: usage-shim optin --apply\n"
    "# A value that a user or a unit sets itself wins.\n"
)


@dataclass(slots=True)
class Machine:
    """The files below ``root``, and which of them (and of their folders) are ours."""

    root: Path
    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, root: Path) -> Machine:
        """The machine as the record tells of it. Raises ``ConfigError`` where the record cannot be read."""
        try:
            kept = json.loads((root / RECORD).read_text())
            return cls(root, kept["files"], kept["folders"], kept["units"])
        except FileNotFoundError:
            return cls(root)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"{root / RECORD} cannot be read ({error}): remove what it lists by hand.") from error

    def write(self, name: str, text: str) -> None:
        """Write a file of ours, if it is not so already. Raises ``ConfigError`` where there is one that is not ours."""
        path = self.root / name
        if path.exists() and name not in self.files:
            raise ConfigError(f"{path} is there and was not made by usage-shim optin: move it away.")
        if path.exists() and path.read_text() == text:
            return
        self.changed.append(name)
        for folder in reversed(path.parents):
            if not folder.exists():
                folder.mkdir(mode=0o755)
                self.folders.append(str(folder.relative_to(self.root)))
        if name not in self.files:
            self.files.append(name)
            self.save()
        draft = path.with_name(f".{path.name}.new")
        draft.write_text(text)
        draft.chmod(0o644)
        draft.replace(path)

    def delete(self, name: str) -> None:
        """Remove a file of ours."""
        (self.root / name).unlink(missing_ok=True)
        self.files.remove(name)

    def forget(self) -> None:
        """Remove every file of ours, and the folders that were made for them, where nothing else lies in them now."""
        for name in list(self.files):
            self.delete(name)
        (self.root / RECORD).unlink(missing_ok=True)
        for folder in reversed(self.folders):
            path = self.root / folder
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    def save(self) -> None:
        """Write down what is ours."""
        kept = {"files": self.files, "folders": self.folders, "units": self.units}
        path = self.root / RECORD
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.write_text(json.dumps(kept, indent=2) + "\n")


def read_source(path: Path) -> dict[str, str]:
    """The variables of the source file. Raises ``ConfigError`` with the line that cannot be used."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError as error:
        raise ConfigError(f"there is no {path}: name a runtime with --runtime.") from error
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, given, value = line.strip().partition("=")
        if not given or not NAME.fullmatch(name) or not VALUE.fullmatch(value):
            raise ConfigError(f"{path} line {number} is not NAME=value with a plain URL as value: mend it.")
        found[name] = value
    return found


def exports_of(runtimes: Iterable[str], port: int) -> dict[str, str]:
    """The exports of several runtimes together. Raises ``ConfigError`` where two want different values of one name."""
    found: dict[str, str] = {}
    for runtime in runtimes:
        for name, value in env.exports(runtime, port).items():
            if found.setdefault(name, value) != value:
                raise ConfigError(f"{name} can point at one runtime only: opt {runtime} in on its own.")
    return found


def set_by_unit(root: Path, unit: str) -> set[str]:
    """Names that a unit or one of its own drop-ins sets with ``Environment=``.

    What it reads with ``EnvironmentFile=`` need not be known: systemd lets that win over ``Environment=``.
    """
    names: set[str] = set()
    for path in _unit_files(root, unit):
        for line in path.read_text(errors="replace").splitlines():
            key, given, value = line.partition("=")
            if given and key.strip() == "Environment":
                names |= {word.partition("=")[0] for word in shlex.split(value)} if value.strip() else set()
    return names


def _unit_files(root: Path, unit: str) -> Iterator[Path]:
    ours = Path(DROP_IN.format(unit=unit)).name
    # An instance has its template's settings too: agent@7.service is agent@.service.
    names = [unit] if "@" not in unit else [unit, unit.partition("@")[0] + "@.service"]
    for folder in (root / folder for folder in UNIT_FOLDERS):
        for name in names:
            if (folder / name).is_file():
                yield folder / name
            yield from (path for path in sorted((folder / f"{name}.d").glob("*.conf")) if path.name != ours)


def user_managers(variables: Mapping[str, str]) -> str:
    """The variables for environment.d(5): a value set before stays."""
    return MADE_BY + "".join(f"{name}=${{{name}:-{value}}}\n" for name, value in variables.items())


def drop_in(variables: Mapping[str, str], own: set[str]) -> str:
    """The variables for a unit, but for those it sets itself."""
    lines = [f"Environment={name}={value}\n" for name, value in variables.items() if name not in own]
    left = "".join(f"# {name}: set by the unit itself.\n" for name in variables if name in own)
    return f"{MADE_BY}{left}[Service]\n{''.join(lines)}"


def apply(root: Path, variables: Mapping[str, str] | None, units: Sequence[str]) -> list[str]:
    """Make every file from the source, which is written first where ``variables`` are given; the files changed."""
    machine = Machine.of(root)
    for unit in units:
        if not UNIT.fullmatch(unit):
            raise ConfigError(f"{unit} is not the name of a service unit: give one such as agent.service.")
    if variables is not None:
        machine.write(SOURCE, SOURCE_HEAD + env.render(variables, "systemd"))
    wanted = read_source(root / SOURCE)
    machine.units = list(dict.fromkeys([*machine.units, *units]))
    machine.write(PROFILE, MADE_BY + env.render(wanted, "sh"))
    machine.write(USER_MANAGERS, user_managers(wanted))
    for unit in machine.units:
        machine.write(DROP_IN.format(unit=unit), drop_in(wanted, set_by_unit(root, unit)))
    machine.save()
    return machine.changed


def remove(root: Path) -> list[str]:
    """Take everything back; the files that are gone."""
    machine = Machine.of(root)
    gone = list(machine.files)
    machine.forget()
    return gone


def _reload(root: Path, run: Callable[..., object] = subprocess.run) -> None:
    """Let a running systemd read its units again."""
    if root == Path("/") and Path("/run/systemd/system").is_dir():
        run(["systemctl", "daemon-reload"], check=False)


@click.command("optin", short_help="Make base-URL variables reach shells, user services and agents' units.")
@click.option("--runtime", "runtimes", multiple=True, help="Write the source for this runtime first.")
@click.option("--unit", "units", multiple=True, help="An agent's service unit that is to have them too.")
@click.option("--forward-only", is_flag=True, help="Also for a runtime that keeps its own record: it is not metered.")
@click.option("--root", type=click.Path(path_type=Path), default="/", help="Below this folder, for images.")
@click.option("--apply", "action", flag_value="apply", help="Make the files; programs started later see them.")
@click.option("--remove", "action", flag_value="remove", help="Take back everything that was made.")
def command(
    runtimes: tuple[str, ...], units: tuple[str, ...], forward_only: bool, root: Path, action: str | None
) -> None:
    """Point agents of the whole machine at the shim, by variables, or take that back.

    One source, /etc/vm-usage/optin.env; a user's own value wins. Without --runtime the source is taken as it is.
    """
    if action is None:
        raise click.UsageError("Give --apply or --remove.")
    try:
        if action == "remove":
            changed = remove(root)
        else:
            changed = apply(root, _variables(runtimes, forward_only), units)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be changed ({error.strerror}): run this as root.") from error
    for name in changed:
        click.echo(f"{root / name} {'removed' if action == 'remove' else 'written'}")
    if dropped_in := [
        Path(name).parent.name.removesuffix(".d") for name in changed if name.startswith(UNIT_FOLDERS[0])
    ]:
        _reload(root)
        click.echo(f"They count from the next start of {', '.join(dropped_in)}.")


def _variables(runtimes: Sequence[str], forward_only: bool) -> dict[str, str] | None:
    if not runtimes:
        return None
    settings = Settings.from_env(os.environ)
    allowed = allowlist.load(settings.allowlist, settings.allow)
    for runtime in runtimes:
        warning = env.check_runtime(runtime, allowed, forward_only)
        for text in [warning, *env.warnings(runtime, settings.port)]:
            if text:
                click.echo(f"usage-shim optin: {text}", err=True)
    found = exports_of(runtimes, settings.port)
    if not found:
        raise ConfigError("these runtimes read no base-URL variable: see what was said above.")
    return found
