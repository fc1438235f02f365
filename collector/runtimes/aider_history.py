"""The lines of aider's chat history: text for people; the runs, their models and the sums of messages are taken of it.

True here (https://github.com/Aider-AI/aider, aider/io.py, aider/coders/base_coder.py):

- a run starts with a header in local time. What aider says is quoted line by line, but of a text of two lines only the
  first: a message with cache hits and writes has its dollars on a line of their own, without the quote's mark.
- aider announces itself and its model when it starts and again when the user changes the model (``/model``). The line
  says ``Model:`` or ``Main model:``, ``Models:`` in versions before 0.50.
- numbers of tokens and dollars are rounded to two or three digits, and cache hits and writes are inside what was sent.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Final

import msgspec

from collector.record import Record, Session
from collector.runtimes.local import is_local
from collector.runtimes.values import fresh, model, usd
from shim.line import Tokens

RUNTIME: Final = "aider"
SAME_START: Final = 3.0
ROUNDED: Final = "rounded"
# The revision of a message that was given with its dollars is 1.
TAKEN_BACK: Final = 2

HEADER: Final = re.compile(rb"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
ANNOUNCED: Final = b"> Aider v"
MODEL: Final = re.compile(rb"> (?:Main )?[Mm]odels?: (\S{1,128}) with ")
TOKENS: Final = re.compile(rb"> Tokens: ([^\n]{1,200})")
AMOUNT: Final = re.compile(r"([\d.,]+)([kM]?) (sent|received|cache hit|cache write)")
COST: Final = re.compile(r"Cost: \$([\d.]+) message")
COST_LINE: Final = re.compile(rb"(Cost: \$[\d.]+ message), \$[\d.]+ session\.")
SCALE: Final = {"": 1, "k": 1_000, "M": 1_000_000}


class History:
    """The runs of a chat history, from a header on. ``launches``: epoch seconds of runs that a log tells of;
    ``elsewhere``: those of them that began here.

    ``take_back``: messages of these runs may have been counted before there was a log.
    """

    def __init__(self, label: str, launches: list[float], *, take_back: bool = False) -> None:
        self.label = label
        self.take_back = take_back
        self.launches = launches
        self.started: str | None = None
        self.start: float | None = None
        self.model: str | None = None
        self.messages = 0
        self.counted_elsewhere = False
        self.elsewhere: set[float] = set()
        self.skipped: Counter[str] = Counter()
        self.sessions: list[Session] = []
        self._announced = False
        self._unpriced: Record | None = None

    @property
    def session(self) -> str:
        """Folder and local start time: aider gives a run no id."""
        return f"{self.label}@{self.started}"

    def take(self, line: bytes) -> Record | None:
        """The message that a line sums up, if it does; once more, as a later revision, if it gives its dollars."""
        unpriced, self._unpriced = self._unpriced, None
        if (header := HEADER.fullmatch(line)) is not None:
            self._begin(header[1].decode())
        elif line.startswith(ANNOUNCED):
            self._announced = True
        elif (named := MODEL.match(line)) is not None and (self._announced or self.model is None):
            self.model, self._announced = model(named[1].decode(errors="replace")), False
        elif (summed := TOKENS.match(line)) is not None and self.start is not None:
            return self._message(summed[1].decode(errors="replace"), self.start)
        elif unpriced is not None and (cost := COST_LINE.fullmatch(line)) is not None:
            return _with_cost(unpriced, cost[1].decode())
        return None

    def _begin(self, local: str) -> None:
        try:
            # aider writes the machine's local time without a zone; this runs on the same machine.
            start = datetime.fromisoformat(local).timestamp()
        except (ValueError, OverflowError):
            self.start = None
            return
        self.started, self.start, self.model, self.messages = local, start, None, 0
        self._announced = False
        self.counted_elsewhere = any(abs(launch - start) <= SAME_START for launch in self.launches)
        if self.counted_elsewhere:
            self.elsewhere.add(start)

    def _message(self, text: str, start: float) -> Record | None:
        self.messages += 1
        if self.counted_elsewhere:
            self.skipped["in_analytics_log"] += 1
            if not self.take_back:
                return None
        elif not self.sessions or self.sessions[-1].session_id != self.session:
            source = "log" if self.model else "none"
            self.sessions.append(Session(RUNTIME, self.session, start, None, self.model, source))
        identity = f"{self.started}:{self.messages}:{self.model}:{text}"
        tokens = _rounded(text)
        record = Record(
            RUNTIME,
            blake2b(identity.encode(), digest_size=16).hexdigest(),
            self.session,
            start,
            tokens,
            self.model,
            "log" if self.model else "none",
            grain="turn",
            owner=start,
            caveat=ROUNDED,
            # Zeros are what it writes where the provider sent no usage.
            usage="reported" if tokens.total else "missing",
        )
        if self.counted_elsewhere:
            return msgspec.structs.replace(record, revision=TAKEN_BACK, taken_back=True)
        if COST.search(text):
            return _with_cost(record, text)
        self._unpriced = record
        return msgspec.structs.replace(record, local=is_local_model(self.model))


def _with_cost(record: Record, text: str) -> Record:
    """The record with the dollars in a text; aider writes $0.00 only for what it could not count or price."""
    cost = COST.search(text)
    pico = (usd(cost[1].rstrip(".")) or None) if cost else None
    basis = None if pico is None else "runtime_price"
    return msgspec.structs.replace(record, vendor_pico=pico, vendor_basis=basis, revision=1)


def is_local_model(named: str | None) -> bool:
    """Whether LiteLLM's prefix of the model (``ollama_chat/``, ``lm_studio/``) is that of a server on this machine."""
    prefix, _, name = (named or "").partition("/")
    return is_local(prefix.replace("_", "-").removesuffix("-chat"), name or None)


def uncached(sent: int | None, hit: int | None, write: int | None) -> int | None:
    """What aider sent beside the cache. It adds the writes to LiteLLM's count of the prompt, which has them already."""
    return fresh(sent, hit, write, write)


def _rounded(text: str) -> Tokens:
    found = {}
    for number, scale, kind in AMOUNT.findall(text):
        digits = number.replace(",", "").strip(".")
        if digits.count(".") <= 1 and digits and len(digits) < 16:
            found[kind] = round(Decimal(digits) * SCALE[scale])
    sent, hit, write = found.get("sent"), found.get("cache hit"), found.get("cache write")
    return Tokens(uncached(sent, hit, write), hit, write, None, found.get("received"), None)
