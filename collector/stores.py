"""Which folders of a home the collector's service may see, and what makes them readable for its user.

Stores hold prompts, so the service sees nothing of a home but these folders: each is bound in read-only by a drop-in,
and an access list lets the user ``usage-collector`` read the files that a reader takes, no others. The list is set by
the home's own user, never by root: nobody can grant what is not his. It needs setting again for files that a runtime
makes with mode 0600, since that mode masks what their folder would hand down.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from collector.runtimes.aider import READER as AIDER
from collector.runtimes.cline import EDITORS, EXTENSION
from collector.runtimes.exo import READER as EXO
from collector.runtimes.openclaw import ROOTS as OPENCLAW_ROOTS
from collector.runtimes.openclaw import roots as openclaw_roots
from collector.runtimes.pi import session_folders
from collector.runtimes.picoclaw import workspaces
from collector.runtimes.places import leads_out
from shim.places import USER_STATE

SERVICE_USER: Final = "usage-collector"
CAPTURE: Final = "capture"


@dataclass(frozen=True, slots=True)
class Store:
    """A folder below the home, the files in it that are read (shell patterns), and whether its folders hold more."""

    runtime: str
    folder: str
    names: tuple[str, ...]
    deep: bool = True


PICOCLAW: Final = Store("picoclaw", ".picoclaw/workspace/sessions", ("*.jsonl", "*.meta.json"), deep=False)
PI: Final = Store("pi", ".pi/agent/sessions", ("*.jsonl",))
OPENCLAW: Final = Store("openclaw", ".openclaw/agents", ("*.jsonl*", "openclaw-agent.sqlite*"))
# The places that the readers look into. Folders that also hold keys are named as narrowly as they can be, and of the
# files in them only the store's own are granted. Configuration files beside a store are left out: they hold keys.
STORES: Final = (
    Store(CAPTURE, str(USER_STATE), ("capture.jsonl*", "reference.key"), deep=False),
    Store("claude_code", ".claude/projects", ("*.jsonl",)),
    Store("claude_code", ".config/claude/projects", ("*.jsonl",)),
    Store("cline", ".cline/data/sessions", ("*.json",)),
    Store("cline", ".cline/data/db", ("sessions.db*",), deep=False),
    Store("cline", ".cline/data/tasks", ("ui_messages.json",)),
    *(Store("cline", f"{editor}/{EXTENSION}", ("ui_messages.json",)) for editor in EDITORS),
    Store("cline", "stream", ("*.ndjson",), deep=False),
    Store("cline", "streams", ("*.ndjson",), deep=False),
    Store("codex", ".codex/sessions", ("rollout-*.jsonl*",)),
    Store("codex", ".codex/archived_sessions", ("rollout-*.jsonl*",)),
    Store("copilot", ".copilot", ("session-store.db*",), deep=False),
    Store("copilot", ".copilot/session-state", ("events.jsonl", "????????-????-????-????-*.jsonl")),
    Store("cursor", ".config/Cursor/User/globalStorage", ("state.vscdb*",), deep=False),
    Store("cursor", ".cursor/projects", ("*",)),
    Store("cursor", ".cursor/chats", ("store.db*",)),
    *(
        Store("devin", f".local/share/{name}/cli", ("sessions.db*",), deep=False)
        for name in ("devin", "cognition", "chisel")
    ),
    *(
        Store("devin", f".local/share/{name}/cli/transcripts", ("*.json",), deep=False)
        for name in ("devin", "cognition", "chisel")
    ),
    Store("gemini_cli", ".gemini/tmp", ("*.json", "*.jsonl", "*.jsonl.unreadable-*")),
    Store("goose", ".local/share/goose/sessions", ("sessions.db*", "*.jsonl"), deep=False),
    Store("kimi_cli", ".kimi/sessions", ("wire.jsonl", "state.json", "metadata.json", "meta.json")),
    Store("kimi_code", ".kimi-code/sessions", ("wire.jsonl", "state.json")),
    *(replace(OPENCLAW, folder=f"{root}/{folder}") for root in OPENCLAW_ROOTS for folder in ("agents", "sessions")),
    Store("opencode", ".local/share/opencode", ("opencode*.db*",), deep=False),
    Store("opencode", ".local/share/opencode/storage", ("*.json",)),
    PICOCLAW,
    PI,
    Store("qwen_code", ".qwen/projects", ("*.jsonl",)),
    Store("qwen_code", ".qwen/usage", ("token-usage-*.jsonl",), deep=False),
)
# Options of setfacl for folders and for files.
GRANT: Final = (f"-m u:{SERVICE_USER}:rx,d:u:{SERVICE_USER}:rX", f"-m u:{SERVICE_USER}:r")
TAKE_BACK: Final = (f"-x u:{SERVICE_USER},d:u:{SERVICE_USER}", f"-x u:{SERVICE_USER}")
RUNTIMES: Final = frozenset({"aider", "exo", *(store.runtime for store in STORES)})


def stores(home: Path, runtimes: Iterable[str] = RUNTIMES) -> Iterator[Store]:
    """The stores of these runtimes in a home, whether or not they exist, but none that leads out of the home.

    Aider and exo keep theirs inside repositories, PicoClaw one per agent, OpenClaw one per profile, Pi where its
    settings say: those that are found now, by names alone.
    """
    wanted = frozenset(runtimes)
    for store in STORES:
        if store.runtime in wanted and not leads_out(home, home / store.folder):
            yield store
    if "picoclaw" in wanted:
        found = [workspace.relative_to(home) / "sessions" for workspace in workspaces(home, {})]
        yield from (
            replace(PICOCLAW, folder=str(folder))
            for folder in found
            if str(folder) != PICOCLAW.folder and not leads_out(home, home / folder)
        )
    if "pi" in wanted:
        named = session_folders(home, {})[1:]
        yield from (replace(PI, folder=str(root.relative_to(home))) for root in named if not leads_out(home, root))
    if "openclaw" in wanted:
        profiles = (root for root in openclaw_roots(home, {}) if root.name not in OPENCLAW_ROOTS)
        yield from (replace(OPENCLAW, folder=f"{root.relative_to(home)}/agents") for root in profiles)
    if "aider" in wanted:
        for source in AIDER.sources(home, {}):
            yield Store("aider", str(source.path.relative_to(home)), (source.path.name,), deep=False)
    if "exo" in wanted:
        agents = {source.path.parents[3] for source in EXO.sources(home, {})}
        yield from (Store("exo", str(folder.relative_to(home)), ("*",)) for folder in sorted(agents))


def drop_in(homes: Iterable[Path], runtimes: Iterable[str] = RUNTIMES) -> str:
    """The drop-in of usage-collector.service that shows it the stores of these homes, read-only.

    A store that does not exist when the service starts is left out by systemd until the next start.
    """
    homes = list(homes)
    lines = [
        "# Written by `usage-collector stores`: what the service sees of homes, read-only. A missing one is no error.",
        "[Service]",
        f"Environment={_quoted('VM_USAGE_HOMES=' + ':'.join(map(str, homes)))}",
    ]
    for home in homes:
        paths = dict.fromkeys(home / store.folder for store in stores(home, runtimes))
        lines += [f"BindReadOnlyPaths={_quoted(f'-{path}')}" for path in paths]
    return "\n".join(lines) + "\n"


def present(homes: Iterable[Path], runtimes: Iterable[str] = RUNTIMES) -> list[Path]:
    """The stores of these homes that exist now."""
    found = (home / store.folder for home in homes for store in stores(home, runtimes))
    return [path for path in dict.fromkeys(found) if os.path.exists(path)]


def grants(home: Path, runtimes: Iterable[str] = RUNTIMES, *, take_back: bool = False) -> list[str]:
    """Shell commands, for the home's own user, that let the service's user read the stores that exist.

    Folders hand the right down to what is made in them. Files that all may read are not touched. ``take_back``: the
    commands that undo it.
    """
    folder_acl, file_acl = TAKE_BACK if take_back else GRANT
    lines = []
    for store in stores(home, runtimes):
        path = home / store.folder
        if path.is_dir():
            where = f"find {shlex.quote(str(path))}" + ("" if store.deep else " -maxdepth 1")
            folder = where if store.deep else f"find {shlex.quote(str(path))} -maxdepth 0"
            names = " -o ".join(f"-name {shlex.quote(name)}" for name in store.names)
            lines.append(f"{folder} -type d -exec setfacl {folder_acl} {{}} +")
            lines.append(f"{where} -type f \\( {names} \\) ! -perm -o=r -exec setfacl {file_acl} {{}} +")
        elif path.is_file():
            lines.append(f"setfacl {file_acl} {shlex.quote(str(path))}")
    return lines


def _quoted(value: str) -> str:
    """A value for a unit file: quoted where it has spaces, with specifiers and quotes taken literally."""
    value = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{value}"' if " " in value or "\\" in value else value
