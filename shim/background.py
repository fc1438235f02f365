"""Background responses: a provider answers before it makes them, and they are read until they are done. All one line.

Until a read brings the end, the line waits here and in the call's in-flight slot, with the reference of the response. A
stop and a ``kill -9`` leave that slot, and the next start goes on waiting (``shim.recovery``). What is not read to its
end in ``KEPT_SECONDS``, or is one too many, is written as it stands; a later read of it adds nothing.

Any worker may be asked for a response that another one waits for. Who sees the end claims the line, writes it and says
so, in the table that all workers share (``shim.session_store``); a claim whose owner was killed before it wrote counts
for nothing at the next start.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final

import orjson

from shim.inflight import NO_SLOT, Inflight
from shim.session import Sessions

BACKGROUND_KEPT: Final = 1024
KEPT_SECONDS: Final = 24 * 3600.0
# What the line of a response says of the call that began it.
BEGUN: Final = ("ts", "session", "session_source")
# The JSON object of a line, in the order and with the values of ``shim.line.as_object``; the sink gives the id.
Record = dict[str, Any]


class Background:
    """The responses one process waits for. ``write``: appends a line and gives its slot back."""

    def __init__(self, sessions: Sessions, inflight: Inflight, write: Callable[[Record, int], None]) -> None:
        self._sessions = sessions
        self._inflight = inflight
        self._write = write
        self._kept: OrderedDict[str, tuple[Record, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def durable(self) -> bool:
        """Whether what is kept outlives the process."""
        return self._inflight.durable

    def note(self, response: str, record: Record, slot: int) -> None:
        """A call in flight told its response's reference: killed from here on, a later read completes it."""
        self._sessions.wait(response)
        if slot >= 0:
            self._inflight.pend(slot, orjson.dumps(record))

    def keep(self, response: str, record: Record, slot: int) -> None:
        """A call was answered and its response is still being made: the line waits for the read that brings its end."""
        earlier = self._kept.pop(response, None)
        if earlier is not None:
            self._write(*earlier)  # a provider that gives two responses one id
        self._sessions.wait(response)
        self._kept[response] = record, self._inflight.pend(slot, orjson.dumps(record))
        if len(self._kept) > BACKGROUND_KEPT:
            self._give_up(next(iter(self._kept)))

    def ended(self, response: str, record: Record, slot: int) -> None:
        """The call itself saw the end of its response."""
        if self._sessions.claim(response, mine=True):
            self._settle(response, record, slot)
        else:
            self._inflight.end(slot)  # a read saw it before

    def polled(self, response: str, record: Record) -> bool:
        """A read saw the end of a response. ``record``: what it would say as a call of its own.

        ``False`` where no call of ours made the response, or none that is remembered: a read of it is no call.
        """
        first, slot = self._kept.get(response, (None, NO_SLOT))
        if first is None and record["usage"] != "reported":
            return True  # nothing to add to a line that is written already
        if self._sessions.claim(response, mine=first is not None):
            self._kept.pop(response, None)
            if first is not None:
                record |= {name: first[name] for name in BEGUN}
            self._settle(response, record, slot)
        elif self._sessions.was_written(response):
            self._kept.pop(response, None)
            self._inflight.end(slot)
        return self._sessions.is_known(response)

    def expire(self, now: float) -> None:
        """Write the lines that waited too long. ``now``: epoch seconds."""
        while self._kept:
            response, (record, _) = next(iter(self._kept.items()))
            if now - record["ts"] < KEPT_SECONDS:
                break
            self._give_up(response)

    def take_over(self, records: Iterable[Record], in_log: set[str]) -> int:
        """Wait for the responses that a dead process waited for; how many are new.

        ``in_log``: references of responses whose line is in the log for sure. Two files say the same of a response
        where a start was killed between taking it over and removing the first: it is kept once.
        """
        before = len(self._kept)
        for record in sorted(records, key=lambda record: float(record["ts"])):
            response = record["response"]
            if response in in_log:
                self._sessions.wrote(response)
            elif response not in self._kept and not self._sessions.was_written(response):
                self._sessions.disclaim(response)
                self.keep(response, record, NO_SLOT)
        return len(self._kept) - before

    def close(self) -> None:
        """Leave what is kept to the next start; write what would not be there then."""
        for response, (_, slot) in list(self._kept.items()):
            if slot < 0 or not self.durable:
                self._give_up(response)

    def _give_up(self, response: str) -> None:
        """Write a line as it stands, unless another worker saw the end of its response."""
        record, slot = self._kept.pop(response)
        if self._sessions.was_written(response):
            self._inflight.end(slot)
        else:
            self._settle(response, record, slot)

    def _settle(self, response: str, record: Record, slot: int) -> None:
        """Write the one line of a response. Killed at any point in here, the next start finds it in slot or log."""
        if slot >= 0:
            self._inflight.pend(slot, orjson.dumps(record), ended=True)
        self._write(record, slot)
        self._sessions.wrote(response)
