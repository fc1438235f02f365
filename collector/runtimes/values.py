"""Reading single values out of a store: each function takes what JSON gave and returns a value that can be trusted, or
``None``. A count is a whole number of tokens, never negative; a time is epoch seconds; money is pico-USD. A name that
could carry content (spaces, newlines, more than its bound) is not a name.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from collector.record import PICO
from shim.line import MAX_TOKENS, model_or_none

NAME: Final = re.compile(r"[A-Za-z0-9_.:/@+-]{1,128}")
MAX_REFERENCE: Final = 256
LATEST: Final = 253402300800.0  # 10000-01-01
# Shorter ids ("m1", 8 hex digits) repeat from session to session; longer ones mean the same call in any file.
UNIQUE: Final = 16
LOCAL_PROVIDERS: Final = frozenset({"ollama", "lmstudio", "lm-studio", "llamacpp", "llama.cpp", "llama-cpp", "vllm"})
LOOPBACK: Final = re.compile(r"https?://(localhost|127\.\d+\.\d+\.\d+|\[::1\])(?=[:/]|$)", re.IGNORECASE)


def count(value: object) -> int | None:
    """A number of tokens."""
    if type(value) is int:
        return value if 0 <= value <= MAX_TOKENS else None
    if type(value) is float and value.is_integer():
        return int(value) if 0 <= value <= MAX_TOKENS else None
    return None


def rounded(value: object) -> int | None:
    """As ``count``, of a sum of floats that may have a fraction."""
    return count(round(value)) if type(value) is float and isfinite(value) else count(value)


def fresh(total: int | None, *cached: int | None) -> int | None:
    """Fresh input of a source whose input includes the cache: ``total`` less the parts, never below 0 tokens."""
    return None if total is None else max(0, total - sum(part or 0 for part in cached))


def mapping(value: object) -> dict[str, Any]:
    """A JSON object, empty where there is none."""
    return value if isinstance(value, dict) else {}


def reference(value: object) -> str | None:
    """An id of the source's own: printable, without spaces, at most 256 characters."""
    if isinstance(value, str) and 0 < len(value) <= MAX_REFERENCE and value.isascii() and value.isprintable():
        return None if " " in value else value
    return None


def name(value: object) -> str | None:
    """A provider or alias."""
    return value if isinstance(value, str) and NAME.fullmatch(value) else None


def model(value: object) -> str | None:
    """A model name; a context-window mark such as ``[1m]`` at its end is not part of it."""
    return _model(value) if isinstance(value, str) and len(value) < 256 else None


@lru_cache(maxsize=1024)
def _model(value: str) -> str | None:
    return model_or_none(value.partition("[")[0] if value.endswith("]") else value)


def iso(value: object) -> float | None:
    """Epoch seconds of an ISO 8601 text; without a zone it is UTC."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        when = datetime.fromisoformat(value)
        return _in_range((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None


def seconds(value: object) -> float | None:
    """Epoch seconds given as a number of seconds."""
    return _in_range(float(value)) if type(value) in (int, float) else None  # type: ignore[arg-type]


def millis(value: object) -> float | None:
    """Epoch seconds given as a number of milliseconds."""
    return _in_range(value / 1000) if type(value) in (int, float) else None  # type: ignore[operator]


def _in_range(when: float) -> float | None:
    return when if 0 < when < LATEST else None


def usd(value: object) -> int | None:
    """Pico-USD of an amount in USD; a negative or absurd one is none."""
    if type(value) not in (int, float, str):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    return round(amount * PICO) if amount.is_finite() and 0 <= amount < 10**9 else None


def is_unique(identity: str) -> bool:
    """Whether an id is long enough to mean the same thing in every file."""
    return len(identity) >= UNIQUE


def is_local(provider: str | None, base_url: object = None) -> bool:
    """Evidence of a local provider: its id, or a base URL on loopback in the runtime's own configuration."""
    if isinstance(base_url, str) and base_url:
        return LOOPBACK.match(base_url) is not None
    return provider is not None and provider.lower() in LOCAL_PROVIDERS


def earliest(*times: float | None) -> float | None:
    """The first of the known times."""
    return min((when for when in times if when is not None), default=None)


def latest(*times: float | None) -> float | None:
    """The last of the known times."""
    return max((when for when in times if when is not None), default=None)
