"""The shapes of common whole JSON answers, as types that a decoder in C reads by; ``shim.wires.whole`` says when.

Whatever a shape does not name is passed over. A field that is ``Odd`` sends an answer that has it the long way.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from shim.line import MAX_TOKENS

Count = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
# A key with rules of its own (a failure, a charge, usage in another place): with a value, the answer goes the long way.
Odd: TypeAlias = None


class PromptDetails(msgspec.Struct, gc=False):
    """OpenAI's ``prompt_tokens_details``."""

    cached_tokens: Count | None = None
    cache_write_tokens: Odd = None
    cache_creation_input_tokens: Odd = None


class CompletionDetails(msgspec.Struct, gc=False):
    """OpenAI's ``completion_tokens_details``."""

    reasoning_tokens: Count | None = None


class ChatUsage(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """OpenAI's ``usage``; vendors that say more say it by rules of their own."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Choice(msgspec.Struct, gc=False):
    """The one choice."""

    finish_reason: str | None = None
    usage: Odd = None
    error: Odd = None


class Chat(msgspec.Struct, gc=False):
    """A Chat Completions answer."""

    usage: ChatUsage
    choices: tuple[Choice]
    id: str | None = None
    model: str | None = None
    object: str | None = None
    service_tier: str | None = None
    error: Odd = None
    base_resp: Odd = None
    x_groq: Odd = None
    timings: Odd = None


class CacheCreation(msgspec.Struct, gc=False):
    """Anthropic's split of cache writes by lifetime."""

    ephemeral_1h_input_tokens: Count | None = None


class MessageUsage(msgspec.Struct, gc=False):
    """Anthropic's ``usage``."""

    input_tokens: Count
    output_tokens: Count
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: CacheCreation | None = None
    service_tier: str | None = None
    iterations: Odd = None
    speed: Odd = None
    output_tokens_details: Odd = None
    cost: Odd = None
    cost_in_usd_ticks: Odd = None


class Message(msgspec.Struct, gc=False):
    """A Messages answer."""

    usage: MessageUsage
    type: Literal["message"]
    id: str | None = None
    model: str | None = None
    error: Odd = None
    base_resp: Odd = None
