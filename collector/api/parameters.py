"""What a question may be narrowed by: one table, from which requests are read and the OpenAPI document is made.

A parameter that is unknown, given twice or outside its rule is an error that names it and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from collector import windows
from collector.rows import SORTS, Filter, Page

MAX_LIMIT: Final = 1000
MAX_TEXT: Final = 256
BREAKDOWNS: Final = ("runtime", "model")
CURSOR: Final = re.compile(r"[A-Za-z0-9_=.:-]{1,1024}")


class ParameterError(ValueError):
    """A request that cannot be answered: ``name`` of the parameter and a sentence with what is allowed."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter: help, JSON schema, and ``check`` turning text into a value (``ValueError`` if it cannot)."""

    name: str
    help: str
    schema: dict[str, Any]
    check: Callable[[str], Any]


def _text(value: str) -> str:
    if not 0 < len(value) <= MAX_TEXT or not value.isprintable():
        raise ValueError(f"1 to {MAX_TEXT} printable characters")
    return value


def _one_of(*names: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return value

    return check


def _limit(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 6 and 1 <= int(value) <= MAX_LIMIT):
        raise ValueError(f"a whole number from 1 to {MAX_LIMIT}")
    return int(value)


def _date(value: str) -> str:
    try:
        windows.between(value, None)
    except ValueError:
        raise ValueError("a date YYYY-MM-DD") from None
    return value


def _cursor(value: str) -> str:
    if not CURSOR.fullmatch(value):
        raise ValueError("the next_cursor of the page before")
    return value


TEXT: Final = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}
DATE: Final = {"type": "string", "format": "date"}
PARAMETERS: Final = {
    parameter.name: parameter
    for parameter in (
        Parameter(
            "window", "A named window of local days.", {"enum": list(windows.WINDOWS)}, _one_of(*windows.WINDOWS)
        ),
        Parameter("since", "First local day, included.", DATE, _date),
        Parameter("until", "Last local day, included.", DATE, _date),
        Parameter("runtime", "Only this runtime.", TEXT, _text),
        Parameter("model", "Only this model.", TEXT, _text),
        Parameter("vm", "Only this VM.", TEXT, _text),
        Parameter("session_id", "The session's own id.", TEXT, _text),
        Parameter("limit", "Most rows of one page.", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}, _limit),
        Parameter("cursor", "Where the page before ended.", {"type": "string", "pattern": CURSOR.pattern}, _cursor),
        Parameter("sort", "Order of the sessions.", {"enum": list(SORTS)}, _one_of(*SORTS)),
        Parameter("by", "Break each day down.", {"enum": list(BREAKDOWNS)}, _one_of(*BREAKDOWNS)),
    )
}


def read(query: Iterable[tuple[str, str]], allowed: tuple[str, ...]) -> dict[str, Any]:
    """The checked values of a query string. Raises ``ParameterError``."""
    values: dict[str, Any] = {}
    for name, text in query:
        if name not in allowed:
            raise ParameterError(
                name, f"{name[:40]!r} is not a parameter here; allowed: {', '.join(allowed) or 'none'}"
            )
        if name in values:
            raise ParameterError(name, f"{name} is given twice; give it once")
        try:
            values[name] = PARAMETERS[name].check(text)
        except ValueError as error:
            raise ParameterError(name, f"{name} must be {error}") from None
    return values


def filter_of(values: dict[str, Any], named: Callable[[str], windows.Window]) -> Filter:
    """The filter that checked values ask for; ``named`` gives a window by name. Raises ``ParameterError``."""
    if "window" in values and ("since" in values or "until" in values):
        raise ParameterError("window", "window and since/until exclude each other; give one of them")
    try:
        span = (
            named(values["window"]) if "window" in values else windows.between(values.get("since"), values.get("until"))
        )
    except ValueError as error:
        raise ParameterError("since", str(error)) from None
    return Filter(span, values.get("runtime"), values.get("model"), values.get("vm"))


def page_of(values: dict[str, Any]) -> Page:
    """The page of sessions that checked values ask for."""
    return Page(values.get("limit", Page().limit), values.get("cursor"), values.get("sort", Page().sort))
