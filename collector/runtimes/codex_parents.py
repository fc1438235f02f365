"""What a Codex thread had used so far, by its running totals: the mark by which its copies in other rollouts are known.

A spawned sub-agent's rollout may begin with its parent's events, with new times or old ones, but without the parent's
``token_usage_record`` lines (``keep_forked_rollout_item``, codex-rs/core/src/agent/control/spawn.rs in
https://github.com/openai/codex); and a fork that copies nothing may begin by stating the parent's last total once more.
Turn ids may be left out too, so the totals alone can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, lines_with, parse, unpacked
from collector.runtimes import SourceError, places
from collector.runtimes.kin import NEVER, Stamp, stamp_of
from collector.runtimes.values import count, mapping

FOLDERS: Final = ("sessions", "archived_sessions")
PACKED: Final = ".zst"
ID: Final = 36
KEPT: Final = 4
FIELDS: Final = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)

Usage = tuple[int | None, ...]


def usage(value: Mapping[str, Any]) -> list[int | None] | None:
    """The numbers of a usage object in the order of ``FIELDS``; ``None`` where input or output is not known."""
    counts = [count(value.get(key)) for key in FIELDS]
    return counts if counts[0] is not None and counts[3] is not None else None


def rollouts(root: Path) -> Iterator[Path]:
    """Every rollout below Codex's folder; one that was packed after a week only where it was not unpacked again."""
    for folder in FOLDERS:
        plain = ""
        for entry in places.walk(root / folder, _is_rollout, depth=4):
            if not entry.name.endswith(PACKED):
                plain = entry.path
            elif entry.path == plain + PACKED:
                continue
            yield Path(entry.path)


def _is_rollout(file: str) -> bool:
    return file.startswith("rollout-") and file.removesuffix(PACKED).endswith(".jsonl")


def thread_of(path: Path) -> str:
    """The thread's id, with which the name of its rollout ends."""
    return path.name.partition(".jsonl")[0][-ID:]


def blocks(path: Path) -> Iterator[bytes]:
    """The lines of a rollout, packed or not. Raises ``SourceError``."""
    return unpacked(path) if path.suffix == PACKED else LineFile(path).blocks()


class Parents:
    """Finds the running totals of threads that others were made from; those of the last few are kept."""

    def __init__(self) -> None:
        # Of each folder, every rollout by its thread as of the last look at it.
        self._folders: dict[Path, dict[str, Path]] = {}
        self._totals: dict[Path, tuple[Stamp, frozenset[Usage]]] = {}

    def listed(self) -> None:
        """Rollouts may have come: each folder is looked through once more, however many parents are missing in it."""
        self._folders.clear()

    def totals(self, child: Path, parent: str) -> frozenset[Usage] | None:
        """Every running total that the parent's rollout states, ``None`` where there is none beside the child's."""
        path = self._path(child, parent)
        if path is None or path == child:
            return None
        stamp = stamp_of(str(path))
        known = self._totals.pop(path, None)
        if known is None or known[0] != stamp:
            try:
                known = (stamp, frozenset(_totals(path)))
            except SourceError:
                return None
        self._totals[path] = known
        if len(self._totals) > KEPT:
            del self._totals[next(iter(self._totals))]
        return known[1]

    def _path(self, child: Path, parent: str) -> Path | None:
        root = next((one.parent for one in child.parents if one.name in FOLDERS), None)
        if root is None:
            return None
        known = self._folders.get(root)
        path = None if known is None else known.get(parent)
        if known is None or (path is not None and stamp_of(str(path)) == NEVER):
            # Not looked through yet, or it was archived or packed since.
            known = self._folders[root] = {thread_of(one): one for one in rollouts(root)}
            path = known.get(parent)
        return path


def _totals(path: Path) -> Iterator[Usage]:
    for block in blocks(path):
        for needle in (b'"token_count"', b'"token_usage_record"'):
            for line in lines_with(block, needle):
                payload = mapping((parse(line) or {}).get("payload"))
                counted = mapping(payload.get("info")).get("total_token_usage")
                for stated in (counted, payload.get("thread_token_usage")):
                    if (total := usage(mapping(stated))) is not None:
                        yield tuple(total)
