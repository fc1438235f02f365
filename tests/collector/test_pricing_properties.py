"""What holds for the price of any record whatever: no exception, and no figure that claims more than is known."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.honesty import CAVEATS, REASONS, UNBILLED_OUTCOMES
from collector.providers import PROVIDERS, RUNTIME_PROVIDERS
from collector.record import GRAINS, MODEL_SOURCES, Record
from shim.line import OUTCOMES, SERVICE_TIERS, USAGE_STATES, Tokens
from tests.collector.priced import NOON, PRICER

MODELS = [
    None,
    "claude-sonnet-4-5",
    "claude-sonnet-4-5-20250929",
    "anthropic/claude-haiku-4.5",
    "openai/gpt-5.4",
    "gpt-5",
    "models/gemini-2.5-pro",
    "deepseek-v4-flash",
    "kimi-k2-turbo-preview",
    "sonar-deep-research",
    "text-embedding-3-small",
    "qwen3:8b",
    "gpt-oss:20b-cloud",
    "acme-1",
]
counts = st.none() | st.integers(0, 300_000) | st.integers(0, 2**63 - 1)
names = st.text("abc/:.-@0123456789", min_size=1, max_size=20)
records = st.builds(
    Record,
    runtime=st.sampled_from(["picoclaw", "opencode", "aider", *RUNTIME_PROVIDERS]),
    key=st.just("k"),
    session_id=st.just("s"),
    ts=st.floats(allow_nan=True, allow_infinity=True) | st.floats(NOON - 10**8, NOON),
    tokens=st.builds(Tokens, counts, counts, counts, counts, counts, counts),
    model=st.sampled_from(MODELS) | names,
    model_source=st.sampled_from(MODEL_SOURCES),
    provider=st.none() | st.sampled_from([*PROVIDERS, "acme"]),
    grain=st.sampled_from(GRAINS),
    vendor_pico=st.none() | st.none() | st.integers(0, 10**20),
    vendor_basis=st.sampled_from(["billed", "runtime_price"]),
    caveat=st.none() | st.sampled_from(["rounded", "vendor_estimate"]),
    local=st.booleans(),
    acu_micro=st.none() | st.none() | st.integers(0, 10**9),
    service_tier=st.none() | st.sampled_from(SERVICE_TIERS),
    usage=st.sampled_from(USAGE_STATES),
    outcome=st.sampled_from(OUTCOMES),
)
upstreams = st.none() | st.sampled_from(["anthropic", "openai", "openrouter", "ollama", "cursor", "my-gateway"])


@settings(max_examples=500, deadline=None)
@given(records, upstreams)
def test_a_figure_claims_no_more_than_is_known(record, upstream):
    priced = PRICER.price(record, upstream)
    known = priced.cost_pico is not None
    assert known == (priced.status in ("exact", "estimated", "partial")) == (priced.reason is None)
    assert known == (priced.source is not None)
    assert priced.reason is None or priced.reason in REASONS
    assert set((priced.caveat or "").split(",")) - {""} <= set(CAVEATS)
    assert (priced.status == "exact") <= (priced.caveat is None)
    assert (priced.status == "estimated") <= (priced.caveat is not None)
    assert not known or 0 <= priced.cost_pico < 2**63


@settings(max_examples=500, deadline=None)
@given(records, upstreams)
def test_a_zero_rests_on_evidence(record, upstream):
    priced = PRICER.price(record, upstream)
    if priced.cost_pico == 0:
        local = record.local or upstream == "ollama"
        assert record.vendor_pico == 0 or record.acu_micro == 0 or local or (priced.card and not record.tokens.total)


@settings(max_examples=300, deadline=None)
@given(records, upstreams)
def test_only_a_refused_call_without_usage_counts_nowhere(record, upstream):
    priced = PRICER.price(record, upstream)
    refused = record.outcome in UNBILLED_OUTCOMES and not record.tokens.known
    assert priced.counted or (refused and priced.reason == "not_billed")


@settings(max_examples=300, deadline=None)
@given(records, st.sampled_from(["input_tokens", "cache_read_tokens", "output_tokens"]))
def test_what_is_not_known_never_makes_a_figure_better(record, name):
    """Of a model that has a rate for every class; where a class has none, not having it spares a caveat."""
    record = msgspec.structs.replace(
        record, vendor_pico=None, acu_micro=None, local=False, model="claude-sonnet-4-5", provider="anthropic"
    )
    order = ("exact", "estimated", "partial", "tokens_only", "unavailable")
    less = msgspec.structs.replace(record, tokens=record.tokens._replace(**{name: None}))
    if PRICER.price(record).reason == "bad_usage":
        return
    assert order.index(PRICER.price(less).status) >= order.index(PRICER.price(record).status)
