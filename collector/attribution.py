"""Which session of a token-blind runtime a usage line belongs to: pure rules over lines and the runtime's own list.

A line carries an opaque reference; the runtime's store lists sessions with the times of their assistant turns. A line
whose reference is that of a listed session belongs to it. Otherwise the session is the one whose turn follows the call,
where time and model leave exactly one. Ambiguity leaves the line under its reference and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from collector.merge import bare_model

# A runtime writes its turn when the response has ended: this soon as a rule, this late at most (ms).
SOON_MS: Final = 5_000
LATE_MS: Final = 60_000

BY_REFERENCE: Final = "reference"
BY_TIME: Final = "time"
AMBIGUOUS: Final = "ambiguous"

# Words that begin the names of models; an alias that begins with one is a model's name and not a free one.
FAMILIES: Final = re.compile(
    r"(gpt|o[1-9]|chatgpt|claude|gemini|gemma|llama|qwen|kimi|deepseek|mistral|glm|grok|command|nova|minimax)"
)


class Turn(NamedTuple):
    """One assistant turn of a session (by its number in the ledger). ``model`` is the runtime's alias."""

    ts_ms: int
    session: int
    model: str | None


class Found(NamedTuple):
    """The session of a line, ``None`` where it stays under its reference, and how that was decided."""

    session: int | None
    how: str | None


def find(start_ms: int, duration_ms: int | None, model: str | None, turns: Iterable[Turn]) -> Found:
    """The session whose turn the call made, from the turns between its start and ``LATE_MS`` after its end."""
    end = start_ms + (duration_ms or 0)
    fitting = [turn for turn in turns if possible(start_ms, end, model, turn)]
    for latest in (end + SOON_MS, end + LATE_MS):
        near = [turn for turn in fitting if turn.ts_ms <= latest]
        if near:
            return _only(near, model)
    return Found(None, None)


def possible(start_ms: int, end_ms: int, model: str | None, turn: Turn) -> bool:
    """Whether time and model let a call have made this turn."""
    return start_ms <= turn.ts_ms <= end_ms + LATE_MS and not contradicts(turn.model, model)


def _only(turns: Sequence[Turn], model: str | None) -> Found:
    for candidates in (turns, [turn for turn in turns if _names(turn.model, model)]):
        sessions = {turn.session for turn in candidates}
        if len(sessions) == 1:
            return Found(sessions.pop(), BY_TIME)
    return Found(None, AMBIGUOUS)


def contradicts(alias: str | None, model: str | None) -> bool:
    """Whether an alias is the name of another model. A free alias (``home-model``) contradicts nothing."""
    if alias is None or model is None:
        return False
    return FAMILIES.match(bare_model(alias)) is not None and not _names(alias, model)


def _names(alias: str | None, model: str | None) -> bool:
    if alias is None or model is None:
        return False
    one, other = sorted((bare_model(alias), bare_model(model)), key=len)
    return other == one or other.startswith((f"{one}-", f"{one}."))
