"""The usage lines of one block on their way into one transaction: decode, refuse, price, insert, settle.

This is the one loop of the product that runs a million times; what it needs per line it looks up once per form of line,
boot and session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from collector.call import Call
from collector.ingest_report import IngestReport
from collector.ledger import clash
from collector.ledger.interning import Shape
from collector.ledger.settle import Settler, side_of
from collector.ledger.tally import Tally
from collector.ledger.writer import AT, LINE, Row, Transaction
from collector.lines import LineReader
from collector.quotes import Quote, Quotes
from shim.line import LineError

# Reasons for a refusal that only captured lines have.
NOT_CAPTURED: Final = "not_captured"
CAPTURED_WIRES: Final = frozenset({"cursor-cli"})
# Columns of a row that is to be inserted.
PLACES: Final = {name: place for place, name in enumerate(LINE)}


class Form(NamedTuple):
    """What lines of one form (``Call.form``) have in common: ``refused``: why they do not count, if they do not."""

    refused: str | None
    shape: int
    sessions: dict[str, int]
    concerned: bool


class LineStep:
    """The lines of one block on their way into one transaction."""

    def __init__(
        self,
        tx: Transaction,
        reader: LineReader,
        quotes: Quotes,
        verdict: Callable[[str], str | None],
        captured: bool,
    ) -> None:
        self._tx = tx
        self._reader = reader
        self._quotes = quotes
        self._verdict = verdict
        self._day = tx.calendar.day
        self._captured = captured
        self._settler = Settler(tx)
        self._tally = Tally()
        self._forms: dict[int, Form] = {}
        self._boots: dict[str, tuple[int, Callable[[int], bool]]] = {}
        self._sessions: dict[tuple[str, str], dict[str, int]] = {}
        self._worth: dict[Quote, tuple[int, int | None]] = {}
        self._again: list[tuple[int, Call, Form]] = []
        self._refused: Counter[tuple[str, str, str]] = Counter()
        self._examples: dict[tuple[str, str, str], tuple[str, int]] = {}
        self.faults: list[tuple[int, str]] = []
        self.report = IngestReport()

    def take(self, lines: Sequence[bytes]) -> None:
        """Decode lines, insert those that are new and count, and settle whose they are."""
        read, rows = self._reader.read, []
        for place, data in enumerate(lines):
            try:
                call = read(data)
            except LineError as error:
                self.faults.append((place, error.reason))
                continue
            row = self._take(call)
            if row is not None:
                rows.append(row)
        if self._again:
            self._clashing(rows)
        self.report.lines += len(lines)
        self.report.new_lines += len(rows)
        self._tx.add_lines(rows, self._tally)
        self._settler.settle()
        for (reason, runtime, vm), count in self._refused.items():
            self._tx.refuse(reason, runtime, vm, *self._examples[reason, runtime, vm], count)
            self.report.refused[reason] += count

    def _take(self, call: Call) -> Row | None:
        """The row of a line that is new and counts, else ``None`` and a refusal."""
        form = self._forms.get(call.form) or self._form(call)
        refused = form.refused
        if refused != NOT_CAPTURED:
            base, note = self._boots.get(call.boot) or self._boot(call)
            if not note(call.seq):
                if refused is None:
                    self._again.append((base + call.seq, call, form))
                    return None
                refused = "duplicate_line"
        if refused is None:
            return self._row(base + call.seq, call, form)
        self._refuse(call, refused)
        return None

    def _clashing(self, rows: list[Row]) -> None:
        """Add the rows of lines whose ids other calls have; the rest of those that were read before are duplicates.

        What a record that has expired, or a line that does not count, said is not known: those are duplicates.
        """
        here = {row[0]: place for place, row in enumerate(rows)}
        stored = self._tx.rows({number for number, _, _ in self._again} - here.keys())
        held = {number: clash.content_of_row(row, AT) for number, row in stored.items()}
        held |= {number: clash.content_of_row(rows[place], PLACES) for number, place in here.items()}
        for number, call, form in self._again:
            content = clash.content_of_call(call)
            known = held.get(number, content)
            later = max(known, content, key=clash.order)
            reason = "duplicate_line"
            if known != content:
                base, note = self._tx.boot(clash.boot_of(call.boot, call.seq, later), call.vm)
                apart = base + clash.FIRST
                if note(clash.FIRST):
                    reason = "id_clash"
                    if later is known:
                        self._move(number, apart, rows, here)
                        held[number], here[number], apart = content, len(rows), number
                    rows.append(self._row(apart, call, form))
            self._refuse(call, reason)

    def _move(self, number: int, apart: int, rows: list[Row], here: dict[int, int]) -> None:
        """Give a record the id ``apart``: an earlier call has its own."""
        if (place := here.get(number)) is None:
            self._tx.renumber(number, apart)
        else:
            rows[place] = (apart, *rows[place][1:])
            self._settler.renumber(number, apart)

    def _boot(self, call: Call) -> tuple[int, Callable[[int], bool]]:
        found = self._boots[call.boot] = self._tx.boot(call.boot, call.vm)
        return found

    def _form(self, call: Call) -> Form:
        if self._captured and call.wire not in CAPTURED_WIRES:
            refused: str | None = NOT_CAPTURED
        else:
            refused = self._verdict(call.runtime)
        sessions = self._sessions.setdefault((call.vm, call.runtime), {})
        shape = 0 if refused else self._tx.numbers.shape(_shape(call))
        form = Form(refused, shape, sessions, self._settler.concerns(call.vm, call.runtime))
        self._forms[call.form] = form
        return form

    def _refuse(self, call: Call, reason: str) -> None:
        key = (reason, call.runtime, call.vm)
        self._refused[key] += 1
        self._examples.setdefault(key, (call.id, int(call.ts * 1000)))

    def _row(self, number: int, call: Call, form: Form) -> Row:
        session = form.sessions.get(call.session)
        if session is None:
            session = self._tx.numbers.session(call.vm, call.runtime, call.session)
            form.sessions[call.session] = session
        ts = call.ts
        ts_ms, day = int(ts * 1000 + 0.5), self._day(ts)
        fresh, read, write = call.input_tokens, call.cache_read_tokens, call.cache_write_tokens
        hour, output, reasoning = call.cache_write_1h_tokens, call.output_tokens, call.reasoning_tokens
        known = (fresh and 1, read and 1, write and 1, hour and 1, output and 1, reasoning and 1)
        counts = (fresh or 0, read or 0, write or 0, hour or 0, output or 0, reasoning or 0)
        cost, quote = self._quotes.price(call, known, counts)
        kind, rates = self._worth.get(quote) or self._number(quote)
        self._tally.add((session, day, form.shape, kind, known), ts_ms, counts, cost)
        if form.concerned:
            side = side_of(number, call.vm, ts_ms, call.duration_ms, None, call.model, call.tokens, call.response)
            self._settler.line(call.vm, call.runtime, side)
        return (
            number, ts_ms, day, form.shape, kind, session, fresh, read, write, hour, output, reasoning, cost, rates,
            call.http_status, call.stream, call.duration_ms, call.ttft_ms, call.response,
        )  # fmt: skip

    def _number(self, quote: Quote) -> tuple[int, int | None]:
        numbers = self._tx.numbers
        found = self._worth[quote] = (numbers.kind(quote.kind), numbers.rates(quote.rates))
        return found


def _shape(call: Call) -> Shape:
    captured = call.wire in CAPTURED_WIRES
    model_source = ("stream" if captured else "log") if call.model else "none"
    return Shape(
        call.vm,
        call.runtime,
        "log",
        call.model,
        model_source,
        call.upstream,
        call.wire,
        call.service_tier,
        "call",
        call.session_source,
        None,
    )
