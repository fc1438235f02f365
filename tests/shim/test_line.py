"""The line contract: what is written, what every reader accepts, and what goes to quarantine with which reason."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.line import (
    KEYS,
    MAX_LINE,
    OUTCOMES,
    SESSION_SOURCES,
    TOKEN_CLASSES,
    USAGE_STATES,
    WIRES,
    Line,
    LineError,
    Tokens,
    decode,
    encode,
    model_or_none,
    tier_or_none,
)

GOLDEN = (
    b'{"v":1,"id":"20261130T200000123Z4k7q-17","ts":1796068800.123,"vm":"vm-7","runtime":"picoclaw",'
    b'"upstream":"openai","wire":"openai-chat","model":"gpt-5-mini","session":"s0a1b2","session_source":"conversation",'
    b'"response":"r9f8e7","input_tokens":176,"cache_read_tokens":1024,"cache_write_tokens":null,'
    b'"cache_write_1h_tokens":null,"output_tokens":150,"reasoning_tokens":0,"usage":"reported","outcome":"completed",'
    b'"http_status":200,"stream":true,"duration_ms":1200,"ttft_ms":340,"service_tier":"default","reported_cost_usd":null}\n'
)
LINE = Line(
    id="20261130T200000123Z4k7q-17",
    ts=1796068800.123,
    vm="vm-7",
    runtime="picoclaw",
    upstream="openai",
    wire="openai-chat",
    model="gpt-5-mini",
    session="s0a1b2",
    session_source="conversation",
    response="r9f8e7",
    tokens=Tokens(176, 1024, None, None, 150, 0),
    usage="reported",
    outcome="completed",
    http_status=200,
    stream=True,
    duration_ms=1200,
    ttft_ms=340,
    service_tier="default",
)
counts = st.none() | st.integers(0, 2**63 - 1)


def changed(**values: object) -> bytes:
    return json.dumps(json.loads(GOLDEN) | values).encode() + b"\n"


def reason(data: bytes) -> str:
    with pytest.raises(LineError) as error:
        decode(data)
    return error.value.reason


def test_the_golden_line_is_written_and_read_for_ever() -> None:
    assert encode(LINE) == GOLDEN
    assert decode(GOLDEN) == LINE


def test_every_key_of_the_contract_is_written_in_every_line() -> None:
    assert set(json.loads(GOLDEN)) == set(KEYS)


def test_boot_and_seq_are_the_two_parts_of_the_id() -> None:
    assert (LINE.boot, LINE.seq) == ("20261130T200000123Z4k7q", 17)


@given(st.builds(Tokens, counts, counts, counts, counts, counts, counts), st.sampled_from(WIRES))
def test_what_is_written_is_read_back_equal(tokens: Tokens, wire: str) -> None:
    line = replace(LINE, tokens=tokens, wire=wire)
    assert decode(encode(line)) == line


def test_the_longest_line_the_shim_can_write_fits() -> None:
    huge = 2**63 - 1
    line = replace(
        LINE,
        id="b" * 40 + "-" + "9" * 18,
        vm="v" * 64,
        upstream="u" * 32,
        wire=max(WIRES, key=len),
        model="m" * 128,
        session="s" * 32,
        session_source=max(SESSION_SOURCES, key=len),
        response="r" * 32,
        tokens=Tokens(huge, huge, huge, huge, huge, huge),
        usage=max(USAGE_STATES, key=len),
        outcome=max(OUTCOMES, key=len),
        duration_ms=10**12,
        ttft_ms=10**12,
        reported_cost_usd=123456.123456789,
    )
    assert len(encode(line)) <= MAX_LINE


def test_unknown_keys_are_ignored() -> None:
    assert decode(changed(later="news", other=[1])) == LINE


def test_a_name_of_a_later_vocabulary_is_still_read() -> None:
    assert decode(changed(wire="openai-realtime")).wire == "openai-realtime"


def test_a_line_with_the_needed_keys_alone_is_read() -> None:
    line = decode(b'{"v":1,"id":"b-1","ts":1,"vm":"x","runtime":"cursor","output_tokens":5}\n')
    assert (line.tokens.output_tokens, line.usage, line.model) == (5, "reported", None)


@pytest.mark.parametrize("name", TOKEN_CLASSES)
@pytest.mark.parametrize("value", [-1, 1.5, "12", True, [1], 2**63])
def test_a_token_class_that_is_no_count_goes_to_quarantine(name: str, value: object) -> None:
    assert reason(changed(**{name: value})) == f"field:{name}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", "x"),
        ("id", None),
        ("ts", "now"),
        ("vm", "a b"),
        ("runtime", None),
        ("model", "say hello"),
        ("usage", "all"),
    ],
)
def test_a_field_outside_its_rule_is_named(name: str, value: object) -> None:
    assert reason(changed(**{name: value})) == f"field:{name}"


@pytest.mark.parametrize("version", [None, 2, "1", True])
def test_another_version_is_refused(version: object) -> None:
    assert reason(changed(v=version)) == "version"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (GOLDEN[:100], "torn"),
        (GOLDEN[:100] + b"\n", "torn"),
        (b"hello\n", "not_json"),
        (b"[1]\n", "not_json"),
        (b"\n", "not_json"),
        (GOLDEN[:50] + GOLDEN, "torn"),
        (b'{"v":1,"x":"' + b"y" * MAX_LINE + b'"}\n', "too_long"),
    ],
)
def test_what_is_no_line_is_told_apart(data: bytes, expected: str) -> None:
    assert reason(data) == expected


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_raise_anything_else(data: bytes) -> None:
    with suppress(LineError):
        decode(data)


@pytest.mark.parametrize("name", ["gpt-5", "openai/gpt-5-mini", "meta-llama/Llama-3.3:free", "anthropic.claude-v2:1"])
def test_model_names_of_providers_pass(name: str) -> None:
    assert model_or_none(name) == name


@pytest.mark.parametrize("name", ["", "my secret plan", "a" * 129, "naïve", "x\n", None, 5])
def test_anything_else_is_no_model(name: object) -> None:
    assert model_or_none(name) is None


def test_tiers_are_a_closed_vocabulary() -> None:
    assert (tier_or_none("Priority"), tier_or_none("my words"), tier_or_none(None)) == ("priority", None, None)


def test_total_adds_the_four_disjoint_classes_and_knows_nothing_of_nothing() -> None:
    assert Tokens(1, 2, 4, 3, 8, 5).total == 15
    assert Tokens(reasoning_tokens=3).total is None
    assert not Tokens().known
