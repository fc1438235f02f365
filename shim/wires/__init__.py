"""Wire readers: one module per wire, bytes in, usage out.

A reader is made for one response, is fed its decoded body bytes in any split, and says at the end what the provider
reported. It holds no socket, no clock and no logger, never raises on input and never grows past its bound. Whatever
it sees of content stays inside it: a ``Reading`` has numbers, a checked model name and the provider's response id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from shim.line import Tokens


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a reader may know of the call beside the body.

    ``headers``: response headers, names in lower case. ``path``: the request target's path as the upstream got it,
    without the query. ``stream``: whether the request asked for a stream, ``None`` where it could not be told.
    """

    status: int
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    stream: bool | None = None


class Reading(NamedTuple):
    """What one response said of its usage; a tuple: frozen dataclasses take thrice as long to make.

    ``model``: as the response body names it, unchecked length but never content. ``response_id``: the provider's
    id, to be hashed by the caller and never written as it is. ``usage``: ``reported``, ``partial`` or ``missing``
    (CONTRACTS 3). ``failed``: the upstream said so inside the body. ``ended``: the wire's end marker was seen.
    ``cost_usd``: only where the wire states a charge. ``extra``: usage of a second model (an advisor).
    ``pending``: the response is still being made and is to be read again (OpenAI's background responses).
    """

    tokens: Tokens = Tokens()
    usage: str = "missing"
    model: str | None = None
    response_id: str | None = None
    service_tier: str | None = None
    cost_usd: float | None = None
    failed: bool = False
    ended: bool = False
    extra: tuple[Reading, ...] = ()
    pending: bool = False


class Reader(Protocol):
    """One response of one wire."""

    def __init__(self, exchange: Exchange) -> None: ...

    def feed(self, data: bytes) -> None:
        """Take the next body bytes (content-decoded, transfer framing removed); any split, any size; never raises."""

    def finish(self, *, complete: bool) -> Reading:
        """What was said. ``complete``: the body came to its HTTP end; ``False`` when either side hung up."""
