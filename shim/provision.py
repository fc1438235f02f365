"""``usage-shim provision picoclaw``: points PicoClaw's model entries at the shim, and back.

PicoClaw reads no base-URL variable, so its ``config.json`` is edited: only the values of ``model_list[].api_base``, or
one such member added, every other byte kept. PicoClaw may rewrite the file at any time (onboarding, its web page): the
check then shows what drifted and another apply mends it. Reverting restores each entry as it was before, also in a file
that others have edited since. Whatever cannot or must not be metered is left alone and named with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shim import json_edit, picoclaw
from shim import provision_files as files
from shim.json_edit import Change, Span
from shim.names import UPSTREAM_PREFIX, ConfigError
from shim.upstreams import BASES

API_BASE: Final = "api_base"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of ``model_list``: its alias, its values, and where its members stand in the text."""

    name: str
    values: Mapping[str, Any]
    members: Mapping[str, Span]

    @property
    def base(self) -> str:
        """Its ``api_base``, empty where it has none."""
        given = self.values.get(API_BASE)
        return given.strip() if isinstance(given, str) else ""


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done with an entry. ``wanted``: the api_base it has to get, ``None`` where nothing is to be done.

    ``reason``: why it is not metered, ``None`` where it is or will be. ``note``: what else another base URL changes.
    """

    entry: Entry
    wanted: str | None = None
    reason: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """A config looked through. ``upstreams``: new ones that it needs, name to base URL; ``outside``: other traffic."""

    steps: list[Step]
    upstreams: dict[str, str]
    outside: list[str]

    @property
    def drift(self) -> list[Step]:
        """Entries that could be metered and are not."""
        return [step for step in self.steps if step.wanted]


def config_path(environ: Mapping[str, str]) -> Path:
    """Where PicoClaw looks for its config."""
    if given := environ.get("PICOCLAW_CONFIG"):
        return Path(given)
    home = environ.get("PICOCLAW_HOME")
    return (Path(home) if home else Path(environ.get("HOME") or Path.home()) / ".picoclaw") / "config.json"


def config_drift(path: Path, port: int, environ: Mapping[str, str]) -> list[str]:
    """One sentence for each entry of a PicoClaw config that could be metered and is not; for ``doctor``.

    Raises ``ConfigError`` where the config cannot be read.
    """
    known = files.known_upstreams(files.default_upstreams_env(environ), environ)
    drift = survey(files.read_text(path), port, known).drift
    return [f"{step.entry.name} calls {step.entry.base or 'its default base'} past the shim" for step in drift]


def entries(text: str) -> Iterator[Entry]:
    """The model entries of a config. Raises ``ConfigError`` for a text that is no config."""
    try:
        whole = json.loads(text)
        top = json_edit.members(text, len(text) - len(text.lstrip()))
        if not isinstance(whole.get("model_list", []), list):
            raise ValueError("model_list is not a list")
        spans = json_edit.items(text, top["model_list"].start) if "model_list" in top else []
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"the config is not PicoClaw's: {error}.") from error
    for span in spans:
        values = json_edit.value(text, span)
        if isinstance(values, dict):
            yield Entry(str(values.get("model_name", "?")), values, json_edit.members(text, span.start))


def survey(text: str, port: int, known: Mapping[str, str]) -> Survey:
    """Look a config through. ``known``: upstreams by name that were given before. Raises ``ConfigError``."""
    upstreams: dict[str, str] = {}
    steps = []
    for entry in entries(text):
        names = {**known, **upstreams}
        if through := picoclaw.through_shim(entry.base):
            steps.append(_pointed(entry, through, port, names))
            continue
        plan = picoclaw.plan(entry.values)
        if plan.base is None:
            steps.append(Step(entry, reason=plan.reason))
            continue
        origin, path = picoclaw.split_base(plan.base)
        name, new = picoclaw.upstream_name(origin, names)
        if new:
            upstreams[name] = origin
        steps.append(Step(entry, picoclaw.shim_base(port, name, path), note=plan.note))
    return Survey(steps, upstreams, _outside(json.loads(text)))


def _pointed(entry: Entry, through: tuple[int, str, str], port: int, known: Mapping[str, str]) -> Step:
    """An entry that leads through a shim already: ours, one on another port, or to an upstream nobody knows."""
    at, upstream, path = through
    plan = picoclaw.plan({key: value for key, value in entry.values.items() if key != API_BASE})
    if plan.reason not in (None, picoclaw.NO_BASE):
        return Step(entry, reason=plan.reason)
    if upstream not in known and upstream not in BASES:
        variable = UPSTREAM_PREFIX + upstream.upper().replace("-", "_")
        return Step(entry, reason=f"calls an upstream without an address: set {variable}")
    wanted = picoclaw.shim_base(port, upstream, path)
    return Step(entry, None if (at, wanted) == (port, entry.base) else wanted)


def _outside(config: Mapping[str, Any]) -> list[str]:
    found = []
    for path, reason in picoclaw.OUTSIDE.items():
        value: Any = config
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, dict) and value.get("enabled") is True:
            found.append(f"{'.'.join(path)}: {reason}")
    return found


def pointed_at_shim(text: str, steps: list[Step], made: list[files.Made]) -> tuple[str, list[files.Made]]:
    """The config with every wanted base URL, and the changes in force afterwards."""
    changes, now_made = [], list(made)
    for step in steps:
        if step.wanted is None:
            continue
        old = step.entry.members.get(API_BASE)
        if old is None:
            change = json_edit.insert_after(text, _anchor(step.entry), API_BASE, step.wanted)
            was, inserted = None, change.new
        else:
            change = Change(old.start, old.end, json.dumps(step.wanted))
            was, inserted = text[old.start : old.end], None
        changes.append(change)
        now_made = _with_change(now_made, files.Made(step.entry.name, step.wanted, was, inserted), step.entry.base)
    return json_edit.apply(text, changes), now_made


def _with_change(made: list[files.Made], new: files.Made, base: str) -> list[files.Made]:
    """``made`` with one change more; moved from one shim port to another, an entry keeps what it was at first."""
    for old in made:
        if (old.model_name, old.now) == (new.model_name, base):
            new = files.Made(new.model_name, new.now, old.was, None)
            return [new if change is old else change for change in made]
    return [*(change for change in made if (change.model_name, change.now) != (new.model_name, new.now)), new]


def _anchor(entry: Entry) -> Span:
    """The member that a new one is put behind: the model, else whatever comes last."""
    return entry.members.get("model") or list(entry.members.values())[-1]


def taken_back(text: str, made: list[files.Made], known: Mapping[str, str]) -> tuple[str, list[str]]:
    """The config as it was before, and the names of the entries that were restored."""
    changes, restored = [], []
    for entry in entries(text):
        through = picoclaw.through_shim(entry.base)
        if through is None:
            continue
        member = entry.members[API_BASE]
        change = _change_of(entry, made)
        if change is None:
            origin = {**BASES, **known}.get(through[1])
            if origin is None:
                continue
            changes.append(Change(member.start, member.end, json.dumps(origin + through[2])))
        elif change.was is not None:
            changes.append(Change(member.start, member.end, change.was))
        elif change.inserted and text[: member.end].endswith(change.inserted):
            changes.append(Change(member.end - len(change.inserted), member.end, ""))
        else:
            changes.append(json_edit.remove(text, member))
        restored.append(entry.name)
    return json_edit.apply(text, changes), restored


def _change_of(entry: Entry, made: list[files.Made]) -> files.Made | None:
    """What we did to an entry; one that was copied or renamed since is known by its base URL."""
    same = [change for change in made if change.now == entry.base]
    own = [change for change in same if change.model_name == entry.name]
    return next(iter(own or same), None)
