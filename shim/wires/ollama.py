"""Ollama's native API: NDJSON by default, counts on the line with ``done: true`` (https://docs.ollama.com/api/usage).

``prompt_eval_count`` is the whole context; old versions leave it out when the prompt was cached, which is unknown, not
zero (ollama/ollama#2068). A late failure is a line with only ``error`` under HTTP 200.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from shim.line import Tokens
from shim.wires import Exchange
from shim.wires.counts import count, inclusive
from shim.wires.document_reader import DocumentReader
from shim.wires.documents import Interest
from shim.wires.marks import marks

MEMBERS: Final = ("model", "error", "done", "prompt_eval_count", "prompt_eval_cached_count", "eval_count")


class Ollama(DocumentReader):
    """One response of ``/api/chat``, ``/api/generate`` or ``/api/embed``."""

    interest: ClassVar[Interest] = Interest(
        marks=marks(unless={"done": "false"}),
        endings=marks("error"),
        members=frozenset((name,) for name in MEMBERS),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.generating = not exchange.path.endswith("/api/embed")
        self.last: dict[str, Any] = {}
        self.done = False

    @property
    def known(self) -> bool:
        return self.model is not None

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        self.close(name, value)
        self.name(value.get("model"))
        if value.get("done") is True or not self.generating:
            self.done = True
            self.last = value

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        self.failed = self.failed or bool(value.get("error"))

    def tokens(self) -> Tokens:
        return inclusive(
            count(self.last.get("prompt_eval_count")),
            count(self.last.get("eval_count")),
            None,
            cached=count(self.last.get("prompt_eval_cached_count")),
        )

    def terminal(self, *, complete: bool) -> bool:
        return self.done
