"""llama.cpp's own ``/completion``.

The last event has ``stop: true`` and counts the prompt (``tokens_evaluated``) and the output (``tokens_predicted``).
``tokens_cached`` is the context held afterwards, not a cache read.
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from shim.line import Tokens
from shim.wires import Exchange
from shim.wires.counts import at, count, inclusive
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import Interest
from shim.wires.marks import marks

MEMBERS: Final = ("model", "error", "stop", "tokens_evaluated", "tokens_predicted", "timings")


class LlamacppCompletion(DocumentReader):
    """One native completion response."""

    interest: ClassVar[Interest] = Interest(
        marks=marks(unless={"stop": "false"}),
        endings=marks("error"),
        members=frozenset((name,) for name in MEMBERS),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.last: dict[str, Any] = {}

    @property
    def known(self) -> bool:
        return self.model is not None

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        self.close(name, value)
        self.name(value.get("model"))
        if value.get("stop") is True:
            self.last = value

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        self.failed = self.failed or bool(value.get("error"))

    def tokens(self) -> Tokens:
        prompt = count(self.last.get("tokens_evaluated"))
        cached, fresh = (count(at(self.last, "timings", name)) for name in ("cache_n", "prompt_n"))
        splits = cached is not None and fresh is not None and cached + fresh == prompt
        return inclusive(prompt, count(self.last.get("tokens_predicted")), None, cached=cached if splits else None)

    def terminal(self, *, complete: bool) -> bool:
        return bool(self.last)
