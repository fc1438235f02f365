"""Alibaba DashScope's native generation API.

Every event of a stream restates cumulative usage, even where the text is incremental; the end is a ``finish_reason``
that is not the string "null". There is no model in the body. Failures are ``{code, message}``, in a stream under
``event:error``. https://help.aliyun.com/zh/model-studio/qwen-api-via-dashscope
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from shim.line import Tokens
from shim.wires import Exchange
from shim.wires.counts import at, count, first_count, inclusive, text
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import Interest
from shim.wires.marks import marks
from shim.wires.openai_chat import ERROR_EVENT
from shim.wires.openai_responses import weight

CACHED: Final = (("prompt_tokens_details", "cached_tokens"), ("input_tokens_details", "cached_tokens"))
WRITTEN: Final = (("prompt_tokens_details", "cache_creation_input_tokens"),)
REASONING: Final = (("output_tokens_details", "reasoning_tokens"),)


class DashscopeGeneration(DocumentReader):
    """One native generation response."""

    interest: ClassVar[Interest] = Interest(
        marks=marks("usage"),
        endings=marks("code", "finish_reason", literals=ERROR_EVENT),
        lasting=marks("code", unless={"finish_reason": '"?null'}, literals=ERROR_EVENT),
        members=frozenset({("usage",), ("request_id",), ("code",), ("output", "finish_reason")}),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.usage: dict[str, Any] | None = None
        self.finished = False

    @property
    def known(self) -> bool:
        return self.response_id is not None

    def settles(self, value: dict[str, Any]) -> bool:
        return weight(value.get("usage")) == 2 and bool(value.get("request_id"))

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        self.close(name, value)
        self.name(None, value.get("request_id"))
        usage = value.get("usage")
        if weight(usage) and weight(usage) >= weight(self.usage):
            self.usage = usage

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        self.failed = self.failed or name == b"error" or bool(value.get("code"))
        for reason in (at(value, "output", "finish_reason"), at(value, "output", "choices", 0, "finish_reason")):
            self.finished = self.finished or text(reason) not in (None, "null")

    def tokens(self) -> Tokens:
        usage = self.usage
        if usage is None:
            return Tokens()
        return inclusive(
            count(usage.get("input_tokens")),
            count(usage.get("output_tokens")),
            count(usage.get("total_tokens")),
            cached=first_count(usage, CACHED),
            written=first_count(usage, WRITTEN),
            reasoning=first_count(usage, REASONING),
        )

    def terminal(self, *, complete: bool) -> bool:
        return self.finished
