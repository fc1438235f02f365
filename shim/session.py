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
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import orjson

from shim.conversation import Conversation, conversation, opening, pieces, quoted_messages
from shim.identity import reference
from shim.session_store import SessionStore

GAP_SECONDS: Final = 30 * 60

# Who sends which: RUNTIMES 18.10 and the stores of the real programs; the most specific first.
HEADERS: Final = (
    "x-claude-code-session-id",  # Claude Code
    "session-id",  # Codex, Pi
    "session_id",  # Codex before 0.50
    "x-session-id",  # opencode, Kilo
    "x-opencode-session",
    "x-kilo-session",
    "x-session-affinity",  # opencode, Kilo
    "x-affinity",  # Mistral Vibe
    "thread-id",  # Codex
    "thread_id",
    "x-thread-id",
    "conversation_id",
    "conversation-id",
    "x-conversation-id",
    "x-chat-id",
    "helicone-session-id",  # https://docs.helicone.ai/features/sessions
    "x-litellm-session-id",  # https://docs.litellm.ai/docs/proxy/request_headers
)

# What names a conversation comes before what only names a user.
BODY_FIELDS: Final = (
    ("session_id",),
    ("sessionId",),
    ("metadata", "session_id"),
    ("client_metadata", "session_id"),  # Codex
    ("client_metadata", "thread_id"),
    ("request", "session_id"),  # Code Assist envelope
    ("input", "session_id"),  # DashScope
    ("requestMetadata", "session_id"),  # Bedrock Converse
    ("conversation",),  # OpenAI Responses: an id or {"id": …}
    ("conversation_id",),
    ("metadata", "conversation_id"),
    ("thread_id",),
    ("metadata", "thread_id"),
    ("chat_id",),
    ("prompt_cache_key",),  # Codex, Pi, Kimi, OpenHands
)
PREVIOUS_RESPONSE: Final = "previous_response_id"
USER_FIELDS: Final = (
    ("metadata", "user_id"),  # Anthropic; Claude Code puts the session inside
    ("user",),
    ("safety_identifier",),
    ("user_id",),
)
# A body that has none of these names no session, and need not be looked through.
NAMING: Final = frozenset(path[0] for path in (*BODY_FIELDS, *USER_FIELDS)) | {PREVIOUS_RESPONSE}
NO_VALUE: Final = frozenset({"", "null", "none", "undefined"})
# PicoClaw's prompt_cache_key is the agent's, not the conversation's (pkg/agent/pipeline_llm.go, context_seahorse.go).
AGENT_LEVEL: Final[Mapping[tuple[str, tuple[str, ...]], re.Pattern[str]]] = {
    ("picoclaw", ("prompt_cache_key",)): re.compile(r"main|seahorse|.*:btw")
}
_CLAUDE_CODE_USER: Final = re.compile(r"user_.*_session_([0-9a-f-]{36})")

# Of a long text only its ends are hashed, so that a large body costs no more than a small one.
HASHED_HEAD: Final = 2048
HASHED_TAIL: Final = 1024
# Messages a call adds are at its end; older ones were remembered when they were new.
REMEMBERED_PER_CALL: Final = 6
SEARCHED_PER_CALL: Final = 48

_Value = TypeVar("_Value")


class Recent(Generic[_Value]):
    """A map that holds the ``size`` keys used last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[Any, _Value] = OrderedDict()

    def get(self, key: Any) -> _Value | None:
        """The value under ``key``, which counts as a use of it."""
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: Any, value: _Value) -> None:
        """Set a value and forget the key used longest ago if there are too many."""
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._size:
            self._items.popitem(last=False)

    def __len__(self) -> int:
        return len(self._items)


class Shared(Recent[str]):
    """A map from hashes to sessions in front of the store, which is asked for what is not here and told what is new.

    ``kind``: one byte that keeps the hashes of one map apart from those of another.
    """

    def __init__(self, size: int, store: SessionStore | None, kind: bytes) -> None:
        super().__init__(size)
        self._store = store
        self._kind = kind

    def get(self, key: bytes) -> str | None:
        """The session under a 16-byte hash."""
        session = super().get(key)
        if session is None and self._store is not None:
            session = self._store.get(self._kind + key[1:])
            if session is not None:
                super().put(key, session)
        return session

    def put(self, key: bytes, value: str) -> None:
        """Set the session under a 16-byte hash."""
        if self._store is not None and self._items.get(key) != value:
            self._store.put(self._kind + key[1:], value, time.time())
        super().put(key, value)


class Sessions:
    """The sessions one shim process has seen. ``fingerprint``: whether conversations are known by their content."""

    def __init__(
        self, key: bytes, fingerprint: bool = True, size: int = 8192, store: SessionStore | None = None
    ) -> None:
        self._key = key
        self._fingerprint = fingerprint
        self._begun: Recent[hashlib.blake2b] = Recent(64)  # runtime -> digest that has taken key and runtime
        self._answers = Shared(size, store, b"a")  # response reference -> session
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
        if value := _in_headers(headers):
            return reference(self._key, "session", value), "header"
        if body is not None:
            if session := self._in_body(runtime, body):
                return session, "body"
            if self._fingerprint and (found := conversation(wire, body)):
                return self._of_conversation(runtime, found, now), "conversation"
        return self._of_gap(runtime, upstream, now), "gap"

    def answered(self, session: str, response: str) -> None:
        """Remember that ``response`` (a reference of kind ``response``) was given in ``session``."""
        self._answers.put(_short(response), session)

    def _in_body(self, runtime: str, body: Mapping[str, Any]) -> str | None:
        if NAMING.isdisjoint(body):
            return None
        if value := _named(runtime, body, BODY_FIELDS):
            return reference(self._key, "session", value)
        if value := _text(body.get(PREVIOUS_RESPONSE)):
            response = reference(self._key, "response", value)
            # An answer from before the last start: its id names the chain from here on.
            return self._answers.get(_short(response)) or reference(self._key, "session", value)
        if value := _named(runtime, body, USER_FIELDS):
            return reference(self._key, "session", value)
        return None

    def _of_conversation(self, runtime: str, found: Conversation, now: float) -> str:
        system = self._hash(runtime, [found.system])
        first = found.first_user()
        opener = self._message(runtime, first)
        head = self._hash(runtime, [system.hex(), opener.hex()])
        session = self._heads.get(head)
        if session is None:
            session = self._continued(runtime, found, system, now) or reference(self._key, "conversation", head.hex())
            self._heads.put(head, session)
        self._spoke.put(system, (session, now))
        for message in found.messages[-REMEMBERED_PER_CALL:]:
            self._remember(opener if message is first else self._message(runtime, message), session)
        return session

    def _continued(self, runtime: str, found: Conversation, system: bytes, now: float) -> str | None:
        """The session that a call with an unknown head goes on with, ``None`` where it begins one."""
        if found.grown or found.compacted:
            # The last message is new, unless the compaction happened because of it.
            kept = found.messages if found.compacted else found.messages[:-1]
            known = self._known(self._message(runtime, message) for message in kept[:SEARCHED_PER_CALL])
            if known is not None:
                return known
        if not found.grown and (quoted := quoted_messages(opening(found.messages[0]))):
            known = self._known(self._hash(runtime, [text]) for text in quoted)
            if known is not None:
                return known
        spoke = self._spoke.get(system) if found.compacted else None
        return spoke[0] if spoke and now - spoke[1] <= GAP_SECONDS else None

    def _known(self, messages: Iterable[bytes]) -> str | None:
        for message in messages:
            if session := self._messages.get(message):
                return session
        return None

    def _remember(self, message: bytes, session: str) -> None:
        known = self._messages.get(message)
        self._messages.put(message, session if known is None or known == session else "")

    def _message(self, runtime: str, message: Any) -> bytes:
        return self._hash(runtime, pieces(message))

    def _hash(self, runtime: str, parts: Iterable[str]) -> bytes:
        begun = self._begun.get(runtime)
        if begun is None:
            begun = hashlib.blake2b(runtime.encode(), key=self._key, digest_size=16)
            self._begun.put(runtime, begun)
        digest = begun.copy()
        for part in parts:
            if len(part) > HASHED_HEAD:
                part = f"{part[:HASHED_HEAD]}{part[-HASHED_TAIL:]}{len(part)}"
            digest.update(part.strip().encode("utf-8", "surrogatepass") + b"\0")
        return digest.digest()

    def _of_gap(self, runtime: str, upstream: str, now: float) -> str:
        place = (runtime, upstream)
        last = self._gaps.get(place)
        if last is None or now - last[1] > GAP_SECONDS:
            last = (reference(self._key, "gap", secrets.token_hex(16)), now)
        self._gaps.put(place, (last[0], now))
        return last[0]


def _short(response: str) -> bytes:
    """The first 16 characters of a reference, 80 bits of it, as a key."""
    return response.encode()[:16].ljust(16)


def _in_headers(headers: Mapping[str, str]) -> str | None:
    for name in HEADERS:
        if name in headers and (value := _text(headers[name])):
            return value
    return None


def _named(runtime: str, body: Mapping[str, Any], fields: tuple[tuple[str, ...], ...]) -> str | None:
    for path in fields:
        value: Any = body
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None or not (text := _text(value)):
            continue
        agent_level = AGENT_LEVEL.get((runtime, path))
        if agent_level is None or not agent_level.fullmatch(text):
            return _claude_code_session(text) if path == ("metadata", "user_id") else text
    return None


def _text(value: Any) -> str | None:
    """The identifying text of a field: a string, a number, or the ``id`` of an object."""
    if isinstance(value, dict):
        value = value.get("id")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    return None if text.lower() in NO_VALUE else text


def _claude_code_session(user_id: str) -> str:
    """The session in Claude Code's ``metadata.user_id`` (JSON, or joined by ``_session_``), else the whole value."""
    if found := _CLAUDE_CODE_USER.fullmatch(user_id):
        return found[1]
    if user_id.startswith("{"):
        try:
            inner = orjson.loads(user_id)
        except orjson.JSONDecodeError:
            return user_id
        return _text(inner.get("session_id")) or user_id  # a text that begins with { and parses is an object
    return user_id
