"""The records of Cursor's CLI (``cursor-agent -p --output-format json|stream-json``): bytes in, turns out.

Each turn ends in one ``result`` record with the turn's own usage, its four counts disjoint, so turns of a resumed chat
add up. Builds before mid-2026 leave ``usage`` out, and a run that is killed never gets to its ``result``: both are
turns whose usage is missing, not zero. The model is a display name and stands only in the ``system`` record.
Output format: https://cursor.com/docs/cli/reference/output-format; usage: cc-connect#1810, token-monitor#518.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

from shim.framing.ndjson import LineSplitter
from shim.line import MAX_TOKENS, Tokens, model_or_none

# Line key <- key of the record's ``usage``.
COUNTS: Final = {
    "input_tokens": "inputTokens",
    "cache_read_tokens": "cacheReadTokens",
    "cache_write_tokens": "cacheWriteTokens",
    "output_tokens": "outputTokens",
}
# A display name with spaces becomes Cursor's own kind of id ("Claude 4.5 Sonnet (Thinking)" is
# "claude-4.5-sonnet-thinking") if it begins as a model's name does; anything else could be content and is null.
MODEL_FAMILIES: Final = re.compile(
    r"(?:auto|claude|codex|composer|cursor|deepseek|gemini|glm|gpt|grok|haiku|kimi|llama|minimax|mistral|o[1-9]|opus"
    r"|qwen|sonnet)\b"
)
_DISPLAY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9. ()-]{0,47}")
_ANSI: Final = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. ``session_id``, ``request_id``: as Cursor names them, to be hashed by the caller, never written.

    ``usage``: ``reported``, ``partial`` or ``missing``. ``outcome``: ``completed`` or ``failed`` as the record says,
    ``None`` where the turn never came to its result. ``streamed``: records came before the result.
    ``duration_ms``: as the record says.
    """

    session_id: str | None
    request_id: str | None = None
    model: str | None = None
    tokens: Tokens = Tokens()
    usage: str = "missing"
    outcome: str | None = None
    streamed: bool = False
    duration_ms: int | None = None


class CursorOutput:
    """The standard output of one run. Output that is no record (plain text, a help page) has no turns."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._session: str | None = None
        self._model: str | None = None
        self._open = False

    def feed(self, data: bytes) -> list[Turn]:
        """Turns that ended within ``data``; any split, never raises."""
        return self._turns(self._lines.feed(data))

    def finish(self) -> list[Turn]:
        """Turns in what is left, and last the one that began and never came to its result."""
        ended = self._turns(self._lines.finish())
        return [*ended, Turn(self._session, model=self._model, streamed=True)] if self._open else ended

    def _turns(self, block: bytes) -> list[Turn]:
        found = []
        for line in block.split(b"\n"):
            record = _record(line)
            kind = record.get("type")
            if kind == "result":
                found.append(self._result(record))
                self._open = False
            elif kind == "system" and record.get("subtype") == "init":
                self._open = True
                self._model = model_name(record.get("model"))
                self._session = _text(record.get("session_id"))
            elif kind == "user":
                self._open = True  # a further turn of one run
        return found

    def _result(self, record: dict[str, Any]) -> Turn:
        tokens = _tokens(record.get("usage"))
        both = tokens.input_tokens is not None and tokens.output_tokens is not None
        failed = record.get("is_error") is True or record.get("subtype", "success") != "success"
        return Turn(
            session_id=_text(record.get("session_id")) or self._session,
            request_id=_text(record.get("request_id")),
            model=model_name(record.get("model")) or self._model,
            tokens=tokens,
            usage="reported" if both else "partial" if tokens.known else "missing",
            outcome="failed" if failed else "completed",
            streamed=self._open,
            duration_ms=_count(record.get("duration_ms")),
        )


def model_name(value: object) -> str | None:
    """A display name as it may stand in a line: itself where it fits, a slug where its family is known, else null."""
    if not isinstance(value, str):
        return None
    if " " not in value:
        return model_or_none(value)
    if not _DISPLAY_NAME.fullmatch(value) or not MODEL_FAMILIES.match(value.lower()):
        return None
    return model_or_none("-".join(re.findall(r"[a-z0-9.]+", value.lower())))


def _record(line: bytes) -> dict[str, Any]:
    """The JSON object of a line, empty where it is none; a terminal's colours and carriage returns are dropped."""
    text = line.strip()
    if b"\x1b" in text:
        text = _ANSI.sub(b"", text)
    if not text.startswith(b"{"):
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _tokens(usage: object) -> Tokens:
    if not isinstance(usage, dict):
        return Tokens()
    return Tokens(**{name: _count(usage.get(key)) for name, key in COUNTS.items()})


def _count(value: object) -> int | None:
    """A counter as it may be reported: a whole number from 0; a float without a fraction and digits as text count."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
