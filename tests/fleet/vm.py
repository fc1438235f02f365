"""A simulated VM: what it has recorded (the truth), its journal, and how far the hub has acknowledged it.

It does to its journal what real VMs do: records change after they were sent, batches go out twice or late, a restart
forgets the last acknowledgements, its clock is wrong by up to a day.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace

from collector.hub.batch import VERSION, Facts, Head, encode
from collector.ledger import Entry, Kind
from shim.line import Tokens

DAY = 86_400
MODELS = ("gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-pro", "acme-1")
PRICED = Kind("reported", "completed", "exact", "derived", "list_price", None, None, True)
GUESSED = Kind("partial", "client_closed", "estimated", "derived", "list_price", "usage_partial", None, True)
UNKNOWN = Kind("missing", "upstream_closed", "unavailable", None, None, None, "no_usage", True)
RATES = '{"book":"0.2.3","input":2500000,"output":10000000}'


@dataclass(slots=True)
class Vm:
    """One VM. ``journal``: entries as they were when added or changed; ``cursor``: how much of it is acknowledged."""

    name: str
    seed: int
    token: str
    batch_size: int = 50
    journal: list[Entry] = field(default_factory=list)
    truth: dict[str, Entry] = field(default_factory=dict)
    cursor: int = 0
    acked: int = 0
    draw: random.Random = field(init=False)
    skew: float = field(init=False)
    born: int = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(f"{self.seed} {self.name}")
        self.skew = self.draw.uniform(-DAY, DAY) if self.draw.random() < 0.2 else self.draw.uniform(-2, 2)
        self.born = int((time.time() - DAY + self.skew) * 1000)

    def record(self, count: int) -> None:
        """Make so many calls: usage lines and, one in five, a self-reporting runtime's record."""
        start = len(self.truth)
        for place in range(start, start + count):
            entry = self._store_record(place) if self.draw.random() < 0.2 else self._line(place)
            self._note(entry)

    def copy_records_of(self, original: Vm) -> None:
        """Be a clone: the original's records are on this VM's disk too; the stores' ones are read here as its own."""
        for entry in original.truth.values():
            self.journal.append(entry if entry.source == "log" else replace(entry, vm=self.name))

    def change(self, count: int) -> None:
        """Change records that were made before: a line finds its session, is a twin after all, or is repriced."""
        for entry in self.draw.sample(list(self.truth.values()), min(count, len(self.truth))):
            kind = self.draw.randrange(3)
            if kind == 0:
                self._note(replace(entry, session_id=f"found-{self.draw.randrange(9)}", attribution="time"))
            elif kind == 1 and entry.source == "log":
                self._note(replace(entry, withdrawn=None if entry.withdrawn else "twin"))
            elif entry.cost_pico is not None:
                self._note(replace(entry, cost_pico=entry.cost_pico + 1))

    def next_batch(self) -> tuple[int, bytes]:
        """What is to be sent now, and the place in the journal after it."""
        return self._batch(self.cursor)

    def old_batch(self) -> bytes | None:
        """A batch that was sent before, as it was then: a retry that the network held back."""
        return self._batch(self.draw.randrange(self.cursor))[1] if self.cursor else None

    def restart(self) -> None:
        """Come back with a cursor that was kept some time ago."""
        self.cursor = self.draw.randrange(self.cursor + 1)

    @property
    def done(self) -> bool:
        """Whether the hub has acknowledged the whole journal."""
        return self.cursor >= len(self.journal)

    def _batch(self, start: int) -> tuple[int, bytes]:
        entries = self.journal[start : start + self.batch_size]
        after = start + len(entries)
        facts = Facts("sim", waiting=len(self.journal) - after)
        return after, encode(Head(VERSION, self.name, self.born, start, after, time.time() + self.skew, facts), entries)

    def _note(self, entry: Entry) -> None:
        self.truth[entry.id] = entry
        self.journal.append(entry)

    def _line(self, place: int) -> Entry:
        kind = self.draw.choice((PRICED, PRICED, GUESSED, UNKNOWN))
        return Entry(
            id=f"{self.name}.boot-{place + 1}", source="log", runtime=self.draw.choice(("picoclaw", "cursor")),
            session_id=f"ref-{place // 20}", session_ref=f"ref-{place // 20}", session_source="header",
            upstream="openai", wire="openai-chat", http_status=200, stream=True, duration_ms=self.draw.randrange(9000),
            **self._shared(kind),
        )  # fmt: skip

    def _store_record(self, place: int) -> Entry:
        return Entry(
            id=f"{self.draw.getrandbits(128):032x}", source="vendor", runtime="claude_code",
            session_id=f"session-{place // 50}", owner_ms=self.born, revision=1, **self._shared(PRICED),
        )  # fmt: skip

    def _shared(self, kind: Kind) -> dict[str, object]:
        known = kind is not UNKNOWN
        counts = [self.draw.randrange(100_000) for _ in range(2)]
        return {
            "vm": self.name,
            "ts_ms": int((time.time() + self.skew - self.draw.random() * 40 * DAY) * 1000),
            "tokens": Tokens(counts[0], self.draw.choice((None, 0, 512)), None, None, counts[1], 0)
            if known
            else Tokens(),
            "kind": kind,
            "model": self.draw.choice(MODELS),
            "cost_pico": counts[0] * 2_500_000 + counts[1] * 10_000_000 if known else None,
            "rates": RATES if known else None,
        }
