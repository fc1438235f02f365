"""OpenAI legacy completions: Chat's usage object, ``text`` in place of messages."""

from __future__ import annotations

from shim.wires.openai_chat import OpenAIChat


class OpenAICompletions(OpenAIChat):
    """One legacy completions response."""
