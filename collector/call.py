"""One validated usage line as its bytes are decoded. Its reader may be compiled; a struct of msgspec cannot be."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from shim.line import Tokens

# Impossible for one call, and small enough that sums over a million hostile lines stay inside 64 bits.
MAX_PLAUSIBLE: Final = 10**13
MAX_TS: Final = 253_370_764_800  # the year 9999: later days have no calendar

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_PLAUSIBLE)] | None
Status = Annotated[int, msgspec.Meta(ge=0, le=999)] | None


class Call(msgspec.Struct, gc=False):
    """``shim.line.Line`` flat. ``ts`` in epoch seconds.

    ``boot``, ``seq`` and ``form`` are ours, whatever a line says under these keys; ``form`` numbers the combination of
    names (``lines.NAMES``) within one reader.
    """

    v: int
    id: str
    ts: Annotated[float, msgspec.Meta(ge=0, lt=MAX_TS)]
    session: str
    response: str | None
    input_tokens: Count
    cache_read_tokens: Count
    cache_write_tokens: Count
    cache_write_1h_tokens: Count
    output_tokens: Count
    reasoning_tokens: Count
    duration_ms: Count
    ttft_ms: Count
    http_status: Status
    stream: bool | None
    reported_cost_usd: float | None
    vm: str
    runtime: str
    upstream: str
    wire: str
    model: str | None
    session_source: str
    usage: str
    outcome: str
    service_tier: str | None
    boot: str = ""
    seq: int = 0
    form: int = 0

    @property
    def tokens(self) -> Tokens:
        """The token classes."""
        return Tokens(
            self.input_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.cache_write_1h_tokens,
            self.output_tokens,
            self.reasoning_tokens,
        )
