"""The fast way from bytes to a priced call says exactly what the careful ways say: the contract and the pricer."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.lines import NAMES, LineReader
from collector.money import to_pico
from collector.quotes import Quotes, kind_of
from collector.record import Record
from shim.line import TOKEN_CLASSES, LineError, Tokens, decode
from tests.collector.priced import PRICER

READER = LineReader()
COUNTS = st.none() | st.integers(0, 300_000) | st.sampled_from((0, 1, 200_000, 200_001, 10**9 + 1))
CALLS = st.sampled_from(
    (
        ("openai", "gpt-5-mini-2025-08-07"), ("anthropic", "claude-sonnet-4-5-20250929"), ("gemini", "gemini-2.5-pro"),
        ("deepseek", "deepseek-chat"), ("openrouter", "anthropic/claude-sonnet-4.5"), ("openai", None),
        ("openai", "nobody-knows"), ("ollama", "llama3"), ("openai", "gpt-4o"),
    )
)  # fmt: skip


@st.composite
def objects(draw):
    upstream, model = draw(CALLS)
    return {
        "v": 1, "id": f"20260528T202640Z-5f2c9a-{draw(st.integers(0, 10**6))}",
        "ts": round(draw(st.floats(1_700_000_000, 1_800_000_000)), 3), "vm": "vm-1", "runtime": "picoclaw",
        "upstream": upstream, "wire": "openai-chat", "model": model, "session": "s1", "session_source": "gap",
        "response": draw(st.none() | st.just("r1")), **{name: draw(COUNTS) for name in TOKEN_CLASSES},
        "usage": draw(st.sampled_from(("reported", "partial", "missing"))),
        "outcome": draw(st.sampled_from(("completed", "rejected", "interrupted"))), "http_status": 200, "stream": True,
        "duration_ms": 5, "ttft_ms": None, "service_tier": draw(st.sampled_from((None, "default", "flex", "batch"))),
        "reported_cost_usd": draw(st.none() | st.none() | st.sampled_from((0, 0.25))),
    }  # fmt: skip


SPOILT = st.sampled_from(
    (-1, 1.0, True, "1", None, [], {}, "a b", "", "x" * 129, 2**63, 1e13, "naïve", "1_0", float("1e300"))
)


@settings(max_examples=300, deadline=None)
@given(
    objects(),
    st.sampled_from(("v", "id", "boot", "form", "extra")) | st.sampled_from(NAMES + TOKEN_CLASSES),
    SPOILT,
    st.booleans(),
)
def test_the_fast_reader_accepts_and_refuses_what_the_contract_does(value, key, spoilt, spoil):
    READER.read(orjson.dumps(value))  # from now on its names are known
    if spoil:
        value[key] = spoilt
    data = orjson.dumps(value)
    try:
        told = decode(data + b"\n")
    except LineError as error:
        with pytest.raises(LineError, match=f"^{error.reason}$"):
            READER.read(data)
        return
    call = READER.read(data)
    assert (call.boot, call.seq, call.ts, call.session) == (told.boot, told.seq, told.ts, told.session)
    assert call.tokens == told.tokens
    assert all(getattr(call, name) == getattr(told, name) for name in (*NAMES, "response", "stream", "http_status"))


@settings(max_examples=300, deadline=None)
@given(st.lists(objects(), min_size=1, max_size=12))
def test_a_quote_is_what_the_pricer_says(values):
    quotes = Quotes(PRICER)
    for value in values * 2:
        call = READER.read(orjson.dumps(value))
        counts = [value[name] for name in TOKEN_CLASSES]
        known = tuple(None if count is None else min(count, 1) for count in counts)
        cost, quote = quotes.price(call, known, tuple(count or 0 for count in counts))
        stated = value["reported_cost_usd"]
        record = Record(
            "picoclaw", call.id, "s1", call.ts, Tokens(*counts), call.model, source="log", usage=call.usage,
            outcome=call.outcome, service_tier=call.service_tier,
            vendor_pico=None if stated is None else to_pico(stated), vendor_basis=None if stated is None else "billed",
        )  # fmt: skip
        priced = PRICER.price(record, call.upstream)
        assert (cost, quote.kind) == (priced.cost_pico, kind_of(call.usage, call.outcome, priced))
        assert quote.rates == (priced.card.data if priced.card else None)
