"""The usage line, version 1: the contract between the shim, the collector and anyone who reads the log.

One JSON object per line, UTF-8, ended by a newline, at most ``MAX_LINE`` bytes. Numbers, closed vocabularies and
opaque references only: no field can hold a prompt, an answer, a key or a path. ``decode`` accepts every line that
any release has written, ignores unknown keys and refuses the rest with a reason that names the field.

This file imports only the standard library and orjson, so a third party can copy it as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

import orjson

VERSION: Final = 1
MAX_LINE: Final = 1024

TOKEN_CLASSES: Final = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
)

WIRES: Final = (
    "openai-chat",
    "openai-responses",
    "openai-completions",
    "openai-embeddings",
    "anthropic-messages",
    "gemini",
    "ollama",
    "bedrock-converse",
    "bedrock-invoke",
    "cohere-v2",
    "dashscope-generation",
    "llamacpp-completion",
    "lmstudio-chat",
    "cursor-cli",
)
SESSION_SOURCES: Final = ("header", "body", "conversation", "gap")
USAGE_STATES: Final = ("reported", "partial", "missing")
OUTCOMES: Final = (
    "completed",
    "client_closed",
    "upstream_closed",
    "failed",
    "rejected",
    "unreachable",
    "interrupted",
)
# Served tiers of every provider (WIRES 1, 4, 5): openai and google name theirs alike, anthropic adds speed "fast".
SERVICE_TIERS: Final = (
    "auto",
    "default",
    "standard",
    "flex",
    "priority",
    "scale",
    "batch",
    "fast",
    "on_demand",
    "performance",
    "provisioned",
    "reserved",
)

MODEL: Final = re.compile(r"[A-Za-z0-9._:/@+-]{1,128}")
NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
ID: Final = re.compile(r"([0-9A-Za-z][0-9A-Za-z_.-]{0,63})-([0-9]{1,18})")
MAX_TOKENS: Final = 2**63 - 1


class Tokens(NamedTuple):
    """Token counts of one call, in tokens. ``None`` means not determinable, ``0`` means the source said zero.

    ``input_tokens`` is fresh input only; ``cache_write_1h_tokens`` is a subset of ``cache_write_tokens`` and
    ``reasoning_tokens`` a subset of ``output_tokens``. No other classes overlap.
    """

    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def known(self) -> bool:
        """Whether any class is known."""
        return any(getattr(self, name) is not None for name in TOKEN_CLASSES)

    @property
    def total(self) -> int | None:
        """Input + cache read + cache write + output in tokens, ``None`` where none of the four is known."""
        parts = (self.input_tokens, self.cache_read_tokens, self.cache_write_tokens, self.output_tokens)
        known = [part for part in parts if part is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Line:
    """One metered call as it is written (CONTRACTS 3). Times in epoch seconds, durations in ms, money in USD."""

    id: str
    ts: float
    vm: str
    runtime: str
    upstream: str
    wire: str
    model: str | None
    session: str
    session_source: str
    response: str | None
    tokens: Tokens
    usage: str
    outcome: str
    http_status: int | None = None
    stream: bool | None = None
    duration_ms: int | None = None
    ttft_ms: int | None = None
    service_tier: str | None = None
    reported_cost_usd: float | None = None

    @property
    def boot(self) -> str:
        """The part of ``id`` that names one start of the shim; sorts as text by start time."""
        return self.id.rpartition("-")[0]

    @property
    def seq(self) -> int:
        """The part of ``id`` that counts the lines of one boot, from 1 without a gap."""
        return int(self.id.rpartition("-")[2])


KEYS: Final = ("v", *(f.name for f in fields(Line) if f.name != "tokens"), *TOKEN_CLASSES)


class LineError(ValueError):
    """A line that is not a version-1 usage line.

    ``reason`` is one of ``torn``, ``not_json``, ``version``, ``too_long`` or ``field:<name>``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def model_or_none(value: object) -> str | None:
    """A model name that may stand in a line, else ``None``: anything outside ``MODEL`` could carry content."""
    return value if isinstance(value, str) and MODEL.fullmatch(value) else None


def tier_or_none(value: object) -> str | None:
    """A served tier of the closed vocabulary in lower case, else ``None``."""
    if not isinstance(value, str):
        return None
    tier = value.lower()
    return tier if tier in SERVICE_TIERS else None


def encode(line: Line, line_id: str | None = None) -> bytes:
    """The line as bytes, newline included; under ``line_id`` where one is given.

    Raises ``LineError('too_long')`` past ``MAX_LINE``: a field was not bounded by its maker.
    """
    value = as_object(line)
    if line_id:
        value["id"] = line_id
    return dump(value)


def dump(value: dict[str, Any]) -> bytes:
    """The bytes of a line's JSON object, newline included. Raises as ``encode`` does."""
    data = orjson.dumps(value) + b"\n"
    if len(data) > MAX_LINE:
        raise LineError("too_long")
    return data


def as_object(line: Line) -> dict[str, Any]:
    """The JSON object of a line, its keys in the order in which they are written."""
    tokens = line.tokens
    return {
        "v": VERSION,
        "id": line.id,
        "ts": round(line.ts, 3),
        "vm": line.vm,
        "runtime": line.runtime,
        "upstream": line.upstream,
        "wire": line.wire,
        "model": line.model,
        "session": line.session,
        "session_source": line.session_source,
        "response": line.response,
        "input_tokens": tokens.input_tokens,
        "cache_read_tokens": tokens.cache_read_tokens,
        "cache_write_tokens": tokens.cache_write_tokens,
        "cache_write_1h_tokens": tokens.cache_write_1h_tokens,
        "output_tokens": tokens.output_tokens,
        "reasoning_tokens": tokens.reasoning_tokens,
        "usage": line.usage,
        "outcome": line.outcome,
        "http_status": line.http_status,
        "stream": line.stream,
        "duration_ms": line.duration_ms,
        "ttft_ms": line.ttft_ms,
        "service_tier": line.service_tier,
        "reported_cost_usd": line.reported_cost_usd,
    }


def decode(data: bytes) -> Line:
    """Read one line (with its newline); unknown keys are ignored.

    Raises ``LineError`` with the reason for quarantine.
    """
    return from_object(parse(data))


def parse(data: bytes) -> dict[str, Any]:
    """The JSON object of one line, not yet validated. Raises ``LineError`` (``torn``, ``not_json``, ``too_long``)."""
    if len(data) > MAX_LINE:
        raise LineError("too_long")
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise LineError("torn" if _is_torn(data) else "not_json") from None
    if not isinstance(value, dict):
        raise LineError("not_json")
    return value


def from_object(value: dict[str, Any]) -> Line:
    """Validate the JSON object of a line. Raises ``LineError`` (``version`` or ``field:<name>``)."""
    if value.get("v") != VERSION or isinstance(value.get("v"), bool):
        raise LineError("version")
    for name, valid in FIELD_RULES:
        if not valid(value.get(name)):
            raise LineError(f"field:{name}")
    counts = [value.get(name) for name in TOKEN_CLASSES]
    for name, count in zip(TOKEN_CLASSES, counts, strict=True):
        if count is not None and not _is_count(count):
            raise LineError(f"field:{name}")
    tokens = Tokens(*counts)
    known = {name: value[name] for name, _ in FIELD_RULES if value.get(name) is not None}
    for name, default in DEFAULTS.items():
        known.setdefault(name, default)
    known.setdefault("session", value["id"])
    known.setdefault("usage", "reported" if tokens.known else "missing")
    return Line(tokens=tokens, **known)


def _is_torn(data: bytes) -> bool:
    """A line that begins as ours and breaks off, or into which the next one was written after a power cut."""
    text = data.strip()
    return text.startswith(b"{") and (not text.endswith(b"}") or b'{"v":' in text[1:])


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_TOKENS


def _is_name(value: object) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e12  # type: ignore[operator]


def _one_of(*names: str) -> Any:
    allowed = frozenset(names)
    return lambda value: isinstance(value, str) and value in allowed


def _or_none(rule: Any) -> Any:
    return lambda value: value is None or rule(value)


# What a reader accepts is wider than what the shim writes: a name of a later release's vocabulary is still a name.
FIELD_RULES: Final[tuple[tuple[str, Any], ...]] = (
    ("id", lambda value: isinstance(value, str) and ID.fullmatch(value) is not None),
    ("ts", _is_number),
    ("vm", _is_name),
    ("runtime", _is_name),
    ("upstream", _or_none(_is_name)),
    ("wire", _or_none(_is_name)),
    ("model", _or_none(lambda value: model_or_none(value) is not None)),
    ("session", _or_none(_is_name)),
    ("session_source", _or_none(_is_name)),
    ("response", _or_none(_is_name)),
    ("usage", _or_none(_one_of(*USAGE_STATES))),
    ("outcome", _or_none(_is_name)),
    ("http_status", _or_none(lambda value: type(value) is int and 0 <= value <= 999)),
    ("stream", _or_none(lambda value: isinstance(value, bool))),
    ("duration_ms", _or_none(_is_count)),
    ("ttft_ms", _or_none(_is_count)),
    ("service_tier", _or_none(_is_name)),
    ("reported_cost_usd", _or_none(_is_number)),
)
# Keys that a line of another writer may lack; a line of ours has them all.
DEFAULTS: Final = {
    "upstream": "unknown",
    "wire": "unknown",
    "model": None,
    "session_source": "gap",
    "response": None,
    "outcome": "completed",
}
