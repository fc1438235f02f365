"""The account of one Claude Code session: the surplus that its running total has over its rows, pass after pass.

What was given out is replaced by what the next total says; a surplus that turned out to be a row (a sub-agent's, read
later than the total) is taken back. Where nothing told what a fork began with (the original is in another home, or
lost), what its first total has beyond all rows is taken for the original's: it counts for that session, under the key
of that session's own surplus, which goes before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from collector.record import Record
from collector.runtimes import claude_cost, claude_sums
from collector.runtimes.claude_lines import Call
from collector.runtimes.claude_owner import Ownership
from collector.runtimes.claude_totals import Total
from collector.runtimes.values import model
from shim.line import Tokens

RUNTIME: Final = "claude_code"
# The revision of what a fork says of the session that was forked; that session's own begin with 1.
INHERITED: Final = 0
# ``Account.settled`` is a time (epoch seconds) of 31 bits, before the 31 of a row's own: a hub takes 62.
LATEST: Final = 2**31 - 1
SHIFT: Final = 31


class Account:
    """What is known of one session. ``settled`` counts how often it was priced and is no less than its last total's
    time (epoch seconds), for a transcript that was moved to another folder is read anew. ``until``: rows up to then
    are part of that total. ``base``: the total that the session began with, as a transcript told it."""

    def __init__(self, session: str, state: dict[str, Any]) -> None:
        self.session = session
        self.settled: int = state.get("settled", 0)
        self.until: float | None = state.get("priced_to")
        self.base = claude_sums.known(state.get("base"))
        # What sub-agents used, whose files may be gone later, and the keys that were given out, with their sessions.
        self._side = claude_sums.known(state.get("side")) or {}
        self._given: dict[str, str] = state.get("given", {})

    @property
    def state(self) -> dict[str, Any]:
        """What the next pass needs to know, JSON-able."""
        return {
            "settled": self.settled,
            "priced_to": self.until,
            "base": claude_sums.kept(self.base),
            "side": claude_sums.kept(self._side),
            "given": self._given,
        }

    def settle(self, own: Sequence[Call], total: Total, files: Iterable[str], owned: Ownership) -> list[Record]:
        """Price the session's ``own`` calls by its total, and the records of what that has beyond them.

        ``files``: those of the session that were read so far, of which some may be gone.
        """
        own = [call for call in own if total.covers(call)]
        gone = claude_cost.gone(files, self._side, claude_cost.of_agents(own, self.until))
        inherited = total.inherited if owned.parent is not None else {}
        self.settled = max(self.settled + 1, min(int(total.ts), LATEST))
        self.until, self.base = total.ts, total.found
        extra = claude_cost.settle(own, replace(total, base=claude_sums.summed((total.base, inherited, gone))))
        self._side = claude_sums.summed((claude_cost.of_agents(own, total.ts), gone))
        found = [self._surplus(part, total.ts, owned) for part in extra]
        found += [_inherited(named, classes, owned) for named, (classes, _) in inherited.items()]
        given, self._given = self._given, {record.key: record.session_id for record in found}
        # A fork in another home may take some of what this session's own rows tell for a surplus of it.
        given = {_key(self.session, named): self.session for named in total.last} | given
        return found + [self._nothing(key, given[key], total.ts, owned) for key in given.keys() - self._given.keys()]

    def _surplus(self, part: claude_cost.Surplus, ts: float, owned: Ownership) -> Record:
        return Record(
            RUNTIME,
            _key(self.session, part.model),
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
        )

    def _nothing(self, key: str, session: str, ts: float, owned: Ownership) -> Record:
        """What was given out under a key is taken back."""
        revision = self.settled if session == self.session else INHERITED + 1
        return Record(
            RUNTIME, key, session, ts, Tokens(), grain="session", owner=owned.start or ts, revision=revision,
            taken_back=True,
        )  # fmt: skip


def _key(session: str, named: str) -> str:
    return f"cost-state:{session}:{claude_sums.canonical(named)}"


def _inherited(named: str, classes: claude_sums.Classes, owned: Ownership) -> Record:
    """A surplus of the session that was forked: under its key, so that what its own transcript says goes before it."""
    session, ts = owned.parent or "", owned.start or 0.0
    fresh, read, write, long_lived, output = classes
    tokens = Tokens(fresh, read, write, long_lived or None, output)
    return Record(
        RUNTIME, _key(session, named), session, ts, tokens, model=model(named), grain="session", owner=ts,
        revision=INHERITED,
    )  # fmt: skip
