"""The JSON object that a tap makes of a call is the one that ``shim.line`` makes of the same call's ``Line``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.line import OUTCOMES, SERVICE_TIERS, SESSION_SOURCES, USAGE_STATES, Line, Tokens, dump, encode
from shim.meter import Meter
from shim.routes import Place
from shim.tap import Tap
from shim.upstreams import Upstream
from shim.wires import Reading

METER = cast(Meter, SimpleNamespace(metering=SimpleNamespace(vm="vm-7")))
PLACE = Place(
    "picoclaw", Upstream("openai", "http", "127.0.0.1", 80), "/v1/chat/completions", "openai-chat", False, None
)
counts = st.none() | st.integers(0, 2**63 - 1)
names = st.none() | st.from_regex(r"[A-Za-z0-9._:/@+-]{1,128}", fullmatch=True)
readings = st.builds(
    Reading,
    tokens=st.builds(Tokens, counts, counts, counts, counts, counts, counts),
    usage=st.sampled_from(USAGE_STATES),
    model=names,
    service_tier=st.none() | st.sampled_from(SERVICE_TIERS),
    cost_usd=st.none() | st.floats(0, 1e9),
)


@pytest.mark.interpreted
@given(
    readings,
    st.sampled_from(OUTCOMES),
    st.none() | st.integers(100, 599),
    st.none() | st.just("r" * 24),
    st.sampled_from(SESSION_SOURCES),
    st.none() | st.booleans(),
    st.floats(0, 4e9),
)
def test_a_record_is_written_as_the_line_of_the_same_call(
    reading: Reading,
    outcome: str,
    status: int | None,
    response: str | None,
    source: str,
    stream: bool | None,
    ts: float,
) -> None:
    tap = Tap(METER, "picoclaw", PLACE)
    tap._session, tap._source, tap._stream, tap._model, tap._ts = "s" * 24, source, stream, "asked", ts
    record: dict[str, Any] = tap._record(reading, outcome, status, response)
    line = Line(
        id="b-1",
        ts=ts,
        vm="vm-7",
        runtime="picoclaw",
        upstream="openai",
        wire="openai-chat",
        model=reading.model or "asked",
        session="s" * 24,
        session_source=source,
        response=response,
        tokens=reading.tokens,
        usage=reading.usage,
        outcome=outcome,
        http_status=status,
        stream=stream,
        duration_ms=record["duration_ms"],
        ttft_ms=None,
        service_tier=reading.service_tier,
        reported_cost_usd=reading.cost_usd,
    )
    record["id"] = "b-1"
    assert dump(record) == encode(line)
