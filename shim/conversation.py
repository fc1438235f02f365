"""What of a request body makes a conversation the same conversation: pure, bounded, and only ever hashed by the caller.

A request repeats the whole history each time, so the stable parts of two requests tell whether they belong together:
the system text without what changes by the minute, and the messages after it. ``conversation`` finds them in the body
of every wire that has them; ``pieces`` reduces a message to the strings that identify it, whatever its shape (a string,
text parts, images, tool calls), so that moved cache marks or another spelling of the same text change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

PLAIN: Final = frozenset({"role", "content"})
SYSTEM_ROLES: Final = ("system", "developer", "SYSTEM")
MAX_NODES: Final = 256
QUOTED_HEAD: Final = 65536
SYSTEM_HEAD: Final = 2048
SYSTEM_MESSAGES: Final = 16
# Up to so many characters it costs less to hash system text and first message whole than to read them again.
PLAIN_HEAD: Final = 6144


@dataclass(frozen=True, slots=True)
class Shape:
    """Where a wire keeps its conversation: an envelope key or none, then the keys of system text and of messages."""

    messages: tuple[str, ...]
    system: tuple[str, ...] = ()
    envelope: str | None = None


# Completions, embeddings and other single prompts have no conversation to recognise and are not listed.
SHAPES: Final[Mapping[str, Shape]] = {
    "openai-chat": Shape(("messages",)),
    "openai-responses": Shape(("input",), ("instructions",)),
    "anthropic-messages": Shape(("messages",), ("system",)),
    "gemini": Shape(("contents",), ("systemInstruction", "system_instruction"), envelope="request"),
    "ollama": Shape(("messages",)),
    "bedrock-converse": Shape(("messages",), ("system",)),
    "bedrock-invoke": Shape(("messages",), ("system",)),
    "cohere-v2": Shape(("messages",)),
    "dashscope-generation": Shape(("messages",), envelope="input"),
    "lmstudio-chat": Shape(("input",), ("system_prompt",)),
}

PLAIN_WIRES: Final = frozenset({"openai-chat", "anthropic-messages", "ollama", "cohere-v2"})

# Keys of a message or part that identify it. Left out on purpose: cache marks, ids that a client makes anew for each
# request, encrypted reasoning, annotations.
IDENTIFYING: Final = (
    "text",
    "content",
    "parts",
    "output",
    "tool_calls",
    "call_id",
    "tool_call_id",
    "tool_use_id",
    "function",
    "functionCall",
    "functionResponse",
    "function_call",
    "toolUse",
    "toolResult",
    "toolUseId",
    "name",
    "arguments",
    "input",
    "args",
    "response",
    "image_url",
    "image",
    "images",
    "source",
    "inlineData",
    "inline_data",
    "data",
    "bytes",
    "url",
    "file_id",
    "fileData",
    "fileUri",
)

# PicoClaw puts time, chat and, after a compaction, a summary into its one system message
# (https://github.com/sipeed/picoclaw, pkg/agent/context.go, 2026-06): only the chat is stable.
SUMMARY_MARK: Final = "CONTEXT_SUMMARY:"
CHAT_MARK: Final = "## Current Session\nChannel: "
# Each begins with a literal, so that a long text is skipped at memory speed.
_DATES: Final = re.compile(r"20\d\d-\d\d-\d\d(?:[T ,]*\d{1,2}:\d\d)?(?:\s?\([A-Z]\w+\))?")
_CLOCK: Final = re.compile(r":\d\d(?::\d\d)?(?:\.\d+)?")
_SUMMARY_HINTS: Final = ("summar", "compact", "continued", "recap", "so far", "truncated")
_SUMMARY: Final = re.compile(
    r"^\W*(?:summary|recap)\b"
    r"|summar(?:y|ies) of (?:\w+ ){0,2}(?:conversation|chat|session|discussion|messages|history|context)"
    r"|(?:conversation|chat|session|context|history) summar(?:y|ies)"
    r"|(?:conversation|history|context|messages) (?:so far )?(?:was|were|has been|have been|is) "
    r"(?:summari[sz]ed|compacted|compressed|truncated)"
    r"|summari[sz]ed (?:conversation|chat|session|discussion|messages|history|context)"
    r"|summary of (?:what|everything) (?:we|was|has|you)|(?:conversation|discussion|chat) so far"
    r"|continued from an? (?:previous|earlier) (?:conversation|session|chat)"
)
_QUOTED_ROLE: Final = re.compile(r"\n(?:user|assistant): ")


@dataclass(frozen=True, slots=True)
class Conversation:
    """The stable parts of one request.

    ``system``: what identifies its system text; ``messages``: everything after it, as the wire has it;
    ``compacted``: the request says that earlier messages were replaced by a summary.
    """

    system: str
    messages: list[Any]
    compacted: bool

    @property
    def grown(self) -> bool:
        """Whether there is a history: a fresh conversation is one message long."""
        return len(self.messages) > 1


def first_user(messages: list[Any]) -> Any:
    """The first message of the user, or the first of all where no message says whose it is."""
    for message in messages:
        if role(message) == "user":
            return message
    return messages[0]


def conversation(wire: str, body: Mapping[str, Any]) -> Conversation | None:
    """The conversation in a request body, ``None`` where the wire or this body has none. Never raises on input."""
    shape = SHAPES.get(wire)
    if shape is None:
        return None
    if shape.envelope and isinstance(inner := body.get(shape.envelope), dict):
        body = inner
    messages = _first(body, shape.messages)
    if isinstance(messages, str):
        messages = [messages]
    if not isinstance(messages, list) or not messages:
        return None
    start = _leading_system(messages)
    system_parts = [_first(body, shape.system), *messages[: min(start, SYSTEM_MESSAGES)]]
    messages = messages[start:]
    if not messages:
        return None
    system, summarised = _stable_system(system_parts)
    compacted = summarised or is_summary(opening(messages[0]))
    return Conversation(system, messages, compacted)


def plain_head(wire: str, body: Mapping[str, Any]) -> tuple[str, str, int] | None:
    """System text, first user message and its place in ``messages`` where both are plain, ``None`` for another body.

    What ``conversation`` makes of such a body depends on these two alone, but for the messages behind them, so what
    was made of them once can be looked up.
    """
    messages = body.get("messages")
    if wire not in PLAIN_WIRES or type(messages) is not list or not messages:
        return None
    first, start = messages[0], 0
    system: Any = ""
    if type(first) is dict and first.get("role") == "system":
        if len(messages) < 2 or len(first) != 2 or "system" in body:
            return None
        system, first, start = first.get("content"), messages[1], 1
    elif wire == "anthropic-messages":
        system = body.get("system", "")
    if type(first) is not dict or len(first) != 2 or first.get("role") != "user":
        return None
    text = first.get("content")
    if type(text) is not str or type(system) is not str or len(system) + len(text) > PLAIN_HEAD:
        return None
    return system, text, start


def role(message: Any) -> str:
    """``user``, ``assistant``, ``tool`` … in lower case; what says nothing (Gemini, a bare string) is the user's."""
    if not isinstance(message, dict):
        return "user"
    said = message.get("role")
    if isinstance(said, str):
        return said.lower()
    return "user" if message.get("type", "message") in ("message", "text", "image") else "tool"


def pieces(value: Any) -> Iterable[str]:
    """The strings that identify a message or part, in order; looks at ``MAX_NODES`` values at most."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, dict) and isinstance(text := value.get("content"), str) and value.keys() <= PLAIN:
        return (text,)
    return _walk(value)


def _walk(value: Any) -> Iterator[str]:
    waiting = [value]
    for _ in range(MAX_NODES):
        if not waiting:
            return
        node = waiting.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, list):
            waiting.extend(reversed(node[:MAX_NODES]))
        elif isinstance(node, dict):
            waiting.extend(node[key] for key in reversed(IDENTIFYING) if key in node)


def opening(message: Any) -> str:
    """The first text of a message."""
    return next(iter(pieces(message)), "")


def is_summary(text: str) -> bool:
    """Whether a text presents itself as the summary of a conversation that it replaces."""
    start = text[:300].lower()
    return any(hint in start for hint in _SUMMARY_HINTS) and _SUMMARY.search(start) is not None


def quoted_messages(text: str) -> list[str]:
    """Messages that a call for a summary quotes as ``user: …`` and ``assistant: …`` lines; at most 32."""
    return [part.strip() for part in _QUOTED_ROLE.split(text[:QUOTED_HEAD], maxsplit=32)[1:]]


def _first(body: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        if (value := body.get(key)) is not None:
            return value
    return None


def _leading_system(messages: list[Any]) -> int:
    for index, message in enumerate(messages):
        if not (isinstance(message, dict) and message.get("role") in SYSTEM_ROLES):
            return index
    return len(messages)


def _stable_system(parts: list[Any]) -> tuple[str, bool]:
    """What identifies the system text, and whether a summary stands in it."""
    texts = [text for part in parts if part is not None for text in pieces(part)]
    kept = [text for index, text in enumerate(texts) if index == 0 or not is_summary(text)]
    system = kept[0] if len(kept) == 1 else "\n".join(kept)
    summary = system.find(SUMMARY_MARK)
    if summary >= 0:
        system = system[:summary]
    if (chat := system.find(CHAT_MARK)) >= 0:
        stable = system[chat : chat + 512].split("\n\n", 1)[0]
    else:
        stable = _CLOCK.sub("", _DATES.sub("", system[:SYSTEM_HEAD])).rstrip("\n- ")
    return stable, summary >= 0 or len(kept) < len(texts)
