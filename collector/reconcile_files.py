"""Usage exports of OpenAI, Anthropic and OpenRouter given as files: JSON as their usage APIs answer, or CSV as their
consoles download it.

Days are the exporter's, which are UTC. A table says for each vendor under which names each number may stand, so both
kinds of file go one way; a file that has none of a vendor's names is refused rather than read as empty.
Formats: https://platform.openai.com/docs/api-reference/usage ,
https://docs.claude.com/en/api/admin-api/usage-cost/get-messages-usage-report ,
https://openrouter.ai/docs/api-reference/analytics/get-activity .
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

from collector.money import to_pico
from collector.reconcile import Item, ReconcileError
from shim.line import Tokens

MAX_BYTES: Final = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Format:
    """Where a vendor's numbers stand: for each, the names under which it may, in JSON and CSV; dots go into objects.

    ``input_includes``: the classes that the vendor's input contains. ``billed`` is in USD.
    """

    day: tuple[str, ...]
    model: tuple[str, ...]
    calls: tuple[str, ...]
    input: tuple[str, ...]
    cache_read: tuple[str, ...]
    cache_write: tuple[str, ...]
    cache_write_1h: tuple[str, ...]
    output: tuple[str, ...]
    billed: tuple[str, ...]
    input_includes: tuple[str, ...] = ()
    event: bool = False


FORMATS: Final[Mapping[str, Format]] = {
    "openai": Format(
        day=("start_time_iso", "start_time", "date"),
        model=("model",),
        calls=("num_model_requests", "num_requests"),
        input=("input_tokens",),
        cache_read=("input_cached_tokens",),
        cache_write=("input_cache_write_tokens",),
        cache_write_1h=(),
        output=("output_tokens",),
        billed=(),
        input_includes=("cache_read", "cache_write"),
    ),
    "anthropic": Format(
        day=("starting_at", "usage_date_utc"),
        model=("model", "model_version"),
        calls=(),
        input=("uncached_input_tokens", "usage_input_tokens_no_cache"),
        cache_read=("cache_read_input_tokens", "usage_input_tokens_cache_read"),
        cache_write=("cache_creation.ephemeral_5m_input_tokens", "usage_input_tokens_cache_write_5m"),
        cache_write_1h=("cache_creation.ephemeral_1h_input_tokens", "usage_input_tokens_cache_write_1h"),
        output=("output_tokens", "usage_output_tokens"),
        billed=(),
    ),
    "openrouter": Format(
        day=("date", "created_at"),
        model=("model", "model_permaslug"),
        calls=("requests",),
        input=("prompt_tokens", "tokens_prompt"),
        cache_read=(),
        cache_write=(),
        cache_write_1h=(),
        output=("completion_tokens", "tokens_completion"),
        billed=("usage", "cost_total"),
        input_includes=("cache_read", "cache_write"),
    ),
}


def read(path: Path, vendor: str) -> list[Item]:
    """The items of an export. Raises ``ReconcileError`` naming file and what is wrong."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ReconcileError(f"{path}: is larger than {MAX_BYTES // 2**20} MiB; export a shorter span.")
        data = path.read_bytes()
    except OSError as error:
        raise ReconcileError(f"{path}: cannot be read ({error.strerror}).") from error
    return parse(data, vendor, str(path))


def parse(data: bytes, vendor: str, name: str = "export") -> list[Item]:
    """The items of an export's bytes; ``name`` is how errors call it. Raises ``ReconcileError``."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReconcileError(f"{name}: is not UTF-8.") from error
    if not text.strip():
        raise ReconcileError(f"{name}: is empty.")
    rows = _json_rows(text, name) if text.lstrip()[0] in "[{" else csv.DictReader(io.StringIO(text))
    return list(_items(rows, FORMATS[vendor], vendor, name))


def _items(rows: Iterable[Mapping[str, Any]], form: Format, vendor: str, name: str) -> Iterator[Item]:
    for number, row in enumerate(rows, 1):
        if not any(_find(row, (field,)) is not None for field in (*form.input, *form.output)):
            raise ReconcileError(f"{name}: row {number} has no token numbers of an export by {vendor}.")
        try:
            yield _item(row, form)
        except (ValueError, InvalidOperation) as error:
            raise ReconcileError(f"{name}: row {number}: {error}.") from error


def _item(row: Mapping[str, Any], form: Format) -> Item:
    counts = {field: _count(row, getattr(form, field)) for field in ("input", "cache_read", "output")}
    five, hour = _count(row, form.cache_write), _count(row, form.cache_write_1h)
    write = None if five is None and hour is None else (five or 0) + (hour or 0)
    fresh, known = counts["input"], {"cache_read": counts["cache_read"], "cache_write": write}
    if fresh is not None:
        fresh -= sum(known[part] or 0 for part in form.input_includes)
        if fresh < 0:
            raise ValueError("its cached input is larger than its input")
    billed = _find(row, form.billed)
    calls = _count(row, form.calls)
    return Item(
        day=_day(_find(row, form.day)),
        model=str(_find(row, form.model) or "unknown"),
        tokens=Tokens(fresh, counts["cache_read"], write, hour, counts["output"]),
        calls=1 if calls is None and "created_at" in row else calls,
        event="created_at" in row,
        billed_pico=None if billed is None else to_pico(Decimal(str(billed))),
    )


def _json_rows(text: str, name: str) -> Iterator[Mapping[str, Any]]:
    """Rows of one page, a list of pages or of rows; a bucket's rows inherit its times."""
    try:
        found = json.loads(text, parse_float=Decimal)
    except ValueError:
        found = _json_lines(text, name)
    for one in found if isinstance(found, list) else [found]:
        if not isinstance(one, dict):
            raise ReconcileError(f"{name}: is not a usage export.")
        for row in one.get("data", [one]):
            results = row.get("results", [row])
            outer = {key: value for key, value in row.items() if key != "results"}
            yield from ({**outer, **result} for result in results)


def _json_lines(text: str, name: str) -> list[Any]:
    try:
        return [json.loads(line, parse_float=Decimal) for line in text.splitlines() if line.strip()]
    except ValueError:
        raise ReconcileError(f"{name}: is neither JSON nor CSV.") from None


def _find(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first value that stands under one of the names; an empty cell is none."""
    for name in names:
        value: Any = row
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None and value != "":
            return value
    return None


def _count(row: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    value = _find(row, names)
    if value is None:
        return None
    number = Decimal(str(value).replace(",", ""))
    if number != number.to_integral_value() or number < 0:
        raise ValueError(f"{names[0]} is not a number of tokens")
    return int(number)


def _day(value: object) -> date:
    if isinstance(value, int) or (isinstance(value, str) and value.isdigit()):
        return datetime.fromtimestamp(int(value), UTC).date()
    if not isinstance(value, str):
        raise ValueError("it has no day")
    moment = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
    return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date()
