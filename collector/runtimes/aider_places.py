"""Where aider's chat histories and analytics logs lie: in repositories below the home, and where a name is given them.

True here (https://github.com/Aider-AI/aider, aider/args.py, aider/main.py): a name is given by a variable or by
``.aider.conf.yml`` in the home, the variable first; a relative one is one in each repository. Of the configuration,
which also holds keys, nothing but these two names is taken. A file of one's own repository is not looked into.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from collector.jsonl import document
from collector.runtimes import SourceError, places

HISTORY: Final = ".aider.chat.history.md"
ANALYTICS: Final = "analytics.jsonl"
CONFIG: Final = ".aider.conf.yml"
# The key of each name in the configuration, and its variable.
NAMES: Final = {"chat-history-file": "AIDER_CHAT_HISTORY_FILE", "analytics-log": "AIDER_ANALYTICS_LOG"}
DEPTH: Final = 3
MAX_FOLDERS: Final = 4_000
NOT_REPOSITORIES: Final = frozenset({"node_modules", "site-packages", "__pycache__", "vendor", "target", "venv"})
_CONFIGURED: Final = re.compile(rb"^(chat-history-file|analytics-log):[ \t]*[\"']?([^\"'#\n]+)", re.M)


def histories_and_logs(home: Path, environ: Mapping[str, str]) -> list[Path]:
    """Files that are named, and those in the home and three levels of folders below it."""
    named = _configured(home) | {
        key: environ[variable].strip() for key, variable in NAMES.items() if environ.get(variable, "").strip()
    }
    relative = tuple(name for name in map(os.path.normpath, named.values()) if not name.startswith(("/", "~", "..")))
    found = {Path(path): None for path in _search(str(home), relative)}
    for key, name in named.items():
        path = Path(os.path.normpath(places.expanded(home, name)))
        # A variable is set by who runs this; the configuration, by whoever may write into the home.
        below = home in path.parents and not places.leads_out(home, path.parent)
        if os.path.lexists(path) and (below or environ.get(NAMES[key], "").strip()):
            found[path] = None
    return list(found)


def is_history(file: str) -> bool:
    """Whether a file of this name is a history, not a log."""
    return file.endswith(".md")


def _configured(home: Path) -> dict[str, str]:
    try:
        text = document(home / CONFIG)
    except SourceError:
        return {}
    return {key.decode(): name.decode("utf-8", "replace").strip() for key, name in _CONFIGURED.findall(text)}


def _search(home: str, relative: tuple[str, ...]) -> Iterator[str]:
    """Breadth first, so that the bound on folders cuts off the deepest."""
    level, seen = [home], 0
    for depth in range(DEPTH + 1):
        below: list[str] = []
        for folder in level:
            seen += 1
            if seen > MAX_FOLDERS:
                return
            for entry in places.entries(folder):
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith(".") and entry.name not in NOT_REPOSITORIES:
                        below.append(entry.path)
                elif entry.name.endswith(HISTORY) or (entry.name == ANALYTICS and depth <= 1):
                    yield entry.path
            named = (f"{folder}/{name}" for name in relative)
            yield from (path for path in named if _is_there(home, path))
        level = below


def _is_there(home: str, path: str) -> bool:
    return os.path.isfile(path) and not places.leads_out(Path(home), Path(path).parent)
