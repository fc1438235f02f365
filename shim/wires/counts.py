"""What is a token count, what is a usage report, and how overlapping classes come apart: the same for every wire.

The rules are WIRES 0.1-0.8 of the project's reference; each is cited where it is applied. Nothing here knows a wire.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import orjson

from shim.line import MAX_TOKENS, Tokens

# ProtoJSON gateways write 64-bit integers as strings (https://protobuf.dev/programming-guides/json/).
DIGITS: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
TICKS_PER_USD: Final = 10_000_000_000


def loads(data: bytes) -> Any:
    """One JSON value, or ``None`` where ``data`` is not one.

    orjson refuses a document for a single odd number (``1e400``) or a lone surrogate; the standard library reads it,
    so the valid fields beside it are not lost (RFC 8259 section 6).
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    if data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(data.decode("utf-8", "replace"), parse_int=_digits)
    except (ValueError, RecursionError):
        return None


def _digits(text: str) -> int | None:
    return int(text) if len(text) <= 20 else None


def count(value: object) -> int | None:
    """A token count as reported, else ``None``: a whole number from 0 to 2**63-1 as int, float or decimal string."""
    if type(value) is int:
        return value if 0 <= value <= MAX_TOKENS else None
    if type(value) is float:
        return int(value) if 0 <= value < MAX_TOKENS and value.is_integer() else None
    if isinstance(value, str) and DIGITS.fullmatch(value):
        return count(int(value))
    return None


def at(value: object, *path: str | int) -> Any:
    """The member of a parsed document on exactly this path, else ``None``."""
    for step in path:
        if isinstance(step, int):
            if not isinstance(value, list) or len(value) <= step:
                return None
            value = value[step]
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            return None
    return value


def first_count(value: object, paths: Iterable[tuple[str, ...]]) -> int | None:
    """The first valid count on one of ``paths``: vendors state the same number under several names, it is read once."""
    for path in paths:
        found = count(at(value, *path))
        if found is not None:
            return found
    return None


def text(value: object) -> str | None:
    """A non-empty string, else ``None``."""
    return value if isinstance(value, str) and value else None


def total(*parts: int | None) -> int | None:
    """Sum of the known parts, ``None`` where none is known."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def within(part: int | None, whole: int | None) -> int | None:
    """A subset, cut to its whole where both are known."""
    return part if part is None or whole is None else min(part, whole)


def inclusive(
    prompt: int | None,
    completion: int | None,
    whole: int | None,
    *,
    cached: int | None = None,
    written: int | None = None,
    reasoning: int | None = None,
) -> Tokens:
    """Token classes of a wire whose prompt includes the cache and whose completion includes reasoning.

    Vendors that share the wire differ in both; the stated total tells which convention a report follows (WIRES 0.5).
    """
    cache = total(cached, written) or 0
    output = completion
    outside = False
    if completion is not None and prompt is not None and whole is not None:
        if reasoning and whole == prompt + completion + reasoning:
            output = completion + reasoning
        elif cache and whole == prompt + cache + completion:
            outside = True
        elif reasoning is None and whole > prompt + completion and cache <= prompt:
            output = whole - prompt
    if output is not None and reasoning is not None:
        output = max(output, reasoning)
    fresh = prompt if prompt is None or outside else max(0, prompt - cache)
    return Tokens(
        input_tokens=fresh,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=bounded(output),
        reasoning_tokens=reasoning,
    )


def bounded(value: int | None) -> int | None:
    """A sum that still fits a line, else ``None``."""
    return value if value is None or value <= MAX_TOKENS else None


def usage_state(tokens: Tokens, *, ended: bool, generating: bool = True) -> str:
    """``reported``, ``partial`` or ``missing`` (WIRES 0.6): complete is both sides, seen to the end."""
    if not tokens.known:
        return "missing"
    if not ended or tokens.input_tokens is None or (generating and tokens.output_tokens is None):
        return "partial"
    return "reported"


def amount(value: object) -> float | None:
    """A charge as reported: a finite number from 0, else ``None``."""
    if type(value) not in (int, float):
        return None
    number = float(value)  # type: ignore[arg-type]
    return number if 0 <= number < 1e12 else None


def charge(usage: object) -> float | None:
    """The charge in USD that a usage object states, where it does.

    OpenRouter: ``cost`` is the whole charge; with ``is_byok`` it is only OpenRouter's fee and the vendor's charge
    comes on top, so without that the charge is unknown
    (https://openrouter.ai/docs/use-cases/usage-accounting). xAI: ticks of 1e-10 USD.
    """
    ticks = amount(at(usage, "cost_in_usd_ticks"))
    if ticks is not None:
        return ticks / TICKS_PER_USD
    cost = amount(at(usage, "cost"))
    if cost is None or at(usage, "is_byok") is not True:
        return cost
    upstream = amount(at(usage, "cost_details", "upstream_inference_cost"))
    return None if upstream is None else cost + upstream
