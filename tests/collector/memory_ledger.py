"""A ledger held in a list: every sum is taken from the records when asked, so it is right by inspection."""

from dataclasses import replace

from collector import windows
from collector.hub import fleet
from collector.ledger import Entry, Group, Kind, totals
from collector.query import Query
from collector.rows import SourceRow
from shim.line import TOKEN_CLASSES, Tokens
from tests.collector.priced import PRICER, at, record, tokens

NOW = at("2026-11-30T12:00")


class MemoryLedger:
    def __init__(self, entries, sources=(), refused=(), gaps=()):
        self.entries = list(entries)
        self._sources, self._refused, self._gaps = list(sources), list(refused), list(gaps)

    def groups(self, by, where):
        found = {}
        for entry in self.scan(where):
            day = None if entry.ts_ms is None else entry.ts_ms // 86_400_000
            key = tuple(day if name == "day" else getattr(entry, name) for name in by)
            found.setdefault((key, entry.kind), []).append(entry)
        return [_group(key, kind, entries) for (key, kind), entries in found.items()]

    def totals(self, by, where):
        return totals.of_groups(self.groups(by, where))

    def by_day(self, by, where, after, limit):
        return totals.by_day(self.totals(("day", *by), where), after, limit)

    def by_vm(self, by, where, start, limit):
        found = self.groups(("vm", *by), where)
        return sorted((one for one in found if start is None or one.key[0] >= start), key=lambda one: one.key[0]), None

    def second_prices(self, sessions, where):
        return []

    def keys(self, by, where):
        return {group.key for group in self.groups(by, where)}

    def scan(self, where):
        names = ("runtime", "model", "vm", "source")
        chosen = [one for one in self.entries if all(getattr(where, n) in (None, getattr(one, n)) for n in names)]
        return iter(sorted(chosen, key=lambda entry: -1 if entry.ts_ms is None else entry.ts_ms))

    def sources(self):
        return self._sources

    def refused(self):
        return self._refused

    def refused_counts(self):
        return fleet.counts(self._refused)

    def gaps(self):
        return self._gaps

    def contacts(self):
        return []


def _group(key, kind, entries):
    counts = [[getattr(entry.tokens, name) for entry in entries] for name in TOKEN_CLASSES]
    costs = [entry.cost_pico for entry in entries if entry.cost_pico is not None]
    return Group(
        key=key,
        kind=kind,
        calls=len(entries),
        sums=tuple(sum(count or 0 for count in column) for column in counts),
        known=tuple(sum(count is not None for count in column) for column in counts),
        without_tokens=sum(not entry.tokens.known for entry in entries),
        priced=len(costs),
        cost_pico=sum(costs),
        acu_known=0,
        acu_micro=0,
    )


def query(entries, **rest):
    """The query layer over records."""
    return Query(MemoryLedger(entries, **rest), windows.Calendar(windows.UTC), clock=lambda: NOW)


def entry(number=1, upstream="anthropic", vm="vm1", call=None, **rest) -> Entry:
    """A priced record of a usage line, as the ledger keeps it."""
    call = record(source="log", **rest) if call is None else call
    priced = PRICER.price(call, upstream)
    kind = Kind(
        call.usage,
        call.outcome,
        priced.status,
        priced.source,
        priced.basis,
        priced.caveat,
        priced.reason,
        priced.counted,
    )
    return Entry(
        id=f"b-{number}",
        vm=vm,
        runtime=call.runtime,
        source=call.source,
        session_id="s1",
        ts_ms=int(call.ts * 1000),
        tokens=call.tokens,
        kind=kind,
        model=call.model,
        upstream=upstream,
        wire="anthropic-messages",
        service_tier=call.service_tier,
        grain=call.grain,
        cost_pico=priced.cost_pico,
        rates=priced.card.data if priced.card else None,
    )


def every_state() -> list[Entry]:
    """Records in each state of honesty, with every source and basis of money, and one that is no billable call."""
    missing = {"count": Tokens(), "usage": "missing"}
    return [
        entry(1, count=tokens(1000, 5000, 2000, 500, 700, 200)),
        entry(2, count=tokens(1000, output=100), ts=at("2026-11-18T12:59:59")),
        entry(3, "openai", model="gpt-4o", count=tokens(100, write=50)),
        entry(4, count=Tokens(500, 0, 0, 0, None, None), usage="partial", outcome="client_closed"),
        entry(5, "my-gateway", model="acme-1", count=tokens(300, output=30)),
        entry(6, **missing),
        entry(7, **missing, outcome="rejected"),
        entry(8, "openrouter", model="openai/gpt-5", vendor_pico=12_345_678, vendor_basis="billed"),
        entry(9, "ollama", model="qwen3:8b"),
        entry(10, "perplexity", model="sonar", count=tokens(1000, output=100), ts=at("2026-11-18T13:00")),
        replace(entry(11, call=record(runtime="pi", vendor_pico=77, vendor_basis="runtime_price")), upstream=None),
        replace(entry(12, count=tokens(10)), ts_ms=None),
    ]


def store(path="/home/a/.claude", ok=True, lag=0, read="2026-11-30T11:59:00.000Z", runtime="claude_code"):
    """A source as the ledger lists it."""
    return SourceRow(path=path, kind="store", runtime=runtime, last_read_at=read, ok=ok, error=None, lag_bytes=lag)
