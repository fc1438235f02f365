"""LM Studio's native ``/api/v1/chat``.

``stats`` of the result (in a stream: of ``chat.end``) counts input and output, reasoning included in the output. An
``error`` event does not end a stream, ``chat.end`` still follows.
https://github.com/lmstudio-ai/docs/blob/main/1_developer/2_rest/streaming-events.md
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from shim.line import Tokens
from shim.wires import Exchange
from shim.wires.counts import at, count, inclusive
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import Interest
from shim.wires.marks import marks
from shim.wires.openai_responses import kind_of

END: Final = "chat.end"


class LmstudioChat(DocumentReader):
    """One native chat response."""

    interest: ClassVar[Interest] = Interest(
        marks=marks(END, "error"),
        endings=marks(END, "error"),
        members=frozenset((name,) for name in ("model_instance_id", "response_id", "stats", "error")),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.stats: dict[str, Any] = {}
        self.ended = False

    @property
    def known(self) -> bool:
        return self.model is not None

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        self.close(name, value)
        kind = kind_of(name, value)
        source = value.get("result") if kind == END else value
        self.name(at(source, "model_instance_id"), at(source, "response_id"))
        stats = at(source, "stats")
        if kind in (END, "") and isinstance(stats, dict):
            self.stats = stats

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        kind = kind_of(name, value)
        self.failed = self.failed or kind == "error" or bool(value.get("error"))
        self.ended = self.ended or kind == END

    def tokens(self) -> Tokens:
        return inclusive(
            count(self.stats.get("input_tokens")),
            count(self.stats.get("total_output_tokens")),
            None,
            reasoning=count(self.stats.get("reasoning_output_tokens")),
        )

    def terminal(self, *, complete: bool) -> bool:
        return self.ended
