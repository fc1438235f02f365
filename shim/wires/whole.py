"""Whole JSON answers of the common shape, read at one go: the short way beside the wires' own rules.

Most calls that do not stream get one JSON object with plain integer counts. Reading that by the full rules costs 25 µs,
here 3. Anything that is not exactly the common shape is ``None`` and goes the long way, so no rule is kept twice: what
is answered here is what ``open_reader`` says of the same bytes (held to it by ``tests/wires/test_whole.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeGuard

import orjson

from shim.line import MAX_TOKENS, Tokens
from shim.wires import Reading
from shim.wires.bodies import HOLD

CONTENT_TYPES: Final = frozenset(
    {"application/json", "application/json; charset=utf-8", "application/json;charset=utf-8"}
)
# Keys with rules of their own: failures, usage in other places, charges, speeds, further models.
ODD_CHAT: Final = frozenset({"error", "base_resp", "x_groq", "timings"})
CHAT_USAGE: Final = frozenset(
    {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"}
)
ODD_WRITTEN: Final = frozenset({"cache_write_tokens", "cache_creation_input_tokens"})
ODD_MESSAGE: Final = frozenset({"error", "base_resp"})
ODD_CLAUDE_USAGE: Final = frozenset({"iterations", "speed", "output_tokens_details", "cost", "cost_in_usd_ticks"})


def read_whole(wire: str, content_type: str, data: bytes) -> Reading | None:
    """What a complete body says, ``None`` where it is not of the common shape. Never raises on input."""
    read = SHAPES.get(wire)
    if read is None or content_type not in CONTENT_TYPES or len(data) > HOLD or data[:1] != b"{":
        return None
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    tokens = read(value)
    if tokens is None:
        return None
    model, response_id = value.get("model"), value.get("id")
    tier = (value if wire == "openai-chat" else value["usage"]).get("service_tier")
    return Reading(
        tokens,
        "reported",
        model if isinstance(model, str) and model else None,
        response_id if isinstance(response_id, str) and response_id else None,
        tier if isinstance(tier, str) and tier else None,
        None,
        False,
        True,
    )


def chat_tokens(value: dict[str, Any]) -> Tokens | None:
    """OpenAI Chat Completions: one choice, and a total that says the prompt includes the cache."""
    usage, choices = value.get("usage"), value.get("choices")
    if type(usage) is not dict or type(choices) is not list or len(choices) != 1 or not usage.keys() <= CHAT_USAGE:
        return None
    choice = choices[0]
    if type(choice) is not dict or "usage" in choice or "error" in choice or choice.get("finish_reason") == "error":
        return None
    if not ODD_CHAT.isdisjoint(value) or value.get("object") == "error":
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(prompt) is not int or type(completion) is not int or prompt < 0 or completion < 0:
        return None
    if not usage.get("total_tokens") == prompt + completion <= MAX_TOKENS:
        return None
    cached = reasoning = None
    if details := usage.get("prompt_tokens_details"):
        if type(details) is not dict or not ODD_WRITTEN.isdisjoint(details):
            return None
        cached = details.get("cached_tokens")
        if cached is not None and not (type(cached) is int and 0 <= cached <= prompt):
            return None
    if details := usage.get("completion_tokens_details"):
        reasoning = details.get("reasoning_tokens") if type(details) is dict else -1
        if reasoning is not None and not (type(reasoning) is int and 0 <= reasoning <= completion):
            return None
    return Tokens(prompt - (cached or 0), cached, None, None, completion, reasoning)


def message_tokens(value: dict[str, Any]) -> Tokens | None:
    """Anthropic Messages: four counts that do not overlap."""
    usage = value.get("usage")
    if type(usage) is not dict or value.get("type") != "message" or not ODD_MESSAGE.isdisjoint(value):
        return None
    if not ODD_CLAUDE_USAGE.isdisjoint(usage):
        return None
    fresh, output = usage.get("input_tokens"), usage.get("output_tokens")
    read, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    if not _is_count(fresh) or not _is_count(output):
        return None
    if (read is not None and not _is_count(read)) or (written is not None and not _is_count(written)):
        return None
    hour = None
    if split := usage.get("cache_creation"):
        hour = split.get("ephemeral_1h_input_tokens") if type(split) is dict else -1
        if written is None or (hour is not None and (not _is_count(hour) or hour > written)):
            return None
    return Tokens(fresh, read, written, hour, output, None)


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_TOKENS


SHAPES: Final[dict[str, Callable[[dict[str, Any]], Tokens | None]]] = {
    "openai-chat": chat_tokens,
    "anthropic-messages": message_tokens,
}
