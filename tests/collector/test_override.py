"""The operator's price file: applied before the book, on its dates, and never half understood."""

from pathlib import Path

import pytest

from collector.override import load, parse
from collector.pricelists import pricer
from collector.pricing import Pricer
from collector.settings import Settings
from shim.names import ConfigError
from tests.collector.priced import BOOK, at, line, tokens, usd, vendor

EXAMPLE = Path(__file__).parents[2] / "deploy" / "prices.example.yaml"


def prices(rows: str) -> Pricer:
    return Pricer(BOOK, parse(f"version: 1\nprices:\n{rows}".encode(), "prices.yaml"))


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text.encode(), "prices.yaml")
    return str(caught.value)


def made_by(folder, file, **settings) -> Pricer:
    own = {"VM_USAGE_PRICES": str(file), "VM_USAGE_STATE": str(folder), "VM_USAGE_VM": "vm1", **settings}
    return pricer(Settings.from_env(own))


DATED = """
- {model: claude-sonnet-4-5, provider: anthropic, from: 2026-01-01, until: 2026-07-01, usd_per_million: {input: 2}}
- {model: claude-sonnet-4-5, provider: anthropic, from: 2026-07-01, usd_per_million: {input: 1}}
"""


@pytest.mark.parametrize(
    ("day", "rate"),
    [("2025-12-31T23:59", "3"), ("2026-01-01T00:00", "2"), ("2026-06-30T23:59", "2"), ("2026-07-01T00:00", "1")],
)
def test_each_call_has_the_price_of_its_day_and_the_book_stands_behind(day, rate):
    assert line(count=tokens(1000), ts=at(day), pricer=prices(DATED)).cost_pico == usd(rate, 1000)


def test_a_configured_rate_is_said_to_be_one():
    priced = line(count=tokens(1000), pricer=prices(DATED))
    assert (priced.status, priced.caveat, priced.basis) == ("estimated", "configured_rate", "list_price")
    assert priced.card.book.startswith("prices.yaml sha256:")


def test_a_model_that_no_list_knows():
    own = prices("- {model: acme-*, usd_per_million: {input: 0.5, output: 1.5}}")
    assert vendor("opencode", "acme-large-2", provider="acme-gw", pricer=own).cost_pico == usd("0.5", 1000) + usd(
        "1.5", 100
    )
    assert vendor("opencode", "other-1", provider="acme-gw", pricer=own).reason == "no_provider"


def test_provider_and_runtime_narrow_a_row():
    own = prices("- {model: m1, provider: my_gw, runtime: picoclaw, usd_per_million: {input: 1}}")
    assert line("my-gw", "m1", tokens(10), pricer=own).cost_pico == usd("1", 10)
    assert line("other", "m1", tokens(10), pricer=own).cost_pico is None
    assert line("my-gw", "m1", tokens(10), pricer=own, runtime="cursor").cost_pico is None


def test_a_row_for_the_served_tier_goes_before_one_for_any():
    rows = "- {model: m1, usd_per_million: {input: 2}}\n- {model: m1, service_tier: batch, usd_per_million: {input: 1}}"
    own = prices(rows)
    assert line("x", "m1", tokens(10), pricer=own, service_tier="batch").cost_pico == usd("1", 10)
    assert line("x", "m1", tokens(10), pricer=own, service_tier="flex").caveat == "configured_rate,tier_not_priced"


def test_thresholds_and_request_fees():
    own = load(EXAMPLE)
    small = vendor("qwen_code", "qwen3-coder-plus", tokens(32_000), pricer=Pricer(BOOK, own))
    large = vendor("qwen_code", "qwen3-coder-plus", tokens(32_001), pricer=Pricer(BOOK, own))
    assert (small.cost_pico, large.cost_pico) == (usd("1", 32_000), usd("1.8", 32_001))
    fee = line("x", "acme-reasoner", tokens(output=10, reasoning=4), pricer=Pricer(BOOK, own), service_tier="batch")
    assert fee.cost_pico == 10**9 + usd("4", 6) + usd("2", 4)


def test_the_operator_may_price_a_local_server():
    own = prices("- {model: 'qwen3:8b', provider: ollama, usd_per_million: {input: 0.01, output: 0.02}}")
    assert line("ollama", "qwen3:8b", tokens(1000), pricer=own).cost_pico == usd("0.01", 1000)


def test_a_price_of_zero_is_the_operators_word():
    priced = line("x", "m1", tokens(10), pricer=prices("- {model: m1, usd_per_million: {input: 0, output: 0}}"))
    assert (priced.cost_pico, priced.status, priced.caveat) == (0, "estimated", "configured_rate")


def test_vendor_dollars_go_before_it():
    own = prices("- {model: m1, usd_per_million: {input: 1}}")
    assert line("x", "m1", vendor_pico=3, vendor_basis="billed", pricer=own).cost_pico == 3


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("version: 2\nprices: []", "prices.yaml:1: version must be 1"),
        ("version: 1\nprices: 7", "prices.yaml:2: prices must be a list"),
        ("version: 1\nprize: []", "prices.yaml:2: prize is not known"),
        ("version: 1\nprices:\n- model: a\n  model: b\n", "prices.yaml:4: model is given twice"),
        ("version: 1\nprices:\n- model: a\n", "prices.yaml:3: usd_per_million is missing"),
        ("version: 1\nprices:\n- model: a\n  usd_per_million:\n    inpt: 1", "prices.yaml:5: inpt is not known"),
        ("version: 1\nprices:\n- model: a\n  usd_per_million: {input: -1}", "prices.yaml:4: input must be a price"),
        ("version: 1\nprices:\n- model: a\n  usd_per_million: {input: yes}", "prices.yaml:4: input must be a price"),
        ("version: 1\nprices:\n- model: a\n  usd_per_million: {}", "prices.yaml:4: usd_per_million must price"),
        ("version: 1\nprices:\n- model: a\n  from: soon\n  usd_per_million: {input: 1}", "prices.yaml:4: from must be"),
        (
            "version: 1\nprices:\n- model: a\n  service_tier: x\n  usd_per_million: {input: 1}",
            "prices.yaml:4: service_tier",
        ),
        ("version: 1\nprices: [", "prices.yaml:2: is not YAML"),
        (
            "version: 1\nprices:\n- {model: a, from: 2026-02-01T10:00:30Z, usd_per_million: {input: 1}}",
            "prices.yaml:3: from must be a whole minute",
        ),
        (
            "version: 1\nprices:\n- {model: a, from: 2026-02-01, until: 2026-01-01, usd_per_million: {input: 1}}",
            "prices.yaml:3: until must be later",
        ),
        (
            "version: 1\nprices:\n- {model: a, usd_per_million: {input: 1}}\n- {model: A, usd_per_million: {input: 2}}",
            "prices.yaml:4: model A has another price at the same time in line 3",
        ),
    ],
)
def test_a_mistake_names_file_line_and_key(text, where):
    assert refusal(text).startswith(where)


def test_the_example_is_a_valid_file():
    assert len(load(EXAMPLE).prices) == 4


def test_no_file_is_no_prices_but_a_named_one_must_exist(tmp_path):
    assert load(tmp_path / "none.yaml") is None
    with pytest.raises(ConfigError, match="VM_USAGE_PRICES"):
        made_by(tmp_path, tmp_path / "none.yaml")


def test_the_settings_make_a_pricer(tmp_path):
    made = made_by(tmp_path, EXAMPLE, VM_USAGE_ACU_USD="2.25")
    assert vendor("opencode", "acme-large-2", provider="acme", pricer=made).cost_pico == usd("0.5", 1000) + usd(
        "1.5", 100
    )
    assert vendor("devin", "swe-1-5", acu_micro=1_000_000, pricer=made).cost_pico == usd("2250000", 1)


@pytest.mark.parametrize("rate", ["two", "-1", "nan"])
def test_an_acu_rate_that_is_no_price_is_refused(rate, tmp_path):
    with pytest.raises(ConfigError, match="VM_USAGE_ACU_USD"):
        made_by(tmp_path, EXAMPLE, VM_USAGE_ACU_USD=rate)
