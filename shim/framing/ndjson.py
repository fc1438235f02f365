"""Newline-delimited JSON: one document a line, the last newline optional (https://docs.ollama.com/api/streaming)."""

from __future__ import annotations

from typing import Final

from shim.framing import BOUND
from shim.framing.held import Held

GAP: Final = b"\n"


class LineSplitter(Held):
    """Blocks of whole lines."""

    __slots__ = ()

    def __init__(self, bound: int = BOUND) -> None:
        super().__init__(GAP, bound)
