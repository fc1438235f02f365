"""Counts, reports and how overlapping classes come apart, as rules that hold for every number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.line import MAX_TOKENS
from shim.wires.counts import charge, count, first_count, inclusive, loads, usage_state

numbers = st.integers(0, 10_000)
maybe = st.none() | numbers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (128, 128),
        (128.0, 128),
        (3.2e1, 32),
        ("128", 128),
        ("007", 7),
        (MAX_TOKENS, MAX_TOKENS),
        (MAX_TOKENS + 1, None),
        (str(MAX_TOKENS + 1), None),
        (2.0**63, None),
        (-1, None),
        (-0.0, 0),
        (1.5, None),
        (float("inf"), None),
        (float("nan"), None),
        (True, None),
        (False, None),
        (None, None),
        ("", None),
        ("n/a", None),
        ("-1", None),
        ("1.0", None),
        (" 1", None),
        ("٣", None),
        ([], None),
        ({}, None),
    ],
)
def test_what_is_a_count(value: object, expected: int | None) -> None:
    assert count(value) == expected
    assert type(count(value)) in (int, type(None))


@given(p=numbers, c=numbers, t=maybe, k=maybe, w=maybe, r=maybe)
def test_classes_are_never_negative_and_subsets_hold(
    p: int, c: int, t: int | None, k: int | None, w: int | None, r: int | None
) -> None:
    tokens = inclusive(p, c, t, cached=k, written=w, reasoning=r)
    assert tokens.input_tokens is not None
    assert tokens.output_tokens is not None
    assert 0 <= tokens.input_tokens <= p
    assert tokens.output_tokens >= max(c, r or 0)
    assert (tokens.cache_read_tokens, tokens.cache_write_tokens, tokens.reasoning_tokens) == (k, w, r)


@given(p=numbers, c=numbers, t=maybe, k=maybe, w=maybe, r=maybe)
def test_usage_never_exceeds_what_the_body_states(
    p: int, c: int, t: int | None, k: int | None, w: int | None, r: int | None
) -> None:
    tokens = inclusive(p, c, t, cached=k, written=w, reasoning=r)
    assert tokens.total is not None
    assert tokens.total <= max(t or 0, p + (k or 0) + (w or 0) + max(c, r or 0))


@given(p=numbers, c=numbers, r=st.integers(1, 999))
def test_a_total_that_adds_reasoning_puts_it_outside_completion(p: int, c: int, r: int) -> None:
    assert inclusive(p, c, p + c + r, reasoning=r).output_tokens == c + r


@given(p=numbers, c=numbers, k=st.integers(1, 999))
def test_a_total_that_adds_the_cache_puts_it_outside_the_prompt(p: int, c: int, k: int) -> None:
    tokens = inclusive(p, c, p + k + c, cached=k)
    assert (tokens.input_tokens, tokens.cache_read_tokens, tokens.output_tokens) == (p, k, c)


@given(p=numbers, c=numbers, hidden=st.integers(1, 999))
def test_a_total_above_both_is_hidden_thinking(p: int, c: int, hidden: int) -> None:
    tokens = inclusive(p, c, p + c + hidden)
    assert (tokens.output_tokens, tokens.reasoning_tokens) == (c + hidden, None)


@pytest.mark.parametrize(("prompt", "completion"), [(None, 3), (3, None), (None, None)])
def test_a_missing_side_stays_missing(prompt: int | None, completion: int | None) -> None:
    tokens = inclusive(prompt, completion, 99, cached=1, reasoning=2)
    assert (tokens.input_tokens is None, tokens.output_tokens is None) == (prompt is None, completion is None)


@pytest.mark.parametrize(
    ("prompt", "completion", "ended", "generating", "state"),
    [
        (1, 2, True, True, "reported"),
        (0, 0, True, True, "reported"),
        (1, 2, False, True, "partial"),
        (1, None, True, True, "partial"),
        (None, 2, True, True, "partial"),
        (1, None, True, False, "reported"),
        (None, None, True, True, "missing"),
        (None, None, False, True, "missing"),
    ],
)
def test_usage_state(prompt: int | None, completion: int | None, ended: bool, generating: bool, state: str) -> None:
    assert usage_state(inclusive(prompt, completion, None), ended=ended, generating=generating) == state


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        ({"cost": 0.00095}, 0.00095),
        ({"cost": 0, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.5}}, 0.0),
        ({"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}, 0.51),
        ({"cost": 0, "is_byok": True}, None),
        ({"cost_in_usd_ticks": 25_000_000_000}, 2.5),
        ({"cost": "0.5"}, None),
        ({"cost": {"total_cost": 1}}, None),
        ({"cost": -1}, None),
        ({"cost": True}, None),
        ({"cost": float("inf")}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_charge_is_what_the_wire_states(usage: object, usd: float | None) -> None:
    assert charge(usage) == usd


def test_one_number_under_several_names_is_read_once_and_zero_is_a_number() -> None:
    assert first_count({"a": {"b": 0}, "c": 5}, (("x",), ("a", "b"), ("c",))) == 0


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": 1e400, "b": 2}', {"a": float("inf"), "b": 2}),
        (b'{"a": "\\ud800", "b": 2}', {"a": "\ud800", "b": 2}),
        (b'{"a": "\xff", "b": 2}', {"a": "\ufffd", "b": 2}),
        (b'{"a": ' + b"9" * 5000 + b', "b": 2}', {"a": None, "b": 2}),
        (b"ping", None),
        (b'{"a": ', None),
        (b"[" * 100_000, None),
    ],
)
def test_one_odd_value_does_not_lose_the_ones_beside_it(data: bytes, value: object) -> None:
    assert loads(data) == value
