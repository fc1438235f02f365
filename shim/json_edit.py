"""Changes to a JSON text that leave every other byte as it is. Pure: text in, text out.

A parsed document knows values but not where they stand; this walks the text once and gives spans, so a string can be
replaced, or a member added or taken out, without touching anybody's formatting, key order or unknown keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Span:
    """A value in the text, from ``start`` to before ``end``; a member of an object also has where its key starts."""

    start: int
    end: int
    key_start: int = -1
    key_end: int = -1


@dataclass(frozen=True, slots=True)
class Change:
    """Put ``new`` in place of the text from ``start`` to before ``end``."""

    start: int
    end: int
    new: str


def members(text: str, at: int) -> dict[str, Span]:
    """The members of the object that starts at ``at``; of a repeated key the last counts, as for most readers.

    Raises ``ValueError`` for text that is not JSON.
    """
    found: dict[str, Span] = {}
    for start in _elements(text, at, "{", "}"):
        key, key_end = _DECODER.raw_decode(text, start)
        if not isinstance(key, str):
            raise ValueError("a key is not a string")
        colon = _skip(text, key_end)
        if text[colon : colon + 1] != ":":
            raise ValueError("a key has no value")
        value = _skip(text, colon + 1)
        found[key] = Span(value, _end(text, value), start, key_end)
    return found


def items(text: str, at: int) -> list[Span]:
    """The items of the array that starts at ``at``. Raises ``ValueError`` for text that is not JSON."""
    return [Span(start, _end(text, start)) for start in _elements(text, at, "[", "]")]


def value(text: str, span: Span) -> Any:
    """The value that stands in a span."""
    return _DECODER.raw_decode(text, span.start)[0]


def insert_after(text: str, member: Span, key: str, new: str) -> Change:
    """Add a string member behind ``member``, set out as that one is."""
    before = text[_after_separator(text, member.key_start) : member.key_start]
    colon = text[member.key_end : member.start]
    return Change(member.end, member.end, f",{before}{json.dumps(key)}{colon}{json.dumps(new)}")


def remove(text: str, member: Span) -> Change:
    """Take a member out with the comma and the space that belong to it."""
    start = _after_separator(text, member.key_start)
    if text[start - 1] == ",":
        return Change(start - 1, member.end, "")
    end = _skip(text, member.end)
    if text[end : end + 1] == ",":
        return Change(member.key_start, _skip(text, end + 1), "")
    return Change(start, member.end, "")


def apply(text: str, changes: list[Change]) -> str:
    """The text with all changes made; they must not overlap."""
    for change in sorted(changes, key=lambda change: change.start, reverse=True):
        text = text[: change.start] + change.new + text[change.end :]
    return text


def _elements(text: str, at: int, opening: str, closing: str) -> Iterator[int]:
    """Where each element of a container starts."""
    if text[at : at + 1] != opening:
        raise ValueError(f"no {opening} where one was expected")
    at = _skip(text, at + 1)
    while text[at : at + 1] != closing:
        yield at
        at = _skip(text, _end(text, at))
        if text[at : at + 1] == ":":  # a key: its value follows
            at = _skip(text, _end(text, _skip(text, at + 1)))
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise ValueError(f"no {closing} where one was expected")


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _after_separator(text: str, at: int) -> int:
    """Where the space before ``at`` begins: just behind a comma or an opening bracket."""
    while at > 0 and text[at - 1] in " \t\r\n":
        at -= 1
    return at
