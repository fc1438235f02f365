"""Where stores lie: folders named by a variable or below the home, and the files in them, by ``scandir`` alone.

Links below a store's root are not followed. The root itself may be a link, but not one that leads out of the home:
such a folder is listed as a source that cannot be read, so that a person sees why its spend is missing. A folder that
a variable names may lie anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from collector.runtimes import Source, SourceError


def folder(home: Path, environ: Mapping[str, str], variable: str, default: str) -> Path:
    """The folder that ``variable`` names (``~`` is the home), else ``default`` below the home."""
    given = environ.get(variable, "").strip()
    return expanded(home, given) if given else home / default


def folders(home: Path, environ: Mapping[str, str], variable: str, *defaults: str) -> list[Path]:
    """As ``folder``, for a variable that may name several, separated by commas."""
    given = [part.strip() for part in environ.get(variable, "").split(",") if part.strip()]
    return [expanded(home, part) for part in given] or [home / default for default in defaults]


def expanded(home: Path, given: str) -> Path:
    """A folder as a person names it: ``~`` is the home, which is also what a relative one is below."""
    return home / given[2:] if given.startswith("~/") else home / given


def leads_out(home: Path, root: Path) -> bool:
    """Whether a folder below the home is a link to somewhere else."""
    if home not in root.parents:
        return False
    real_home = os.path.realpath(home)
    return os.path.commonpath([real_home, os.path.realpath(root)]) != real_home


def stray(runtime: str, home: Path, root: Path) -> Iterator[Source]:
    """The root as a source that reading will refuse, where it leads out of the home."""
    if leads_out(home, root) and os.path.exists(root):
        yield Source(runtime, root)


def refuse_stray(source: Source) -> None:
    """For readers whose sources are files. Raises ``SourceError`` where the source is a stray root."""
    if os.path.isdir(source.path):
        raise SourceError(source.path, "leads out of the home")


def own(home: Path, file: Path) -> bool:
    """Whether there is such a file, in a folder that does not lead out of the home.

    One whose folder is seen but may not be entered counts as there: reading it says what is wrong.
    """
    try:
        os.lstat(file)
    except PermissionError:
        return os.path.lexists(file.parent)
    except OSError:
        return False
    return not leads_out(home, file.parent)


def entries(path: str | Path) -> list[os.DirEntry[str]]:
    """The entries of a folder in the order of their names; none where it cannot be listed."""
    try:
        with os.scandir(path) as found:
            return sorted(found, key=_name)
    except OSError:
        return []


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def subfolders(path: str | Path) -> Iterator[os.DirEntry[str]]:
    """The real folders in a folder."""
    return (entry for entry in entries(path) if entry.is_dir(follow_symlinks=False))


def files(path: str | Path, wanted: Callable[[str], bool]) -> Iterator[os.DirEntry[str]]:
    """Entries of a folder whose name is ``wanted`` and which are not folders; links too, for reading refuses them."""
    return (entry for entry in entries(path) if wanted(entry.name) and not entry.is_dir(follow_symlinks=False))


def walk(path: str | Path, wanted: Callable[[str], bool], depth: int) -> Iterator[os.DirEntry[str]]:
    """``files`` of a folder and of its folders, ``depth`` levels down."""
    for entry in entries(path):
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from walk(entry.path, wanted, depth - 1)
        elif wanted(entry.name):
            yield entry
