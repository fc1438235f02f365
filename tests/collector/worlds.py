"""Random worlds: what really happened on a VM, and the logs and stores that tell of it, torn into deliveries.

A world knows its truth (every call once), so a test need only deliver what tells of it, in any order, as often as it
likes, and compare. Token numbers of a call are unique in a world unless ``alike`` asks for calls that look the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from hypothesis import strategies as st

from collector.ingest_batch import BatchStep
from collector.ingest_log import LogIngest
from collector.ingest_report import IngestReport, silent
from collector.ledger.sqlite import SqliteLedger
from collector.pricing import Pricer
from collector.query import ALL_RECORDS, Query
from collector.rates import Card, Rates
from collector.record import Record, Session
from collector.rows import Page
from collector.runtimes import Batch
from shim import allowlist
from shim.identity import reference
from shim.line import Line, Tokens, encode
from shim.places import CHECKOUT_ALLOWLIST

ALLOWLIST = allowlist.load(CHECKOUT_ALLOWLIST)
KEY = bytes(range(32))
ZONE = "Europe/Berlin"
START = 1_774_728_000  # 2026-03-28 20:00 UTC: the clocks of ZONE go forward in the night
BOOT = "20260328T195959Z-abcdef"
PRICED, UNPRICED = "gpt-5-mini", "acme-large"


class Shelf:
    """A price list of one model."""

    version = "shelf 1"

    def find(self, provider, model, tier):
        return self if model == PRICED else None

    def at(self, ts):
        return Card(((0, Rates(input=3, cache_read=1, output=7)),), "openai", PRICED, self.version)


PRICER = Pricer(Shelf())


@dataclass
class World:
    """Deliveries (bytes of a log, or a batch of a store) and the truth: calls and tokens per runtime."""

    deliveries: list[bytes | Batch] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    unmetered: int = 0


def line(number, runtime, ts, tokens, model, session="ref-1", response=None, duration=1000, **rest):
    return Line(
        f"{BOOT}-{number}", ts, "vm-1", runtime, "openai", "openai-chat", model, session, "conversation", response,
        tokens, "reported", "completed", 200, True, duration, 10, **rest,
    )  # fmt: skip


def record(name, ts, tokens, model, session, runtime="claude_code", **rest):
    return Record(runtime, name, session, ts, tokens, model, provider="openai", **rest)


@st.composite
def worlds(draw, alike=False):
    """Worlds of a dozen calls; ``alike``: several may have the same numbers at nearly the same time."""
    world = World()
    lines, records, turns = [], [], []
    for number in range(1, draw(st.integers(1, 10)) + 1):
        size = draw(st.integers(1, 2)) if alike else number
        ts = START + (draw(st.integers(0, 4)) * 3 if alike else draw(st.integers(0, 40_000)) + number / 1000)
        tokens = Tokens(100 + size, draw(st.sampled_from((None, 5))) if not alike else 5, 0, 0, size, None)
        model = draw(st.sampled_from((PRICED, UNPRICED, None)))
        kind = draw(st.sampled_from(("metered", "own", "twin", "lookalike", "foreign", "unmetered", "taken_back")))
        name, session = f"msg_{number}", f"session-{draw(st.integers(1, 3))}"
        tell(world, draw, kind, number, ts, tokens, model, name, session, lines, records, turns)
    for owner, turn in turns:
        listed = Session("picoclaw", owner, START, START + 50_000, "home-model", turns=(turn,))
        world.deliveries.append(Batch(sessions=[listed]))
    world.deliveries += [Batch(records=[one]) for one in records]
    world.deliveries += [encode(one) for one in lines]
    return world


def tell(world, draw, kind, number, ts, tokens, model, name, session, lines, records, turns):
    """Write down one call where its kind says that it is told of."""
    runtime = "picoclaw" if kind in ("metered", "unmetered") else "claude_code"
    if kind != "taken_back":
        world.calls[runtime] += 1
    if kind == "unmetered":
        turns.append((f"chat-{draw(st.integers(1, 2))}", (ts + 100_000, None)))
        world.unmetered += 1
        return
    if kind != "taken_back":
        world.tokens[runtime] += tokens.total
    if kind == "metered":
        lines.append(line(number, "picoclaw", ts, tokens, model, f"ref-{draw(st.integers(1, 2))}"))
        if draw(st.booleans()):
            turns.append((f"chat-{draw(st.integers(1, 2))}", (ts + 1.5, None)))
        return
    own = record(name, ts + 0.5, tokens, model, session, owner=START, revision=3)
    if kind == "twin":
        own = msgspec.structs.replace(own, response_id=name)
        lines.append(line(number, "picoclaw", ts, tokens, "other-name", response=reference(KEY, "response", name)))
    elif kind == "lookalike":
        lines.append(line(number, "picoclaw", ts, tokens, model))
    elif kind == "foreign":
        lines.append(line(number, "claude_code", ts, tokens, model))
    elif kind == "taken_back":
        records.append(msgspec.structs.replace(own, revision=4, taken_back=True))
    records.append(own)
    if draw(st.booleans()):
        records.append(msgspec.structs.replace(own, session_id=f"fork-of-{session}", owner=START + 60_000))
    if draw(st.booleans()):
        records.append(msgspec.structs.replace(own, tokens=tokens._replace(output_tokens=0), revision=1))


class Vm:
    """A ledger and the ways into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = SqliteLedger(folder / "ledger.db", ZONE)
        self.logs = LogIngest(self.ledger, ALLOWLIST, PRICER)
        self.query = Query(self.ledger, self.ledger.calendar, clock=lambda: START + 3600)
        self.count = 0

    def take(self, delivery: bytes | Batch) -> IngestReport:
        report = IngestReport()
        if isinstance(delivery, bytes):
            self.count += 1
            path = self.folder / f"log-{self.count}.jsonl"
            path.write_bytes(delivery)
            self.logs.read(path, report, silent)
        else:
            with self.ledger.transaction() as tx:
                BatchStep(tx, "vm-1", ALLOWLIST, PRICER, [KEY]).take(delivery)
        return report

    def facts(self) -> dict[str, object]:
        """Everything that a user could see, without what tells of the reading itself (times, duplicates)."""
        sessions = self.query.sessions(page=Page(limit=10_000)).rows
        return {
            "sessions": sorted(sessions, key=lambda row: (row.runtime, row.session_id)),
            "days": self.query.aggregates(),
            "models": sorted(self.query.models(), key=str),
            "runtimes": sorted(self.query.runtimes(), key=str),
            "records": sorted(self.ledger.scan(ALL_RECORDS), key=lambda entry: entry.id),
            "gaps": self.query.gaps(),
            "refused": sorted(
                (row.reason, row.runtime, row.count) for row in self.query.refused() if row.reason != "duplicate_line"
            ),
        }
