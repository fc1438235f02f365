"""OpenAI embeddings: ``prompt_tokens`` and ``total_tokens`` only; there is no output, so a call without it is whole."""

from __future__ import annotations

from shim.line import Tokens
from shim.wires import Exchange
from shim.wires.counts import count
from shim.wires.openai_chat import OpenAIChat


class OpenAIEmbeddings(OpenAIChat):
    """One embeddings response."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.generating = False

    def tokens(self) -> Tokens:
        usage = self.usage or {}
        return Tokens(
            input_tokens=count(usage.get("prompt_tokens")), output_tokens=count(usage.get("completion_tokens"))
        )
