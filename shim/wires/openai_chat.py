"""OpenAI Chat Completions and the many vendors that share its shape.

Usage stands at the top of a JSON answer, or on a late chunk of a stream: with empty ``choices`` after the finish chunk
(``stream_options.include_usage``), on the finish chunk, under ``x_groq`` (Groq) or in ``choices[0]`` (Moonshot). Some
servers state running totals on every chunk. The last valid report wins, nothing is ever added up, and a placeholder
(null, empty, zeros) never replaces a report. Reference: https://platform.openai.com/docs/api-reference/chat-streaming.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from shim.line import Tokens
from shim.wires.counts import at, charge, count, first_count, inclusive, text
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import DONE, Interest
from shim.wires.marks import marks

Path = tuple[str, ...]

# One number under several names, read once; the nested OpenAI name comes first (WIRES 8).
CACHED: Final[tuple[Path, ...]] = (
    ("prompt_tokens_details", "cached_tokens"),
    ("prompt_token_details", "cached_tokens"),  # Mistral's second spelling
    ("num_cached_tokens",),  # Mistral
    ("cached_tokens",),  # Moonshot, Together
    ("prompt_cache_hit_tokens",),  # DeepSeek
)
WRITTEN: Final[tuple[Path, ...]] = (
    ("prompt_tokens_details", "cache_write_tokens"),  # OpenAI from GPT-5.6 on, OpenRouter
    ("prompt_tokens_details", "cache_creation_input_tokens"),  # Qwen
)
REASONING: Final[tuple[Path, ...]] = (
    ("completion_tokens_details", "reasoning_tokens"),
    ("reasoning_tokens",),  # Perplexity
)
USAGE: Final[tuple[tuple[str | int, ...], ...]] = (("usage",), ("x_groq", "usage"), ("choices", 0, "usage"))

SUCCESS: Final = {"status_code": r"0\b"}
ERROR_EVENT: Final = (b"event:error", b"event: error")
MEMBERS: Final = ("usage", "model", "id", "object", "error", "service_tier", "base_resp", "x_groq", "timings")


class OpenAIChat(DocumentReader):
    """One Chat Completions response."""

    interest: ClassVar[Interest] = Interest(
        marks=marks("usage"),
        endings=marks("error", "finish_reason", unless=SUCCESS, literals=(DONE, *ERROR_EVENT)),
        lasting=marks("error", "finish_reason", "service_tier", unless=SUCCESS),
        members=frozenset((name,) for name in MEMBERS),
    )

    usage: dict[str, Any] | None = None
    cache_n: int | None = None
    done = False
    finished = False

    def settles(self, value: dict[str, Any]) -> bool:
        return weight(value.get("usage")) == 2 and bool(value.get("model") and value.get("id"))

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        self.close(name, value)
        self.name(value.get("model"), value.get("id"), value.get("service_tier") or at(value, "usage", "service_tier"))
        # Not a report < all zero < some count: what says less never replaces what says more (WIRES 0.3).
        usage = max((at(value, *path) for path in USAGE), key=weight)
        if weight(usage) and weight(usage) >= weight(self.usage):
            self.usage, self.cache_n = usage, count(at(value, "timings", "cache_n"))

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        self.done = self.done or name == DONE
        self.failed = self.failed or name == b"error" or failed(value)
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            reason = at(choice, "finish_reason")
            self.finished = self.finished or text(reason) is not None
            self.failed = self.failed or reason == "error"

    def tokens(self) -> Tokens:
        usage = self.usage
        if usage is None:
            return Tokens()
        cached = first_count(usage, CACHED)
        return inclusive(
            count(usage.get("prompt_tokens")),
            count(usage.get("completion_tokens")),
            count(usage.get("total_tokens")),
            # llama.cpp's timings split the prompt that usage states (ggml-org/llama.cpp#15827).
            cached=self.cache_n if cached is None else cached,
            written=first_count(usage, WRITTEN),
            reasoning=first_count(usage, REASONING),
        )

    def cost(self) -> float | None:
        return charge(self.usage)

    def terminal(self, *, complete: bool) -> bool:
        # Zeros on a finish chunk may be a placeholder for the usage chunk that never came.
        return self.done or (self.finished and (complete or weight(self.usage) == 2))


def weight(usage: Any) -> int:
    """0: no report (null, empty, details only, no core count), 1: all core counts are zero, 2: a report."""
    if not isinstance(usage, dict):
        return 0
    prompt, completion = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    if prompt is None and completion is None:
        return 0
    return 2 if prompt or completion else 1


def failed(value: dict[str, Any]) -> bool:
    """Whether a document under HTTP 200 says that the call failed.

    ``error`` (OpenRouter and others), ``object: error`` (vLLM), ``x_groq.error`` (Groq), a non-zero
    ``base_resp.status_code`` (MiniMax, https://platform.minimax.io/docs/api-reference/text-openai-api).
    """
    if value.get("error") or value.get("object") == "error" or at(value, "x_groq", "error"):
        return True
    return base_resp_failed(value) or bool(at(value, "choices", 0, "error"))


def base_resp_failed(value: dict[str, Any]) -> bool:
    """MiniMax's way to fail under HTTP 200."""
    return at(value, "base_resp", "status_code") not in (None, 0)
