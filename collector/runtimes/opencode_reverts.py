"""What version 2 of opencode took out of its sessions, though their rows keep it.

When a revert is committed, version 2 deletes the messages from there on and leaves the session's totals alone
(``RevertEvent.Committed`` in packages/core/src/session/projector.ts, https://github.com/anomalyco/opencode); version 1
subtracts them. Who counted such messages must not count them once more as what the row has beyond those that are left.
So of each session the messages of the last pass are remembered by their number, their sum and the start of the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from collector.runtimes.counts import NOTHING, Counts
from collector.runtimes.values import mapping


@dataclass(slots=True)
class _Seen:
    """A session's messages in one pass: how many, when the last began (ms), their sum; what was taken out so far."""

    count: int = 0
    last: int = 0
    used: Counts = NOTHING
    gone: Counts = NOTHING

    def see(self, created: int, used: Counts) -> None:
        self.count, self.last, self.used = self.count + 1, max(self.last, created), self.used + used


class Reverted:
    """Compares the messages of the last pass (``saved``) with those of this one."""

    def __init__(self, saved: object) -> None:
        self._before = {
            session: _Seen(count, last, Counts(*used), Counts(*gone))
            for session, (count, last, used, gone) in mapping(saved).items()
        }
        self._left: dict[str, _Seen] = {}
        self._now: dict[str, _Seen] = {}

    def see(self, session: str, created: int, used: Counts) -> None:
        """A message that counts for its session."""
        self._now.setdefault(session, _Seen()).see(created, used)
        if session in self._before and created <= self._before[session].last:
            self._left.setdefault(session, _Seen()).see(created, used)

    def gone(self, session: str) -> Counts:
        """What was taken out of a session whose messages were all seen in this pass."""
        before, left = self._before.get(session), self._left.get(session, _Seen())
        if before is None:
            return NOTHING
        now = self._now.setdefault(session, _Seen())
        now.gone = before.gone
        # A message that says less than before was begun anew; only one that is not there any more was taken out.
        if left.count < before.count:
            now.gone += before.used.beyond(left.used)
        return now.gone

    def saved(self, sessions: Iterable[str]) -> dict[str, tuple[object, ...]]:
        """For ``state``: what is known of these sessions."""
        known = self._before | self._now
        return {
            session: (seen.count, seen.last, seen.used.numbers, seen.gone.numbers)
            for session in sessions
            if (seen := known.get(session)) is not None
        }
