"""The recorded wire cases: bytes of a response beside what they must be read as.

A case's ``expect`` uses the reference's words; ``status`` stands for two fields of a line, see ``STATUS``.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import brotli
import zstandard

from shim.decode import ContentDecoder
from shim.line import model_or_none
from shim.wires import Exchange, Reading
from shim.wires.paths import model_from_path
from shim.wires.table import open_reader, outcome_of

FOLDER = Path(__file__).parent / "cases"
CASES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}

TOKENS = {
    "input": "input_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "cache_write_1h": "cache_write_1h_tokens",
    "output": "output_tokens",
    "reasoning": "reasoning_tokens",
}
STATUS: dict[str, Callable[[str, str], bool]] = {
    "ok": lambda usage, outcome: usage == "reported" and outcome == "completed",
    "partial": lambda usage, outcome: usage == "partial",
    "no_usage": lambda usage, outcome: usage == "missing",
    "error": lambda usage, outcome: outcome in ("rejected", "failed"),
}


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


ENCODE: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "deflate": raw_deflate,
}


def reads_of(case: dict[str, Any]) -> list[bytes]:
    """The decoded body in the reads it was recorded in."""
    if case.get("response_chunks_encoding") == "base64":
        return [base64.b64decode(chunk) for chunk in case["response_chunks"]]
    return [chunk.encode() for chunk in case["response_chunks"]]


def wire_bytes(case: dict[str, Any]) -> bytes:
    """The body as it is on the wire, content coding applied."""
    body = b"".join(reads_of(case))
    return ENCODE[case["response_content_encoding"]](body) if "response_content_encoding" in case else body


def declared_coding(case: dict[str, Any]) -> str:
    """The Content-Encoding header, empty where there is none."""
    said = (case.get("response_headers") or {}).get("content-encoding", "")
    return case.get("response_content_encoding", "") if case.get("response_content_encoding_declared", True) else said


def exchange_of(case: dict[str, Any]) -> Exchange:
    headers = {name.lower(): value for name, value in (case.get("response_headers") or {}).items()}
    path = case["request_path"].partition("?")[0]
    return Exchange(case.get("http_status", 200), case["response_content_type"], headers, path, case["stream"])


def read(case: dict[str, Any], reads: Iterable[bytes], *, complete: bool = True) -> Reading:
    """What the case's reader says of a decoded body."""
    reader = open_reader(case["wire"], exchange_of(case))
    for data in reads:
        reader.feed(data)
    return reader.finish(complete=complete)


def decoded(case: dict[str, Any], reads: Iterable[bytes]) -> Iterable[bytes]:
    """Decoded pieces of a body as it is on the wire."""
    decoder = ContentDecoder(declared_coding(case))
    for data in reads:
        yield from decoder.feed(data)
    yield from decoder.finish()


def cut(data: bytes, size: int) -> list[bytes]:
    """A body in reads of ``size`` bytes."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def differences(case: dict[str, Any], reading: Reading) -> list[str]:
    """Where a reading is not what the case expects; the model falls back as a line's does."""
    expect = case["expect"]
    wrong = token_differences(expect, reading)
    named = reading.model or model_from_path(case["wire"], case["request_path"]) or case["request"].get("model")
    model = model_or_none(named)
    if model != expect["model"]:
        wrong.append(f"model {model} not {expect['model']}")
    if reading.cost_usd != expect["reported_cost_usd"]:
        wrong.append(f"cost {reading.cost_usd} not {expect['reported_cost_usd']}")
    outcome = outcome_of(reading, case.get("http_status", 200), complete=True)
    if not STATUS[expect["status"]](reading.usage, outcome):
        wrong.append(f"usage {reading.usage} and outcome {outcome} are not {expect['status']}")
    extra = expect.get("extra_model_usage", [])
    if [other.model for other in reading.extra] != [other["model"] for other in extra]:
        return [*wrong, f"extra models {[other.model for other in reading.extra]}"]
    return wrong + [
        line for other, seen in zip(extra, reading.extra, strict=True) for line in token_differences(other, seen)
    ]


def token_differences(expect: dict[str, Any], reading: Reading) -> list[str]:
    pairs = [(name, getattr(reading.tokens, field), expect[name]) for name, field in TOKENS.items() if name in expect]
    return [f"{name} {seen} not {expected}" for name, seen, expected in pairs if seen != expected]
