"""opencode: one SQLite database, and the JSON tree of its earlier versions, which stays on disk after the migration.

True here (sources: https://github.com/anomalyco/opencode packages/opencode/src/session, stores of 1.0.185 and 1.18.33):

* ``input`` excludes the cache. ``output`` excludes reasoning since 1.3.16 (pull request 21047) and includes it before;
  ``tokens.total``, where present, says which. Before 1.0 a message keeps only the tokens of its last model step.
* Costs are models.dev prices times tokens, never a bill; 0 also means "subscription" or "no price known".
* A fork copies messages under new ids; ``opencode_calls`` says how a call is known again. Two calls that began in the
  same millisecond (parallel sub-agents) are told apart by their numbers, as far as one database shows both.
* The session row sums its steps and **subtracts** what is reverted, so rows of messages are the records and only what
  the session row has beyond them is one more record.
* Version 2 keeps messages in ``session_message`` (since 1.18, empty there at first) and fills it with those of before
  under new ids; its forks name their source (``fork_session_id``) and sum up from 0. Since 2.0.3 sessions are in
  ``session_v2`` and the tables of before stay as they were (https://github.com/getagentseal/codeburn/issues/1293).
  Its session rows keep what is reverted (``opencode_reverts``) and also add up titles and summaries.
* A message of a running call is read as it is and replaced later: its key does not depend on its numbers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from collector import jsonl
from collector.runtimes import Batch, Facts, Source, SourceError, values
from collector.runtimes.opencode_calls import RUNTIME
from collector.runtimes.opencode_database import SESSIONS, Reading
from collector.runtimes.opencode_json import read_tree
from collector.runtimes.places import files, folder, leads_out, refuse_stray, stray, subfolders
from collector.sqlite_ro import KnownIds, opened, sidecars

LISTED: Final = tuple(KnownIds(table, "id") for table in SESSIONS)
CONFIGS: Final = ("opencode.json", "opencode.jsonc", "config.json")
_COMMENT: Final = re.compile(rb'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.S)

FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.local/share/opencode/{opencode.db, storage/}",
    variables="XDG_DATA_HOME, OPENCODE_DB",
    aggregation="sum of messages; the session row is the check",
    input_includes_cache="no",
    reasoning_in_output="before 1.3.16; apart since",
    dedupe_key="start, provider, model, agent of the call",
    cost_field="message.cost",
    cost_unit="USD",
    cost_basis="runtime_price",
)


class Opencode:
    """Reads the database first in rank: a message's row is a later version than its left-over JSON file."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """Every channel's database, and one source a session of the JSON tree."""
        root = folder(home, environ, "XDG_DATA_HOME", ".local/share") / "opencode"
        yield from stray(RUNTIME, home, root)
        if leads_out(home, root):
            return
        configs = _configs(folder(home, environ, "XDG_CONFIG_HOME", ".config") / "opencode")
        for path in _databases(root, environ.get("OPENCODE_DB")):
            yield Source(RUNTIME, path, (*sidecars(path), *configs))
        yield from _tree(home, root / "storage", configs)

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """A database's messages or a session's files. Raises ``SourceError``."""
        urls = _base_urls(source.parts)
        if source.path.parent.name == "message":
            root = source.path.parents[2]
            listed = any(source.path.name in ids.of(path) for path in _databases(root, None) for ids in LISTED)
            yield read_tree(source, urls, listed=listed)
            return
        refuse_stray(source)
        with opened(source.path) as database:
            yield from Reading(database, source.path, urls, state or {}).batches()


READER: Final = Opencode()


def _databases(root: Path, override: str | None) -> Iterator[Path]:
    """The databases of a data folder, of all release channels, or the one that ``OPENCODE_DB`` names."""
    if override:
        if os.path.isfile(root / override):
            yield root / override
        return
    for entry in files(root, lambda name: re.fullmatch(r"opencode(-[\w.-]+)?\.db", name) is not None):
        yield Path(entry.path)


def _tree(home: Path, storage: Path, configs: tuple[Path, ...]) -> Iterator[Source]:
    """The JSON tree's sessions: a folder of messages, with its session's own file among the parts."""
    messages, projects = storage / "message", storage / "session"
    yield from stray(RUNTIME, home, messages)
    if leads_out(home, messages) or leads_out(home, projects):
        return
    found = (entry for project in subfolders(projects) for entry in files(project.path, _is_json))
    heads = {entry.name.removesuffix(".json"): Path(entry.path) for entry in found}
    for session in subfolders(messages):
        head = (heads[session.name],) if session.name in heads else ()
        written = tuple(Path(entry.path) for entry in files(session.path, _is_json))
        yield Source(RUNTIME, Path(session.path), (*head, *written, *configs))


def _configs(root: Path) -> tuple[Path, ...]:
    return tuple(Path(entry.path) for entry in files(root, CONFIGS.__contains__))


def _base_urls(parts: Iterable[Path]) -> dict[str, str]:
    """Base URL by provider id, from opencode's configuration (JSON with comments and trailing commas)."""
    urls: dict[str, str] = {}
    for path in (part for part in parts if part.name in CONFIGS):
        try:
            data = jsonl.parse(_COMMENT.sub(rb"\1", jsonl.document(path)))
        except SourceError:
            continue
        for provider, settings in values.mapping(values.mapping(data).get("provider")).items():
            url = values.mapping(values.mapping(settings).get("options")).get("baseURL")
            if isinstance(url, str):
                urls[provider] = url
    return urls


def _is_json(name: str) -> bool:
    return name.endswith(".json")
