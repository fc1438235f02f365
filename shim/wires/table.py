"""The table of wires, and what a reading and HTTP together say of a call."""

from __future__ import annotations

from typing import Final

from shim.wires import Exchange, Reader, Reading
from shim.wires.anthropic_messages import AnthropicMessages
from shim.wires.bedrock_converse import BedrockConverse
from shim.wires.bedrock_invoke import BedrockInvoke
from shim.wires.cohere_v2 import CohereV2
from shim.wires.dashscope_generation import DashscopeGeneration
from shim.wires.gemini import Gemini
from shim.wires.llamacpp_completion import LlamacppCompletion
from shim.wires.lmstudio_chat import LmstudioChat
from shim.wires.ollama import Ollama
from shim.wires.openai_chat import OpenAIChat
from shim.wires.openai_completions import OpenAICompletions
from shim.wires.openai_embeddings import OpenAIEmbeddings
from shim.wires.openai_responses import OpenAIResponses

# ``cursor-cli`` is a wire of lines only: `usage-shim capture` writes it, no HTTP response is read.
READERS: Final[dict[str, type[Reader]]] = {
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "openai-completions": OpenAICompletions,
    "openai-embeddings": OpenAIEmbeddings,
    "anthropic-messages": AnthropicMessages,
    "gemini": Gemini,
    "ollama": Ollama,
    "bedrock-converse": BedrockConverse,
    "bedrock-invoke": BedrockInvoke,
    "cohere-v2": CohereV2,
    "dashscope-generation": DashscopeGeneration,
    "llamacpp-completion": LlamacppCompletion,
    "lmstudio-chat": LmstudioChat,
}


def open_reader(wire: str, exchange: Exchange) -> Reader:
    """A reader for one response of ``wire``. Raises ``KeyError`` for a wire that is not in ``READERS``."""
    return READERS[wire](exchange)


def outcome_of(reading: Reading, status: int, *, complete: bool, client_gone: bool = False) -> str:
    """The line's ``outcome`` for a call that got a response.

    ``status``: the HTTP status. ``complete``: the body came to its HTTP end. ``client_gone``: the client hung up
    first. What the upstream said counts before how the connection ended: a client that leaves after the end marker
    completed its call.
    """
    if status >= 400:
        return "rejected"
    if reading.failed:
        return "failed"
    if reading.ended:
        return "completed"
    if client_gone and not complete:
        return "client_closed"
    return "upstream_closed"
