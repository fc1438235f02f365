"""PicoClaw: token-blind. Its store tells who, when and which model alias; usage comes from the shim's lines.

Verified in https://github.com/sipeed/picoclaw (pkg/memory, pkg/session): ``workspace/sessions/<key>.jsonl`` with a
message a line, ``.meta.json`` beside it with the session's key and times. The times of assistant messages are what
usage lines are matched to; a message itself is never read. Each agent has a workspace of its own: the one that the
configuration names, else ``workspace-<agent>`` beside the default one (pkg/agent/instance.go).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, json_document, lines_with, parse
from collector.record import Session
from collector.runtimes import Batch, Facts, Source, places
from collector.runtimes.values import earliest, iso, latest, mapping, name, reference

RUNTIME: Final = "picoclaw"
# Names of files that are the session's key as it is; others have ``_`` for ``:``, ``/`` and ``\\``.
HASHED: Final = "sk_v1_"


class PicoClaw:
    """Reader of PicoClaw's session list."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source a session, its meta file a part of it."""
        for folder in (workspace / "sessions" for workspace in workspaces(home, environ)):
            yield from places.stray(RUNTIME, home, folder)
            if places.leads_out(home, folder):
                continue
            for entry in places.files(folder, lambda file: file.endswith(".jsonl")):
                path = Path(entry.path)
                yield Source(RUNTIME, path, (path.with_suffix(".meta.json"),))

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """One session with all its turns: the file is read whole, for it is rewritten when it is summarised."""
        beside = source.path.with_suffix(".meta.json")
        document = json_document(beside)
        if document is None and os.path.lexists(beside) and not source.path.name.startswith(HASHED):
            # Half-written: the session's key is in it, and the file's name is another spelling of the key.
            yield Batch(skipped=Counter(bad_json=1), unfinished=True)
            return
        meta = mapping(document)
        turns: list[tuple[float, str | None]] = []
        first = last = None
        for block in LineFile(source.path).blocks():
            for line in lines_with(block, b'"role"'):
                entry = parse(line)
                when = iso(entry.get("created_at")) if entry is not None else None
                if entry is None or when is None:
                    continue
                first, last = earliest(first, when), latest(last, when)
                if entry.get("role") == "assistant":
                    turns.append((when, name(entry.get("model_name"))))
        alias = next((named for _, named in reversed(turns) if named), None)
        session = Session(
            RUNTIME,
            reference(meta.get("key")) or source.path.stem,
            earliest(iso(meta.get("created_at")), first),
            latest(iso(meta.get("updated_at")), last),
            alias,
            "log" if alias else "none",
            turns=tuple(turns),
        )
        yield Batch(sessions=[session])


def workspaces(home: Path, environ: Mapping[str, str]) -> list[Path]:
    """The agents' workspaces, the default one first; of those that the configuration names, the ones below the home."""
    root = places.folder(home, environ, "PICOCLAW_HOME", ".picoclaw")
    config = json_document(places.folder(home, environ, "PICOCLAW_CONFIG", str(root / "config.json")))
    agents = mapping(mapping(config).get("agents"))
    listed = agents.get("list")
    default = places.folder(home, environ, "PICOCLAW_AGENTS_DEFAULTS_WORKSPACE", str(root / "workspace"))
    defaults = [default, *_named(home, agents.get("defaults"))]
    beside = [
        Path(entry.path)
        for parent in dict.fromkeys(folder.parent for folder in defaults if folder.parent != home)
        for entry in places.subfolders(parent)
        if entry.name.startswith("workspace-")
    ]
    named = [folder for agent in (listed if isinstance(listed, list) else ()) for folder in _named(home, agent)]
    return list(dict.fromkeys([*defaults, *beside, *named]))


def _named(home: Path, agent: object) -> Iterator[Path]:
    given = mapping(agent).get("workspace")
    if isinstance(given, str) and given.strip():
        workspace = Path(os.path.normpath(places.expanded(home, given.strip())))
        if home in workspace.parents:
            yield workspace


READER: Final = PicoClaw()
FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.picoclaw/{workspace, workspace-<agent>}/sessions/<key>.jsonl, .meta.json; those of config.json",
    variables="PICOCLAW_HOME, PICOCLAW_CONFIG, PICOCLAW_AGENTS_DEFAULTS_WORKSPACE",
    aggregation="sessions and times of turns only",
    input_includes_cache="-",
    reasoning_in_output="-",
    dedupe_key="-",
    cost_field="none",
    cost_unit="none",
    cost_basis="none",
)
