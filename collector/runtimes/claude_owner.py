"""Whose the lines of a Claude Code transcript are: since when they are its session's own, and who wrote those before.

A session starts with its first line that is no copy. Copies are told by their ``forkedFrom``, by a line of a later day
before them, by an answer at or after them that another session asked for (``requestSessionId``, since 2.1.3xx), or by
comparing transcripts (``lineage``); of copies that one file holds twice the second may lack its ``forkedFrom``, but is
older than the last that has one. A file of copies alone has not begun yet. A copied call belongs to the session that
asked for it, or else to the one that was running when it was made: the one that was forked, or one that this in turn
was forked from.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any, Final

from collector.jsonl import find, first_lines, parse
from collector.runtimes.lineage import Lineage
from collector.runtimes.values import iso, latest, mapping, reference

# Until when (epoch seconds) a session wrote the lines that were copied.
Until = tuple[float, str]

ASKED: Final = b'"requestSessionId":'
ANSWER: Final = b'"output_tokens":'
# What may follow an answer that was copied, copied too, and begins no session.
TRAILING: Final = ("attachment", "system")


class Ownership:
    """What one transcript has told: ``start`` of its own part (epoch seconds) and ``parent``, the session forked."""

    def __init__(self, lineage: Lineage, path: Path, session: str, state: dict[str, Any]) -> None:
        self.start: float | None = state.get("owner")
        self.parent: str | None = state.get("parent")
        self._lineage = lineage
        self._path = path
        self._session = session
        self._copied: float | None = state.get("copied")
        # Whether an answer that another session asked for told the parent, and whether such answers may still follow.
        self._asked: bool = state.get("asked", False)
        self._copying: bool = state.get("copying", self.start is None)
        self._writers: dict[str, list[Until]] = {}
        if "writers" in state:
            self._writers[session] = [(until, name) for until, name in state["writers"]]

    @property
    def copied(self) -> float | None:
        """When the last line was written that the transcript itself tells to be a copy."""
        return self._copied

    @property
    def state(self) -> dict[str, Any]:
        """What the next pass needs to know, JSON-able."""
        known: dict[str, Any] = {"owner": self.start, "parent": self.parent, "copied": self._copied}
        if self._asked or self._copying:
            known |= {"asked": self._asked, "copying": self._copying}
        writers = self._writers.get(self._session)
        # While all is another's it is to be asked again.
        asked = writers is None or any(until == inf for until, _ in writers)
        return known if asked else {**known, "writers": [list(until) for until in writers or ()]}

    def take(self, block: bytes) -> None:
        """Look for the first line that is the session's own, until it is found."""
        if self._copying:
            self._answers(block)
        if self.start is not None:
            return
        for line in first_lines(block):
            entry = parse(line)
            if entry is None or (when := iso(entry.get("timestamp"))) is None:
                continue
            copied_from = mapping(entry.get("forkedFrom")).get("sessionId")
            if copied_from is not None:
                self.parent = reference(copied_from)
                self._copied = latest(self._copied, when)
            elif (self._copied is None or when > self._copied) and not (self._asked and entry.get("type") in TRAILING):
                self.start = when
                self._compare()
                return

    def _answers(self, block: bytes) -> None:
        """The last answer that another session asked for: the lines until then are copies."""
        at, last = block.rfind(ASKED) if find(block, ASKED) >= 0 else -1, block.rfind(ANSWER)
        end = block.find(b"\n", at)
        self._copying = last < 0 or (at >= 0 and last < end)
        entry = (parse(block[block.rfind(b"\n", 0, at) + 1 : end]) if at >= 0 else None) or {}
        when, asked = iso(entry.get("timestamp")), reference(entry.get("requestSessionId"))
        if when is None or asked in (None, self._session) or when < (self._copied or when):
            return
        self._copied, self.parent, self._asked = when, asked, True
        if self.start is not None and self.start <= when:
            self.start = None

    def _compare(self) -> None:
        """Ask the other transcripts of the project whether this one was copied from them."""
        folder = self._path.parent
        self._writers.clear()
        if (origin := self._lineage.origin(self._path, folder)) is not None:
            # A copy without a line of its own has not begun: the next lines are looked at too.
            self.start = max(origin.start, self.start or origin.start) if origin.start < inf else None
            # Who asked for the last answer that was copied may lie in another folder.
            self.parent = self.parent if self._asked else origin.parent.stem
        elif self.parent is None and (original := self._lineage.original(self._path, folder)) is not None:
            self.parent = original.stem
        if self.parent is not None:
            self._writers_of(self._session)

    def writer(self, session: str, ts: float) -> str:
        """Who wrote a call of time ``ts`` first that a line calls ``session``'s."""
        if self.parent is None or (session == self._session and self.start is not None and ts >= self.start):
            return session
        return next((name for until, name in self._writers_of(session) if ts < until), session)

    def _writers_of(self, session: str) -> list[Until]:
        if session not in self._writers:
            # A line may name anything; what no file can be called has no transcript.
            path = None if "/" in session else self._path.with_name(f"{session}.jsonl")
            found = [] if path is None else self._lineage.writers(path, path.parent)
            self._writers[session] = [(until, writer.stem) for until, writer in found]
        return self._writers[session]
