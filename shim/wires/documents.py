"""Documents of a response, and what passes between the bodies that find them and the readers that take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from shim.framing.eventstream import Frame
from shim.wires.marks import Marks

DONE: Final = b"[DONE]"

# An event's name (empty for most) and its JSON object.
Document = tuple[bytes, dict[str, Any]]
NOTHING: Final[Document] = (b"", {})


@dataclass(frozen=True, slots=True)
class Interest:
    """What a wire needs to see.

    ``marks``: a message of a stream that has one is parsed. ``endings``: the same for the last ``LATE`` bytes of a
    stream, which tell how it ended. ``lasting``: where one marked message restates the running totals of those before
    it in the block, the ones with such a mark are parsed all the same. ``members``: paths kept of a body too large to
    hold.
    """

    marks: Marks
    endings: Marks
    members: frozenset[tuple[str, ...]]
    lasting: Marks | None = None


class Taker(Protocol):
    """Who gets the documents."""

    @property
    def interest(self) -> Interest:
        """What the wire needs to see."""

    @property
    def known(self) -> bool:
        """Whether model and id are known, so that messages without a mark have nothing more to say."""

    def settles(self, value: dict[str, Any]) -> bool:
        """Whether taking this document makes it irrelevant which running totals came before it."""

    def take(self, name: bytes, value: dict[str, Any]) -> None:
        """Take all that one document says; ``name`` is its event name, or ``DONE``."""

    def close(self, name: bytes, value: dict[str, Any]) -> None:
        """Take only what a document says of how the call ended."""

    def take_frame(self, frame: Frame) -> None:
        """Take one binary frame."""
