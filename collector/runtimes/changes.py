"""Which sessions of a database have changed since the last pass, so that a growing store costs what grew.

A database that is in use changes with every call, and its time says no more. So a reader sums a few columns
per session (in SQL, without content) and compares a checksum of them with what ``state`` kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from zlib import crc32

import orjson

# For a statement's ``WHERE``: rows of the sessions in the JSON list that is its parameter.
AMONG: Final = "IN (SELECT value FROM json_each(?))"


class Changes:
    """Checksums by session: those of the last pass (``known``) and those of this one."""

    def __init__(self, known: object) -> None:
        self._known: Mapping[str, Any] = known if isinstance(known, dict) else {}
        self._found: dict[str, int] = {}

    def see(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Take in rows of a session id and what is to be compared; more than one row of a session adds up."""
        for session, *values in rows:
            if isinstance(session, str):
                self._found[session] = crc32(repr(values).encode("utf-8", "replace"), self._found.get(session, 0))

    def __contains__(self, session: str) -> bool:
        return self._known.get(session) != self._found.get(session)

    @property
    def sessions(self) -> str:
        """The sessions that are new or have changed, as the parameter of ``AMONG``."""
        return orjson.dumps([session for session in self._found if session in self]).decode()

    @property
    def saved(self) -> dict[str, int]:
        """For ``state``."""
        return self._found


def sums(table: str, present: frozenset[str], *columns: str) -> str:
    """The statement for ``Changes.see``: per session, the number of rows and the sums of those columns that exist."""
    totals = "".join(f', total("{column}")' for column in columns if column in present)
    return f'SELECT session_id, count(*){totals} FROM "{table}" GROUP BY 1'  # noqa: S608  # names are constants
