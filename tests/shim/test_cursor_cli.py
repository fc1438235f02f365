"""Cursor's CLI records: recorded runs, odd runs, any split, any garbage."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.cursor_cli import CursorOutput, Turn, model_name
from shim.line import MODEL, Tokens

RUNS = Path(__file__).with_name("cursor_cli")
INIT = {"type": "system", "subtype": "init", "session_id": "s-1", "model": "GPT-5"}
USAGE = {"inputTokens": 10, "outputTokens": 5, "cacheReadTokens": 3, "cacheWriteTokens": 0}
RESULT = {"type": "result", "subtype": "success", "is_error": False, "session_id": "s-1", "request_id": "r-1"}


def read(*parts: bytes) -> list[Turn]:
    output = CursorOutput()
    ended = [turn for part in parts for turn in output.feed(part)]
    return ended + output.finish()


def records(*values: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


@pytest.mark.parametrize(
    ("run", "tokens", "usage", "request_id"),
    [
        ("run1", Tokens(3000, 9000, 0, None, 120), "reported", "req-run1-1"),
        ("run2_resume", Tokens(400, 12000, 0, None, 80), "reported", "req-run2_resume-1"),
        ("run3_old_build", Tokens(), "missing", None),
    ],
)
def test_recorded_runs(run: str, tokens: Tokens, usage: str, request_id: str | None) -> None:
    (turn,) = read((RUNS / f"{run}.ndjson").read_bytes())
    assert (turn.tokens, turn.usage, turn.request_id) == (tokens, usage, request_id)
    assert (turn.model, turn.outcome, turn.streamed) == ("GPT-5", "completed", True)


@given(st.lists(st.integers(0, 700), max_size=8))
def test_any_split_gives_the_same_turns(cuts: list[int]) -> None:
    data = (RUNS / "run1.ndjson").read_bytes()
    edges = [0, *sorted(cuts), len(data)]
    assert read(*(data[a:b] for a, b in itertools.pairwise(edges))) == read(data)


@given(st.binary(max_size=300))
def test_garbage_around_records_changes_nothing(garbage: bytes) -> None:
    noise = garbage.replace(b"{", b"(") + b"\n"
    data = records(INIT, RESULT | {"usage": USAGE})
    assert read(noise, data, noise) == read(data)


@given(st.binary(max_size=500))
def test_no_output_makes_it_raise(data: bytes) -> None:
    read(data)


def test_a_json_run_is_one_record_without_a_model() -> None:
    (turn,) = read(records(RESULT | {"usage": USAGE}).strip())
    assert (turn.tokens.total, turn.model, turn.streamed) == (18, None, False)


def test_a_terminals_returns_and_colours_are_no_part_of_a_record() -> None:
    data = records(INIT, RESULT | {"usage": USAGE})
    assert read(b"\x1b[0m" + data.replace(b"\n", b"\r\n")) == read(data)


def test_each_turn_of_a_run_counts() -> None:
    data = records(INIT, RESULT | {"usage": USAGE}, {"type": "user"}, RESULT | {"usage": USAGE, "request_id": "r-2"})
    assert [turn.request_id for turn in read(data)] == ["r-1", "r-2"]


def test_a_failed_turn_keeps_its_usage() -> None:
    (turn,) = read(records(INIT, RESULT | {"is_error": True, "subtype": "error", "usage": USAGE}))
    assert (turn.outcome, turn.usage, turn.tokens.output_tokens) == ("failed", "reported", 5)


def test_a_run_cut_before_its_result_is_a_turn_without_usage() -> None:
    assert read(records(INIT, {"type": "assistant"})) == [Turn("s-1", model="GPT-5", streamed=True)]


@pytest.mark.parametrize(
    ("usage", "state"),
    [
        ({"inputTokens": 1}, "partial"),
        ({}, "missing"),
        (None, "missing"),
        ([], "missing"),
        ({"inputTokens": 0, "outputTokens": 0}, "reported"),
    ],
)
def test_what_was_not_reported_is_not_zero(usage: Any, state: str) -> None:
    (turn,) = read(records(RESULT | {"usage": usage}))
    assert turn.usage == state
    assert turn.tokens.cache_read_tokens is None


@pytest.mark.parametrize("value", [True, -1, 1.5, "n/a", None, 2**63, [], "1" * 30])
def test_a_count_that_is_none_is_not_reported(value: Any) -> None:
    (turn,) = read(records(RESULT | {"usage": USAGE | {"inputTokens": value}}))
    assert (turn.tokens.input_tokens, turn.usage) == (None, "partial")


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ("GPT-5", "GPT-5"),
        ("Auto", "Auto"),
        ("Claude 4.5 Sonnet (Thinking)", "claude-4.5-sonnet-thinking"),
        ("GPT-5.1 Codex Max High", "gpt-5.1-codex-max-high"),
        ("o3 Pro", "o3-pro"),
        ("tell me a secret", None),
        ("Gemini, please", None),
        ("claude " * 20, None),
        (7, None),
        (None, None),
    ],
)
def test_a_display_name_is_a_model_or_nothing(shown: object, name: str | None) -> None:
    assert model_name(shown) == name


@given(st.text())
def test_every_model_name_may_stand_in_a_line(shown: str) -> None:
    name = model_name(shown)
    assert name is None or MODEL.fullmatch(name)
