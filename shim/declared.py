"""What a call says of its session itself: headers and body fields that name one, the most telling first.

Facts in tables: which client sends which, what an agent shares among its conversations, and what is as good as nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

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
NAMING_HEADERS: Final = frozenset(HEADERS)

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
# The wires that have that field: the responses of others need not be remembered.
CHAINED: Final = frozenset({"openai-responses", "lmstudio-chat"})
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


def in_headers(headers: Mapping[str, str]) -> str | None:
    """The session that a header names."""
    if NAMING_HEADERS.isdisjoint(map(str.lower, headers)):
        return None
    for name in HEADERS:
        if name in headers and (value := identifying(headers[name])):
            return value
    return None


def in_fields(runtime: str, body: Mapping[str, Any], fields: tuple[tuple[str, ...], ...]) -> str | None:
    """The session that the first of ``fields`` with a value names."""
    for path in fields:
        value: Any = body
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None or not (text := identifying(value)):
            continue
        agent_level = AGENT_LEVEL.get((runtime, path))
        if agent_level is None or not agent_level.fullmatch(text):
            return _claude_code_session(text) if path == ("metadata", "user_id") else text
    return None


def identifying(value: Any) -> str | None:
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
        return identifying(inner.get("session_id")) or user_id  # a text that begins with { and parses is an object
    return user_id
