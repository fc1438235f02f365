"""The meter of one call: it watches the call go by and writes its line. It never raises into the relay.

The relay tells it what happens (the request's body, the response's head and pieces, the end) and appends payload to
``pieces``; the wire's reader gets them joined, some 16 KiB at a time, decoded where the response is compressed. A
small answer is whole before anything is read, and most of those need no reader (``shim.wires.whole``). What a call
says is held as the JSON object of its line, because making a ``Line`` of every call costs more than writing it.
Whatever fails in here is counted, said once without content, and leaves a line with what was known by then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from shim.background import Record
from shim.declared import CHAINED
from shim.eligibility import UNKNOWN_RESPONSE
from shim.framing.json_members import MemberScanner
from shim.identity import reference
from shim.inflight import NO_SLOT
from shim.line import VERSION, model_or_none, tier_or_none
from shim.meter import Meter
from shim.routes import Place
from shim.wires import Exchange, Reader, Reading
from shim.wires.counts import text
from shim.wires.document_reader import DocumentReader
from shim.wires.table import open_reader, outcome_of
from shim.wires.whole import read_whole

if TYPE_CHECKING:
    from shim.decode import ContentDecoder
    from shim.response import Head

BATCH: Final = 16384
# gzip and zstd, which some servers send without saying so.
COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
NOTHING: Final = Reading()
# Wires whose calls stream unless told not to: https://github.com/ollama/ollama/blob/main/docs/api.md
STREAM_BY_DEFAULT: Final = frozenset({"ollama"})
# The wire whose responses can be asked for by their ids.
STORED: Final = "openai-responses"
ID: Final = frozenset({("id",)})
STREAM_PATHS: Final = (":streamGenerateContent", ":streamRawPredict", "-stream", "converse-stream")


class Tap:
    """One metered call. ``poll``: it asks for a response made earlier, which is the same call.

    ``ahead``: the answer names a response that can be asked for later, and is to be read before it is passed on.
    """

    _asked = False
    _model: str | None = None
    _stream: bool | None = None
    _background = False
    _response_id: str | None = None
    _session = ""
    _source = "gap"
    _slot = NO_SLOT
    _head: Head | None = None
    _ttft: int | None = None

    def __init__(self, meter: Meter, runtime: str, place: Place, *, poll: bool = False) -> None:
        self._reader: Reader | None = None
        self._decoder: ContentDecoder | None = None
        self._scanner: MemberScanner | None = None
        self.runtime = runtime
        self.poll = poll
        self.ahead = False
        self.pieces: list[bytes] = []
        self._meter = meter
        self._place = place
        self._ts = time.time()
        self._began = time.monotonic()

    def request(self, headers: Mapping[str, str], body: Any) -> None:
        """The call goes upstream now. ``body``: the request's parsed JSON, ``None`` where it is not an object."""
        self._asked = True
        place = self._place
        try:
            model, self._stream, background = facts_of(place, body)
            # A request too large to be read may have asked for the background.
            self._background = background or (body is None and place.wire == STORED)
            self.ahead = self._background and not self.poll
            self._model = model_or_none(place.model or model)
            self._session, self._source = self._meter.sessions.identify(
                self.runtime, place.upstream.name, place.wire or "", headers, body, self._ts
            )
            if not self.poll:
                self._slot = self._meter.metering.inflight.begin(
                    self.runtime,
                    place.upstream.name,
                    place.wire or "",
                    self._model,
                    self._ts,
                    self._session,
                    self._source,
                    self._stream,
                )
        except Exception as error:
            self._meter.fault("request", error)
            self._session = self._session or reference(self._meter.key, "gap", self.runtime)

    def head(self, head: Head) -> None:
        """The response's head came."""
        self._head = head
        self._reader = self._decoder = None

    def first_byte(self) -> None:
        """The first byte of the response's body came."""
        self._ttft = int((time.monotonic() - self._began) * 1000)

    def read(self) -> None:
        """Give the reader what has been collected in ``pieces``."""
        if self.pieces:
            self._feed(self._take())

    def look_ahead(self) -> None:
        """Read what has come before it is passed on: whoever knows the response's id may ask for it, and is to find it
        noted, though we be killed in between."""
        try:
            if self.pieces:
                self._feed(self._take())
            if self._head is None:
                self.ahead = False
            elif response_id := self._named():
                self.ahead = False
                self._scanner = None
                self._note(reference(self._meter.key, "response", response_id), self._head.status)
        except Exception as error:
            self.ahead = False
            self._meter.fault("note", error)

    def _take(self) -> bytes:
        """What has been collected in ``pieces``, which are empty then."""
        pieces = self.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return data

    def _feed(self, data: bytes) -> None:
        if self._head is None:
            return
        try:
            reader = self._reader or self._open(self._head, data)
            for piece in (data,) if self._decoder is None else self._decoder.feed(data):
                reader.feed(piece)
                if self.ahead:
                    self._scan(piece)
        except Exception as error:
            self._head = self._reader = None
            self._meter.fault("read", error)

    def _open(self, head: Head, data: bytes) -> Reader:
        """Make the reader of a body that begins with ``data``: decoded if compressed, whether or not that was said."""
        place, encoding = self._place, head.special(b"content-encoding")
        if encoding or data.startswith(COMPRESSED):
            from shim.decode import ContentDecoder  # brotli and zstandard cost memory, and loopback asks for neither

            self._decoder = ContentDecoder(encoding)
        content_type = head.special(b"content-type")
        self._reader = open_reader(
            place.wire or "", Exchange(head.status, content_type, head.fields, place.path, self._stream)
        )
        return self._reader

    def end(self, outcome: str, status: int | None) -> None:
        """The call is over; ``outcome``: as HTTP tells it, ``status``: the upstream's. Writes the line.

        A call that ended before it was to go upstream (its body never came) was no call.
        """
        if not self._asked:
            return
        try:
            self._end(outcome, status)
        except Exception as error:
            self._meter.fault("line", error)
            self._meter.metering.inflight.end(self._slot)

    def _end(self, outcome: str, status: int | None) -> None:
        reading = self._reading(complete=outcome == "completed")
        response = None
        if reading.response_id:
            response = reference(self._meter.key, "response", reading.response_id)
            if self.poll:
                self._session = self._meter.sessions.session_of(response) or self._session
            elif self._place.wire in CHAINED:
                self._meter.sessions.answered(self._session, response)
        record = self._record(reading, _settled(outcome, status, reading), status, response)
        if self.poll or self._background:
            self._end_part(reading, record, response)
            return
        self._meter.write(record, self._slot)
        for extra in reading.extra:
            self._meter.write(self._record(extra, record["outcome"], status, response), NO_SLOT)

    def _reading(self, *, complete: bool) -> Reading:
        """What the answer said."""
        data = self._take()
        if complete and self._reader is None and self._head is not None:
            # A declared coding is the long way's affair; one that is not declared does not begin like JSON.
            head = self._head
            if not head.special(b"content-encoding"):
                reading = read_whole(self._place.wire or "", head.special(b"content-type"), data)
                if reading is not None:
                    return reading
        if data or self._reader is None:
            self._feed(data)
        reader = self._reader
        if reader is None:
            return NOTHING
        if self._decoder is not None:
            for piece in self._decoder.finish():
                reader.feed(piece)
        return reader.finish(complete=complete)

    def _end_part(self, reading: Reading, record: Record, response: str | None) -> None:
        """End one part of a background response, whose one line is written by the part that saw its end."""
        background = self._meter.background
        if response is None or (record["outcome"] == "rejected" and not self.poll):
            if not self.poll:
                self._meter.write(record, self._slot)
            if response is not None:
                self._meter.sessions.wrote(response)
        elif reading.pending:
            if not self.poll:
                background.keep(response, record, self._slot)
        elif self.poll:
            if not background.polled(response, record):
                self._meter.metering.counters.refused.add(UNKNOWN_RESPONSE)
        else:
            background.ended(response, record, self._slot)

    def _scan(self, piece: bytes) -> None:
        """Look for the id in a JSON body, which its reader reads when it is whole."""
        if self._scanner is None:
            self._scanner = MemberScanner(ID)
        for document in self._scanner.feed(piece):
            self._response_id = self._response_id or text(document.get("id"))

    def _named(self) -> str | None:
        """The response's id, as soon as it has come."""
        reader, scanner = self._reader, self._scanner
        found = reader.response_id if isinstance(reader, DocumentReader) else None
        found = found or self._response_id
        return found or (text(scanner.unfinished().get("id")) if scanner is not None else None)

    def _note(self, response: str, status: int) -> None:
        """From here on the call's line waits for a read, should this process be killed."""
        reader = self._reader
        model = reader.model if isinstance(reader, DocumentReader) else None
        record = self._record(Reading(model=model), "interrupted", status, response)
        self._meter.background.note(response, record, self._slot)

    def _record(self, reading: Reading, outcome: str, status: int | None, response: str | None) -> Record:
        place, tokens = self._place, reading.tokens
        return {
            "v": VERSION,
            "id": "",
            "ts": round(self._ts, 3),
            "vm": self._meter.metering.vm,
            "runtime": self.runtime,
            "upstream": place.upstream.name,
            "wire": place.wire or "",
            # One that no line can hold is not replaced by what was asked for: another model's price would be wrong.
            "model": model_or_none(reading.model) if reading.model else self._model,
            "session": self._session,
            "session_source": self._source,
            "response": response,
            "input_tokens": tokens.input_tokens,
            "cache_read_tokens": tokens.cache_read_tokens,
            "cache_write_tokens": tokens.cache_write_tokens,
            "cache_write_1h_tokens": tokens.cache_write_1h_tokens,
            "output_tokens": tokens.output_tokens,
            "reasoning_tokens": tokens.reasoning_tokens,
            "usage": reading.usage,
            "outcome": outcome,
            "http_status": status,
            "stream": self._stream,
            "duration_ms": int((time.monotonic() - self._began) * 1000),
            "ttft_ms": self._ttft,
            "service_tier": tier_or_none(reading.service_tier),
            "reported_cost_usd": reading.cost_usd,
        }


def facts_of(place: Place, body: Any) -> tuple[str | None, bool | None, bool]:
    """What a request says of itself: its model, whether it streams (both ``None`` where it does not say), whether the
    response is made in the background."""
    in_path = place.path.endswith(STREAM_PATHS)
    if not isinstance(body, dict):
        return None, True if in_path else None, False
    model, stream = body.get("model"), body.get("stream")
    if not isinstance(stream, bool):
        stream = in_path or place.wire in STREAM_BY_DEFAULT
    return model if isinstance(model, str) else None, stream or in_path, body.get("background") is True


def _settled(outcome: str, status: int | None, reading: Reading) -> str:
    """The line's outcome: how the call ended (``outcome``), unless what the upstream said counts before that."""
    if status is None:
        return outcome
    found = outcome_of(reading, status, complete=outcome == "completed", client_gone=outcome == "client_closed")
    return outcome if found == "upstream_closed" and outcome == "interrupted" else found
