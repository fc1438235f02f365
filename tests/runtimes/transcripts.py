"""Reading whole homes in tests, and the ledger's rule of which of two records with one key stays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collector.merge import prefer, version
from collector.record import PICO, Record, Session
from collector.runtimes import Reader, Source
from shim.line import TOKEN_CLASSES

HERE = Path(__file__).parent


@dataclass
class Read:
    """What came out of reading sources: the records that stay, the sessions, what was skipped."""

    latest: dict[str, Record] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    states: dict[Path, dict] = field(default_factory=dict)

    def take(self, reader: Reader, source: Source) -> None:
        """Read a source from where it was left, as the ledger does: state goes through JSON."""
        for batch in reader.read(source, self.states.get(source.path)):
            for record in batch.records:
                self.keep(record)
            self.sessions |= {session.session_id: session for session in batch.sessions}
            for reason, number in batch.skipped.items():
                self.skipped[reason] = self.skipped.get(reason, 0) + number
            if batch.state is not None:
                self.states[source.path] = json.loads(json.dumps(batch.state))

    @property
    def records(self) -> dict[str, Record]:
        """The records that count, by their keys."""
        return {key: record for key, record in self.latest.items() if not record.taken_back}

    def keep(self, record: Record) -> None:
        """The session that paid owns a call; within one session the later revision replaces the earlier."""
        known = self.latest.get(record.key)
        if known is None or prefer(version(record), version(known)):
            self.latest[record.key] = record

    def of(self, session: str) -> list[Record]:
        """The records that a session keeps."""
        return [record for record in self.records.values() if record.session_id == session]

    def facts(self) -> dict[str, tuple]:
        """Everything that must not depend on the order or the number of passes."""
        return {key: (r.session_id, r.ts, r.tokens, r.model, r.vendor_pico, r.owner) for key, r in self.records.items()}


def read_home(reader: Reader, home: Path, environ: Mapping[str, str] | None = None, *, backwards: bool = False) -> Read:
    """Every source of a home, in the order of the reader or the other way round."""
    sources: Iterable[Source] = list(reader.sources(home, environ or {}))
    read = Read()
    for source in reversed(list(sources)) if backwards else sources:
        read.take(reader, source)
    return read


def total(records: Iterable[Record], name: str) -> int | None:
    """The sum of a token class over the records that know it."""
    known = [value for record in records if (value := getattr(record.tokens, name)) is not None]
    return sum(known) if known else None


def dollars(records: Iterable[Record]) -> float | None:
    """The sum of the dollars that the records state, in USD."""
    known = [record.vendor_pico for record in records if record.vendor_pico is not None]
    return sum(known) / PICO if known else None


CLASSES = TOKEN_CLASSES


def write(path: Path, *entries: object, end: str = "\n") -> Path:
    """JSON lines, compact as the programs write them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)
    path.write_text(text[:-1] + end if text else "")
    return path
