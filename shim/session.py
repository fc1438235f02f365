"""Which session a call belongs to, as an opaque reference; no content is kept, only keyed hashes in bounded maps.

In this order: a header that names a session, a body field that does (``previous_response_id`` follows the chain of
answers), the conversation itself, and last the idle gap of the runtime and upstream. A conversation is known by the
keyed hash of its head (system text and first user message), which stays while the history grows. Where a compaction
changed the head, the call joins the session in which one of its kept messages was seen before; where nothing was kept,
the session that last spoke under the same system text. PicoClaw, which names no session, does all of this.

Two conversations that begin with the same system text and the same first message cannot be told apart and count as one
session. What is known of responses, heads and messages is shared by the workers and outlives a restart
(``shim.session_store``); gaps, and who spoke last, are each worker's own.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final

from shim.conversation import Conversation, conversation, first_user, opening, pieces, plain_head, quoted_messages
from shim.declared import (
    BODY_FIELDS,
    NAMING,
    PREVIOUS_RESPONSE,
    USER_FIELDS,
    identifying,
    in_fields,
    in_headers,
)
from shim.identity import reference
from shim.recent import Recent, Shared
from shim.session_store import SessionStore

GAP_SECONDS: Final = 30 * 60
# What became of a background response's line, as the workers tell each other.
PENDING: Final = "pending"
CLAIMED: Final = "claimed"
WRITTEN: Final = "written"

# Of a long text only its ends are hashed, so that a large body costs no more than a small one.
HASHED_HEAD: Final = 2048
HASHED_TAIL: Final = 1024
# Messages a call adds are at its end; older ones were remembered when they were new.
REMEMBERED_PER_CALL: Final = 6
SEARCHED_PER_CALL: Final = 48


class Sessions:
    """The sessions one shim process has seen. ``fingerprint``: whether conversations are known by their content."""

    def __init__(
        self, key: bytes, fingerprint: bool = True, size: int = 8192, store: SessionStore | None = None
    ) -> None:
        self._key = key
        self._fingerprint = fingerprint
        self._begun: Recent[hashlib.blake2b] = Recent(64)  # runtime -> digest that has taken key and runtime
        # Hash of a plain head as it came -> the hashes that reading it gave: of system text, first message and head.
        self._plain: Recent[tuple[bytes, bytes, bytes]] = Recent(1024)
        self._answers = Shared(size, store, b"a")  # response reference -> session
        self._fates = Shared(size, store, b"w")  # response reference -> PENDING, CLAIMED, WRITTEN
        self._heads = Shared(size, store, b"h")  # hash of a head -> session
        self._messages = Shared(4 * size, store, b"m")  # hash of a message -> session, "" where two sessions had it
        self._spoke: Recent[tuple[str, float]] = Recent(size)  # hash of a system text -> last session, when
        self._gaps: Recent[tuple[str, float]] = Recent(1024)  # runtime and upstream -> session, when

    def identify(
        self,
        runtime: str,
        upstream: str,
        wire: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None,
        now: float,
    ) -> tuple[str, str]:
        """The session of a call and its source (``header``, ``body``, ``conversation``, ``gap``).

        ``headers``: request headers, names in lower case. ``body``: the parsed JSON object, ``None`` where there is
        none. ``now``: epoch seconds. Never raises on input.
        """
        if value := in_headers(headers):
            return reference(self._key, "session", value), "header"
        if body is not None:
            if session := self._in_body(runtime, body):
                return session, "body"
            if self._fingerprint and (session := self._of_conversation(runtime, wire, body, now)):
                return session, "conversation"
        return self._of_gap(runtime, upstream, now), "gap"

    def answered(self, session: str, response: str) -> None:
        """Remember that ``response`` (a reference of kind ``response``) was given in ``session``."""
        self._answers.put(_short(response), session)

    def session_of(self, response: str) -> str | None:
        """The session in which a response was given, ``None`` where that is not known."""
        return self._answers.get(_short(response))

    def wait(self, response: str) -> None:
        """A background response's line waits for the read that brings its end."""
        if not self._fates.newest(_short(response)):
            self._fates.put(_short(response), PENDING)

    def claim(self, response: str, *, mine: bool = False) -> bool:
        """Whether the line of a background response is the caller's to write: it waits, and no worker claimed it since
        before the last start. ``mine``: the caller knows that it waits."""
        fate = self._fates.newest(_short(response))
        if fate != PENDING and (fate is not None or not mine):
            return False
        self._fates.put(_short(response), CLAIMED)
        return True

    def is_known(self, response: str) -> bool:
        """Whether a background response waits for its line or has it, as far back as is remembered."""
        return self._fates.newest(_short(response)) is not None

    def wrote(self, response: str) -> None:
        """The line of a background response is in the log, or waits for it."""
        self._fates.put(_short(response), WRITTEN)

    def was_written(self, response: str) -> bool:
        """Whether a background response has its line."""
        return self._fates.newest(_short(response)) == WRITTEN

    def disclaim(self, response: str) -> None:
        """Whoever claimed the line of a response is dead and wrote none."""
        self._fates.put(_short(response), PENDING)

    def _in_body(self, runtime: str, body: Mapping[str, Any]) -> str | None:
        if NAMING.isdisjoint(body):
            return None
        if value := in_fields(runtime, body, BODY_FIELDS):
            return reference(self._key, "session", value)
        if value := identifying(body.get(PREVIOUS_RESPONSE)):
            response = reference(self._key, "response", value)
            # An answer from before the last start: its id names the chain from here on.
            return self._answers.get(_short(response)) or reference(self._key, "session", value)
        if value := in_fields(runtime, body, USER_FIELDS):
            return reference(self._key, "session", value)
        return None

    def _of_conversation(self, runtime: str, wire: str, body: Mapping[str, Any], now: float) -> str | None:
        """The session of the conversation in a body; a plain head that was read before is not read again (-10 µs)."""
        begun = self._begin(runtime)
        raw = b""
        if plain := plain_head(wire, body):
            system_text, text, start = plain
            raw = _plain_hash(begun, system_text, text)
            if (hashes := self._plain.get(raw)) and (known := self._heads.get(hashes[2])):
                messages = body["messages"]
                self._spoken(begun, hashes, messages[start:], messages[start], known, now)
                return known
        found = conversation(wire, body)
        if found is None:
            return None
        system = _hash(begun, [found.system])
        first = first_user(found.messages)
        opener = _hash(begun, pieces(first))
        head = _hash(begun, [system.hex(), opener.hex()])
        session = self._heads.get(head)
        if session is None:
            session = self._continued(begun, found, system, now) or reference(self._key, "conversation", head.hex())
            self._heads.put(head, session)
        if raw and not found.compacted:
            self._plain.put(raw, (system, opener, head))
        self._spoken(begun, (system, opener, head), found.messages, first, session, now)
        return session

    def _spoken(
        self,
        begun: hashlib.blake2b,
        hashes: tuple[bytes, bytes, bytes],
        messages: list[Any],
        first: Any,
        session: str,
        now: float,
    ) -> None:
        """A call of ``session`` was made: remember when, and its last messages. ``first``: the one that opened it."""
        system, opener, _ = hashes
        self._spoke.put(system, (session, now))
        for message in messages[-REMEMBERED_PER_CALL:]:
            self._messages.join(opener if message is first else _hash(begun, pieces(message)), session)

    def _continued(self, begun: hashlib.blake2b, found: Conversation, system: bytes, now: float) -> str | None:
        """The session that a call with an unknown head goes on with, ``None`` where it begins one."""
        if found.grown or found.compacted:
            # The last message is new, unless the compaction happened because of it.
            kept = found.messages if found.compacted else found.messages[:-1]
            known = self._known(_hash(begun, pieces(message)) for message in kept[:SEARCHED_PER_CALL])
            if known is not None:
                return known
        if not found.grown and (quoted := quoted_messages(opening(found.messages[0]))):
            known = self._known(_hash(begun, [text]) for text in quoted)
            if known is not None:
                return known
        spoke = self._spoke.get(system) if found.compacted else None
        return spoke[0] if spoke and now - spoke[1] <= GAP_SECONDS else None

    def _known(self, messages: Iterable[bytes]) -> str | None:
        for message in messages:
            if session := self._messages.get(message):
                return session
        return None

    def _begin(self, runtime: str) -> hashlib.blake2b:
        begun = self._begun.get(runtime)
        if begun is None:
            begun = hashlib.blake2b(runtime.encode(), key=self._key, digest_size=16)
            self._begun.put(runtime, begun)
        return begun

    def _of_gap(self, runtime: str, upstream: str, now: float) -> str:
        place = (runtime, upstream)
        last = self._gaps.get(place)
        if last is None or now - last[1] > GAP_SECONDS:
            last = (reference(self._key, "gap", secrets.token_hex(16)), now)
        self._gaps.put(place, (last[0], now))
        return last[0]


def _hash(begun: hashlib.blake2b, parts: Iterable[str]) -> bytes:
    digest = begun.copy()
    for part in parts:
        if len(part) > HASHED_HEAD:
            part = f"{part[:HASHED_HEAD]}{part[-HASHED_TAIL:]}{len(part)}"
        digest.update(part.strip().encode("utf-8", "surrogatepass") + b"\0")
    return digest.digest()


def _plain_hash(begun: hashlib.blake2b, system: str, text: str) -> bytes:
    digest = begun.copy()
    digest.update(f"{len(system)}\0{system}{text}".encode("utf-8", "surrogatepass"))
    return digest.digest()


def _short(response: str) -> bytes:
    """The first 16 characters of a reference, 80 bits of it, as a key."""
    return response.encode()[:16].ljust(16)
