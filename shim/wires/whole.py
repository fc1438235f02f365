"""Whole JSON answers of the common shape, read at one go: the short way beside the wires' own rules.

Most calls that do not stream get one JSON object with plain integer counts. Its shape is declared here as types, so a
decoder in C finds the counts and passes over the text: 2 µs where the full rules take 25. Whatever is not exactly of
the shape is ``None`` and goes the long way, so no rule is kept twice: what is answered here is what ``open_reader``
says of the same bytes (held to it by ``tests/wires/test_whole.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from shim.line import Tokens
from shim.wires import Reading
from shim.wires.bodies import HOLD
from shim.wires.shapes import Chat, Message

CONTENT_TYPES: Final = frozenset(
    {"application/json", "application/json; charset=utf-8", "application/json;charset=utf-8"}
)
NOT_OF_THE_SHAPE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def read_whole(wire: str, content_type: str, data: bytes) -> Reading | None:
    """What a complete body says, ``None`` where it is not of the common shape. Never raises on input."""
    shape = SHAPES.get(wire)
    if shape is None or content_type not in CONTENT_TYPES or len(data) > HOLD or data[:1] != b"{":
        return None
    decoder, read = shape
    try:
        return read(decoder.decode(data))
    except NOT_OF_THE_SHAPE:
        return None


def read_chat(chat: Chat) -> Reading | None:
    """The total says that the prompt includes the cache and the completion the reasoning."""
    usage = chat.usage
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    if usage.total_tokens != prompt + completion or chat.object == "error" or chat.choices[0].finish_reason == "error":
        return None
    cached = reasoning = None
    if details := usage.prompt_tokens_details:
        cached = details.cached_tokens
        if cached and cached > prompt:
            return None
    if usage.completion_tokens_details:
        reasoning = usage.completion_tokens_details.reasoning_tokens
        if reasoning and reasoning > completion:
            return None
    tokens = Tokens(prompt - (cached or 0), cached, None, None, completion, reasoning)
    tier = chat.service_tier or None
    return Reading(tokens, "reported", chat.model or None, chat.id or None, tier, None, False, True)


def read_message(message: Message) -> Reading | None:
    """Four counts that do not overlap."""
    usage = message.usage
    written, hour = usage.cache_creation_input_tokens, None
    if usage.cache_creation:
        hour = usage.cache_creation.ephemeral_1h_input_tokens
        if written is None or (hour or 0) > written:
            return None
    tokens = Tokens(usage.input_tokens, usage.cache_read_input_tokens, written, hour, usage.output_tokens, None)
    tier = usage.service_tier or None
    return Reading(tokens, "reported", message.model or None, message.id or None, tier, None, False, True)


SHAPES: Final[dict[str, tuple[msgspec.json.Decoder[Any], Callable[[Any], Reading | None]]]] = {
    "openai-chat": (msgspec.json.Decoder(Chat), read_chat),
    "anthropic-messages": (msgspec.json.Decoder(Message), read_message),
}
