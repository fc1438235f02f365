"""Cline: sessions of its CLI and SDK, tasks of its VS Code extension, and captured output of ``cline --json``.

True here (source: https://github.com/cline/cline at 21cb8d2525, stores of 3.0.65): the CLI's ``inputTokens`` includes
cache reads and writes, the extension's ``tokensIn`` excludes both. Reasoning is inside the output and reported nowhere.
The three forms are read by ``cline_sessions``, ``cline_tasks`` and ``cline_stream``; this module finds them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from collector.runtimes import Batch, Facts, Source
from collector.runtimes.cline_index import read_index
from collector.runtimes.cline_sessions import RUNTIME, TASK, read_session
from collector.runtimes.cline_stream import read_stream
from collector.runtimes.cline_tasks import read_task
from collector.runtimes.places import files, folder, leads_out, own, refuse_stray, stray, subfolders
from collector.sqlite_ro import sidecars

EXTENSION: Final = "User/globalStorage/saoudrizwan.claude-dev/tasks"
EDITORS: Final = (
    *(f".config/{name}" for name in ("Code", "Code - Insiders", "Code - OSS", "VSCodium", "Cursor", "Windsurf")),
    *(f".{name}-server/data" for name in ("vscode", "vscodium", "cursor", "windsurf")),
    ".vscode-server-insiders/data",
    ".local/share/code-server",
)
# Where people who keep the output of `cline --json` may leave it: the store has no place of its own for it.
STREAMS: Final = ("stream", "streams")

FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.cline/data/{sessions, db/sessions.db, tasks}, saoudrizwan.claude-dev/tasks of any editor, *.ndjson",
    variables="CLINE_DIR, CLINE_DATA_DIR, CLINE_SESSION_DATA_DIR, CLINE_DB_DATA_DIR",
    aggregation="sum of messages; metadata.usage is the check; a stream's last record",
    input_includes_cache="CLI: reads and writes; extension: no",
    reasoning_in_output="yes, never reported",
    dedupe_key="message id",
    cost_field="metrics.cost, metadata.usage.totalCost",
    cost_unit="USD",
    cost_basis="billed through OpenRouter, else runtime_price",
)


class Cline:
    """Finds all three forms; what a file is decides how it is read."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source a session folder, task or captured run, and the index."""
        root = folder(home, environ, "CLINE_DIR", ".cline")
        data = folder(home, environ, "CLINE_DATA_DIR", "") if environ.get("CLINE_DATA_DIR") else root / "data"
        sessions = folder(home, environ, "CLINE_SESSION_DATA_DIR", str(data / "sessions"))
        index = folder(home, environ, "CLINE_DB_DATA_DIR", str(data / "db")) / "sessions.db"
        yield from stray(RUNTIME, home, sessions)
        stored = not leads_out(home, sessions)
        tasks = list(_tasks(home, (*(home / editor / EXTENSION for editor in EDITORS), data / "tasks")))
        documents = {task.path.parent.name: task.path for task in tasks}
        providers = data / "settings" / "providers.json"
        configured = [providers] if os.path.isfile(providers) else []
        for entry in subfolders(sessions) if stored else ():
            task = documents.get(entry.name)
            yield from _session(Path(entry.path), [*configured, *([task] if task else [])])
        if stored and own(home, index):
            yield Source(RUNTIME, index, (*sidecars(index), sessions))
        yield from tasks
        streams = (home / name for name in STREAMS if not leads_out(home, home / name))
        for place in (home, *streams):
            for file in files(place, lambda name: name.endswith(".ndjson")):
                yield Source(RUNTIME, Path(file.path), (sessions,) if stored and os.path.isdir(sessions) else ())

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """A session folder, the index, a task or a captured run. Raises ``SourceError``."""
        refuse_stray(source)
        if source.path.suffix == ".db":
            yield from read_index(source, state)
        elif source.path.suffix == ".ndjson":
            yield read_stream(source, state)
        elif source.path.name == TASK:
            yield read_task(source, state)
        else:
            yield read_session(source, state)


READER: Final = Cline()


def _tasks(home: Path, roots: Iterable[Path]) -> Iterator[Source]:
    for root in roots:
        yield from stray(RUNTIME, home, root)
        for entry in subfolders(root) if not leads_out(home, root) else ():
            for file in files(entry.path, TASK.__eq__):
                yield Source(RUNTIME, Path(file.path))


def _session(session: Path, beside: Iterable[Path]) -> Iterator[Source]:
    """One session's folder: its manifest, or its first messages where it has none (yet); what lies ``beside``."""
    manifest = session / f"{session.name}.json"
    messages = [Path(entry.path) for entry in files(session, lambda name: name.endswith(".messages.json"))]
    found = [*([manifest] if os.path.isfile(manifest) else ()), *messages]
    if found:
        yield Source(RUNTIME, found[0], (*found[1:], *beside))
