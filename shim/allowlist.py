"""The allowlist: which runtimes are metered here, and which keep their own record and must never be.

Loaded strictly: whatever is not understood is an error that names file, line and key, because a mistake here either
counts a runtime twice or not at all. A runtime in neither list is forwarded and not metered.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from shim.names import ConfigError

VERSION: Final = 1

# Runtimes of whose stores the collector has a reader that bears tokens (the collector's tests hold it to this set).
TOKEN_BEARING: Final = frozenset(
    {
        "aider",
        "claude_code",
        "cline",
        "codex",
        "copilot",
        "devin",
        "exo",
        "gemini_cli",
        "goose",
        "kimi_cli",
        "kimi_code",
        "openclaw",
        "opencode",
        "pi",
        "qwen_code",
    }
)
RUNTIMES: Final = frozenset({"cursor", "picoclaw"}) | TOKEN_BEARING

# Section of the file -> keys of an entry -> whether it must be there.
SECTIONS: Final[Mapping[str, Mapping[str, bool]]] = {
    "token_blind": {"why": True, "user_agents": False},
    "self_reporting": {"records": True, "vendor_cost": False, "why": False, "user_agents": False},
}


@dataclass(frozen=True, slots=True)
class Runtime:
    """One entry. ``about``: why it is metered, or what it records. ``user_agents``: prefixes it is known by."""

    name: str
    about: str
    vendor_cost: str | None = None
    user_agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Allowlist:
    """Both lists by runtime key; ``metered`` is the part of ``token_blind`` that is metered on this VM."""

    token_blind: Mapping[str, Runtime]
    self_reporting: Mapping[str, Runtime]
    metered: frozenset[str]
    path: Path | None = None

    def allows(self, runtime: str | None) -> bool:
        """Whether calls of this runtime are metered."""
        return runtime in self.metered

    def self_reporting_agent(self, user_agent: str) -> str | None:
        """The self-reporting runtime that a User-Agent belongs to, ``None`` for any other; prefixes ignore case."""
        agent = user_agent.lower()
        for runtime in self.self_reporting.values():
            if any(agent.startswith(prefix.lower()) for prefix in runtime.user_agents):
                return runtime.name
        return None

    def narrow(self, names: Iterable[str]) -> Allowlist:
        """Keep only ``names`` of the token-blind runtimes (``VM_USAGE_ALLOW``).

        Raises ``ConfigError`` for a self-reporting runtime (it would be counted twice) or an unknown one.
        """
        wanted = [name.strip() for name in names if name.strip()]
        for name in wanted:
            if name in self.self_reporting:
                raise ConfigError(
                    f"VM_USAGE_ALLOW names {name}, which keeps its own record: "
                    "metering it too would count twice. Remove it."
                )
            if name not in self.token_blind:
                raise ConfigError(
                    f"VM_USAGE_ALLOW names {name}, which is no token-blind runtime of the allowlist"
                    f"{_nearest(name, self.token_blind)}."
                )
        return replace(self, metered=frozenset(wanted))


def load(path: Path, allow: str | None = None) -> Allowlist:
    """Read and validate an allowlist file; ``allow`` is the value of ``VM_USAGE_ALLOW``.

    Raises ``ConfigError`` naming file, line and key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(
            f"The allowlist {path} cannot be read: {reason}. Mend it or set VM_USAGE_ALLOWLIST."
        ) from error
    allowlist = parse(text, path)
    return allowlist.narrow(allow.split(",")) if allow else allowlist


def parse(text: str, path: Path | None = None) -> Allowlist:
    """Validate the text of an allowlist. Raises ``ConfigError`` naming file, line and key."""
    reader = _File(str(path or "allowlist.yaml"))
    top = reader.mapping(reader.compose(text), "the file")
    version = top.pop("version", None)
    if version is None or reader.scalar(version, "version") != VERSION:
        raise reader.error(version, "version", f"must be {VERSION}")
    for key, node in top.items():
        if key not in SECTIONS:
            raise reader.error(node, key, f"is not a section{_nearest(key, SECTIONS)}")
    lists = {section: dict(reader.runtimes(top.get(section), section)) for section in SECTIONS}
    for name in lists["token_blind"]:
        if name in lists["self_reporting"]:
            raise reader.error(reader.lines[name], name, "is in both lists; a call would count twice. Keep one")
        if name in TOKEN_BEARING:
            raise reader.error(
                reader.lines[name], name, "keeps its own record of tokens; it belongs under self_reporting"
            )
    blind = lists["token_blind"]
    return Allowlist(blind, lists["self_reporting"], frozenset(blind), path)


class _File:
    """One file being read, for errors that name it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[str, yaml.Node] = {}

    def compose(self, text: str) -> yaml.Node | None:
        try:
            return yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark else 1
            raise ConfigError(f"{self.name}:{line}: not valid YAML: {getattr(error, 'problem', error)}.") from error

    def error(self, node: yaml.Node | None, key: str, problem: str) -> ConfigError:
        line = node.start_mark.line + 1 if node else 1
        return ConfigError(f"{self.name}:{line}: {key} {problem}.")

    def mapping(self, node: yaml.Node | None, what: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, what, "must be a mapping")
        found: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = str(getattr(key_node, "value", key_node))
            if key in found:
                raise self.error(key_node, key, "is there twice")
            found[key] = value
        return found

    def scalar(self, node: yaml.Node, key: str) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, key, "must be a single value")
        try:
            return yaml.SafeLoader("").construct_object(node)
        except yaml.YAMLError:
            raise self.error(node, key, f"has a tag that is not allowed ({node.tag})") from None

    def runtimes(self, node: yaml.Node | None, section: str) -> Iterator[tuple[str, Runtime]]:
        if node is None or (isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")):
            return
        for name, entry in self.mapping(node, section).items():
            if name not in RUNTIMES:
                raise self.error(entry, name, f"is not a runtime this version knows{_nearest(name, RUNTIMES)}")
            self.lines.setdefault(name, entry)
            yield name, self.runtime(name, entry, SECTIONS[section])

    def runtime(self, name: str, node: yaml.Node, keys: Mapping[str, bool]) -> Runtime:
        entry = self.mapping(node, name)
        for key, value in entry.items():
            if key not in keys:
                raise self.error(value, f"{name}.{key}", f"is not a key{_nearest(key, keys)}")
        for key, needed in keys.items():
            if needed and key not in entry:
                raise self.error(node, f"{name}.{key}", "is missing")
        about = entry.get("why") or entry["records"]
        cost = entry.get("vendor_cost")
        return Runtime(
            name,
            self.text(about, f"{name}.why"),
            self.text(cost, f"{name}.vendor_cost") if cost else None,
            self.prefixes(entry.get("user_agents"), f"{name}.user_agents"),
        )

    def text(self, node: yaml.Node, key: str) -> str:
        value = self.scalar(node, key)
        if not isinstance(value, str) or not value:
            raise self.error(node, key, "must be text")
        return value

    def prefixes(self, node: yaml.Node | None, key: str) -> tuple[str, ...]:
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, key, "must be a list of User-Agent prefixes")
        return tuple(self.text(item, key) for item in node.value)


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else ""
