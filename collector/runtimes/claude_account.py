"""The account of one Claude Code session: the surplus that its running total has over its rows, pass after pass.

What was given out is replaced by what the next total says; a surplus that turned out to be a row (a sub-agent's, read
later than the total) is taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from collector.record import Record
from collector.runtimes import claude_cost, claude_totals
from collector.runtimes.claude_lines import Call
from collector.runtimes.claude_owner import Ownership
from collector.runtimes.claude_totals import Total
from collector.runtimes.values import model
from shim.line import Tokens

RUNTIME: Final = "claude_code"


class Account:
    """What is known of one session. ``settled``: how often it was priced. ``until``: rows up to then (epoch seconds)
    are part of the last total. ``base``: the total that the session began with, as a transcript told it."""

    def __init__(self, session: str, state: dict[str, Any]) -> None:
        self.session = session
        self.settled: int = state.get("settled", 0)
        self.until: float | None = state.get("priced_to")
        self.base = claude_totals.known(state.get("base"))
        # What sub-agents used, whose files may be gone later, and the models of which a surplus was given.
        self._side = claude_totals.known(state.get("side")) or {}
        self._given: list[str] = state.get("given", [])

    @property
    def state(self) -> dict[str, Any]:
        """What the next pass needs to know, JSON-able."""
        return {
            "settled": self.settled,
            "priced_to": self.until,
            "base": claude_totals.kept(self.base),
            "side": claude_totals.kept(self._side),
            "given": self._given,
        }

    def covers(self, call: Call) -> bool:
        """Whether a call was part of the last total."""
        return self.until is not None and call.ts <= self.until

    def settle(self, own: Sequence[Call], total: Total, files: Iterable[str], owned: Ownership) -> list[Record]:
        """Price the session's ``own`` calls by its total, and the records of what that has beyond them.

        ``files``: those of the session that were read so far, of which some may be gone.
        """
        gone = claude_cost.gone(files, self._side, claude_cost.of_agents(own, self.until))
        self.settled += 1
        self.until, self.base = total.ts, total.found
        extra = claude_cost.settle(own, replace(total, base=claude_totals.summed((total.base, gone))))
        self._side = claude_totals.summed((claude_cost.of_agents(own, total.ts), gone))
        given, self._given = self._given, [part.model for part in extra]
        nothing = [claude_cost.Surplus(named, Tokens(), None) for named in given if named not in self._given]
        return [
            *(self._record(part, total.ts, owned) for part in extra),
            *(self._record(part, total.ts, owned, taken_back=True) for part in nothing),
        ]

    def _record(self, part: claude_cost.Surplus, ts: float, owned: Ownership, *, taken_back: bool = False) -> Record:
        return Record(
            RUNTIME,
            f"cost-state:{self.session}:{part.model}",
            self.session,
            ts,
            part.tokens,
            model=model(part.model),
            grain="session",
            owner=owned.start or ts,
            revision=self.settled,
            parent_session_id=owned.parent,
            vendor_pico=part.pico,
            vendor_basis=None if part.pico is None else "runtime_price",
            taken_back=taken_back,
        )
