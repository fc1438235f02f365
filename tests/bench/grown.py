"""A ledger as years of use leave it, made through the ledger's own transactions: what ``tests.bench.reports`` asks.

Sessions of some fifty calls, most of one model and one day; a few VMs' runtimes are metered by lines, the others report
themselves. Some lines are lost, some are twins, some records are copies. The same seed makes the same ledger.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from collector.ledger import Kind
from collector.ledger.interning import Shape
from collector.ledger.schema import COUNTS, RECORD, SEQ_BITS, TWIN
from collector.ledger.sqlite import SqliteLedger
from collector.ledger.sqlite_fleet import SqliteFleet
from collector.ledger.writer import Row, Transaction
from collector.merge import Version

LAST_DAY = 20_787  # 2026-11-30
DAY_MS = 86_400_000
SEQ = 2**SEQ_BITS - 1
BLIND = ("picoclaw", "cursor", "nanoclaw", "zeroclaw", "kilo_code")
OWN = tuple(f"runtime_{place:02d}" for place in range(10))
UPSTREAMS = ("openai", "anthropic", "openrouter", "google")
MODELS = tuple(f"{UPSTREAMS[place % 4]}-model-{place:02d}" for place in range(40))
EXACT = Kind("reported", "completed", "exact", "derived", "list_price", None, None, True)
BILLED = Kind("reported", "completed", "exact", "vendor", "billed", None, None, True)
ESTIMATED = Kind("reported", "completed", "estimated", "derived", "list_price", "model_from_config", None, True)
UNKNOWN = Kind("missing", "upstream_closed", "unavailable", None, None, None, "no_usage", True)
TIERS = ("default", None)


@dataclass(slots=True)
class Grower:
    """Makes calls day by day. ``calls``, ``sessions`` and ``days`` are what the ledger has in the end, nearly."""

    calls: int
    sessions: int
    days: int
    vms: int
    seed: int = 7
    seqs: dict[str, int] = field(default_factory=dict)
    versions: list[tuple[bytes, int, Version]] = field(default_factory=list)
    copies: list[tuple[bytes, int]] = field(default_factory=list)
    records: int = 0

    def grow(self, ledger: SqliteLedger) -> None:
        """Fill an empty ledger."""
        draw = random.Random(self.seed)
        fleet = [(f"vm-{place:03d}", draw.sample(BLIND, 2) + draw.sample(OWN, 2)) for place in range(self.vms)]
        if self.vms == 1:
            fleet = [("vm-000", [*BLIND, *OWN])]
        for day in range(LAST_DAY - self.days + 1, LAST_DAY + 1):
            with ledger.transaction() as tx:
                lines: list[Row] = []
                for place in range(self.sessions // self.days):
                    vm, runtimes = fleet[draw.randrange(self.vms)]
                    lines += self._session(tx, draw, day, place, vm, runtimes[int(len(runtimes) * draw.random() ** 2)])
                tx.add(lines)
                tx.set_versions(self.versions)
                tx.note_copies(self.copies, ())
                self.versions.clear()
                self.copies.clear()
                for vm in sorted({vm for vm, _ in fleet[:3]}):
                    tx.refuse("duplicate_line", "picoclaw", vm, f"b-{day}", day * DAY_MS)
                    tx.quarantine(b"%016d" % day, "/var/log/usage.jsonl", [(day, "not_json", None)], day * DAY_MS)
        _log_positions(ledger)

    def _session(
        self, tx: Transaction, draw: random.Random, day: int, place: int, vm: str, runtime: str
    ) -> Iterator[Row]:
        count = max(1, round(draw.gauss(1, 0.4) * self.calls / self.sessions))
        number = tx.numbers.session(vm, runtime, f"session-{day}-{place}")
        models = [draw.choice(MODELS) if draw.random() < 0.5 else MODELS[(len(runtime) * 7 + day // 90) % 40]]
        if draw.random() < 0.2:
            models.append(draw.choice(MODELS))
        began = day * DAY_MS + draw.randrange(DAY_MS // 2)
        step = (3 * DAY_MS if draw.random() < 0.1 else DAY_MS // 3) // count
        is_line = runtime in BLIND
        forms = [(self._shape(tx, vm, runtime, is_line, model, draw.choice(TIERS)), model) for model in models]
        kinds = [tx.numbers.kind(kind) for kind in (EXACT if is_line else BILLED, ESTIMATED, UNKNOWN)]
        rates = [tx.numbers.rates(f'{{"book":"b1","model":"{model}"}}') for model in models]
        is_forked = draw.random() < 0.02
        copies, versions = [], []
        for call in range(count):
            ts = began + call * step + draw.randrange(step + 1)
            shown = draw.randrange(len(forms))
            chance = draw.random()
            kind = kinds[0 if chance < 0.94 else 1 if chance < 0.97 else 2]
            fresh, read, output = draw.randrange(9_000), draw.randrange(90_000), draw.randrange(3_000)
            known = kind != kinds[2]
            cost = (fresh * 3 + read // 3 + output * 15) * 10**6 if known else None
            if is_line:
                base, note = tx.boot(f"2026{vm}", vm)
                self.seqs[vm] = seq = self.seqs.get(vm, 0) + (2 if draw.random() < 0.0002 else 1)
                note(seq)
                row_id = base + seq
            else:
                row_id = tx.vendor_id()
                key = hashlib.blake2b(b"%d" % row_id, digest_size=16).digest()
                versions.append((key, row_id, Version("", began, 1, ())))
                if is_forked:
                    copies.append((key, tx.numbers.session(vm, runtime, f"session-{day}-{place}-fork")))
            counts = (fresh, read, 0, 0, output, 0) if known else (None,) * 6
            withdrawn = TWIN if is_line and draw.random() < 0.01 else COUNTS
            cell = (
                row_id, ts, ts // DAY_MS, forms[shown][0], kind, number, number if is_line else None, *counts, cost,
                rates[shown] if known else None, None, 200 if is_line else None, 1 if is_line else None, 4_000, 300,
                f"{draw.getrandbits(90):024d}"[:24], None, withdrawn,
            )  # fmt: skip
            assert len(cell) == len(RECORD)
            yield cell
        self.records += count
        self.versions += versions
        self.copies += copies

    def _shape(self, tx: Transaction, vm: str, runtime: str, is_line: bool, model: str, tier: str | None) -> int:
        upstream = model.partition("-")[0]
        if is_line:
            shape = Shape(vm, runtime, "log", model, "log", upstream, "openai-chat", tier, "call", "conversation")
        else:
            shape = Shape(vm, runtime, "vendor", model, "log", upstream, None, None, "turn")
        return tx.numbers.shape(shape)


def _log_positions(ledger: SqliteLedger) -> None:
    with ledger.transaction() as tx:
        for place in range(30):
            name = f"/var/log/usage.jsonl.{place}"
            row = (b"%016d" % place, 1, place, name, 5_000, 0, 5_000, b"", 0, 5_000, LAST_DAY * DAY_MS, None)
            tx.db.execute(f"INSERT INTO log VALUES ({', '.join('?' * len(row))})", row)


def grown(path: Path, calls: int, sessions: int, days: int, vms: int) -> SqliteLedger:
    """The ledger at ``path``; made if it is not there. A hub's where it has more than one VM."""
    is_new = not path.exists()
    ledger = SqliteFleet(path, "UTC") if vms > 1 else SqliteLedger(path, "UTC")
    if is_new:
        Grower(calls, sessions, days, vms).grow(ledger)
    return ledger
