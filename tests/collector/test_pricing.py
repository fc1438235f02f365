"""Prices: every trap of the price book that is known to mislead, each with the figure it must not lead to.

Expected amounts are written as rate × tokens on the page. Rates: https://docs.claude.com/en/docs/about-claude/pricing ,
https://platform.openai.com/docs/pricing , https://api-docs.deepseek.com/quick_start/pricing .
"""

import subprocess
import sys

import pytest

from collector.money import to_pico
from collector.pricing import Pricer
from shim.line import Tokens
from tests.collector.priced import BOOK, NOON, at, line, record, tokens, usd, vendor


class TestInclusiveInput:
    """Trap 1: the book wants the whole input, our classes are disjoint; a cached token is paid once."""

    def test_four_classes_at_their_four_rates(self):
        priced = line(count=tokens(1000, 5000, 2000, 0, 700))
        assert priced.cost_pico == usd("3", 1000) + usd("0.30", 5000) + usd("3.75", 2000) + usd("15", 700)
        assert (priced.status, priced.source, priced.basis) == ("exact", "derived", "list_price")

    def test_more_cached_than_fresh_input_is_no_error(self):
        assert line(count=tokens(10, 9000, output=1)).cost_pico == usd("3", 10) + usd("0.30", 9000) + usd("15", 1)


class TestOneHourWrites:
    """Trap 2: a one-hour write costs more than a five-minute one, and many lists have no price for it."""

    def test_at_their_own_rate(self):
        assert line(count=tokens(write=600, hour=500)).cost_pico == usd("3.75", 100) + usd("6", 500)

    def test_without_a_rate_they_are_left_out_and_said_to_be(self):
        priced = line("openrouter", "anthropic/claude-sonnet-4.5", tokens(1000, write=600, hour=500))
        assert priced.cost_pico == usd("3", 1000) + usd("3.75", 100)
        assert (priced.status, priced.caveat) == ("partial", "no_1h_rate")

    def test_an_unknown_share_of_them_is_an_unknown_split(self):
        priced = line(count=Tokens(1000, 0, 600, None, 100, None))
        assert (priced.status, priced.caveat) == ("estimated", "cache_split_unknown")


class TestEmptyPrices:
    """Trap 3: a row without a price is not free, and a class without a price is not either."""

    def test_no_empty_row_of_the_book_has_a_card(self):
        empty = [
            (provider.id, model.id)
            for provider in BOOK.providers().values()
            for model in provider.models
            if not isinstance(model.prices, list) and not any(model.prices.__dict__.values())
        ]
        assert len(empty) > 100  # OpenRouter's free models, above all
        assert all(row is None or row.at(NOON) is None for row in (BOOK.find(*one, None) for one in empty))

    def test_a_free_row_leaves_tokens_only(self):
        priced = line("openrouter", "google/gemma-3-27b-it:free")
        assert (priced.cost_pico, priced.status, priced.reason) == (None, "tokens_only", "no_price")

    def test_cache_without_a_price_is_paid_as_input_and_said_to_be(self):
        priced = line("openai", "gpt-4o", tokens(100, write=50))
        assert priced.cost_pico == usd("2.50", 150)
        assert (priced.status, priced.caveat) == ("estimated", "no_cache_rate")

    def test_output_without_a_price_is_left_out_and_said_to_be(self):
        priced = line("openai", "text-embedding-3-small", tokens(1000, output=5))
        assert (priced.cost_pico, priced.status, priced.caveat) == (usd("0.02", 1000), "partial", "no_rate")

    def test_embeddings_have_no_output_to_miss(self):
        priced = line("openai", "text-embedding-3-small", Tokens(input_tokens=1000))
        assert (priced.cost_pico, priced.status) == (usd("0.02", 1000), "exact")


class TestTimeOfDay:
    """Trap 4: DeepSeek's peak is Monday to Friday and began with the price of August 17th; the book says neither."""

    @pytest.mark.parametrize(
        ("time", "rate", "caveat"),
        [
            ("2026-11-18T02:00", "0.30", "time_of_day"),  # Wednesday, peak
            ("2026-11-18T05:00", "0.15", None),  # Wednesday, between the peaks
            ("2026-11-18T10:00", "0.15", None),  # the end of a window is outside
            ("2026-11-01T02:00", "0.15", "time_of_day"),  # Sunday
            ("2026-11-14T07:00", "0.15", "time_of_day"),  # Saturday
            ("2026-08-03T02:00", "0.14", "before_first_price,time_of_day"),  # Monday, before there was a peak
        ],
    )
    def test_peak_hours(self, time, rate, caveat):
        priced = line("deepseek", "deepseek-v4-flash", tokens(1000), ts=at(time))
        assert (priced.cost_pico, priced.caveat) == (usd(rate, 1000), caveat)
        assert priced.status == ("estimated" if caveat else "exact")


class TestPriceHistory:
    """Trap 5: a call is priced by its own day, and one before the first dated price says so."""

    def test_the_price_of_the_day(self):
        assert line("openai", "o3", tokens(1000), ts=at("2025-06-10T00:00")).cost_pico == usd("2", 1000)

    @pytest.mark.parametrize("ts", [0.0, -5.0, float("nan"), float("inf")])
    def test_without_a_time_the_newest_price_is_used_and_said_to_be(self, ts):
        priced = line("openai", "o3", tokens(1000), ts=ts)
        assert (priced.cost_pico, priced.status, priced.caveat) == (usd("2", 1000), "estimated", "time_unknown")

    def test_before_the_first_date(self):
        priced = line("openai", "o3", tokens(1000), ts=at("2025-06-09T23:59"))
        assert (priced.cost_pico, priced.caveat) == (usd("10", 1000), "before_first_price")


class TestMatching:
    """Trap 6: the book matches some families by prefix and refuses others; what was matched stands beside the price."""

    @pytest.mark.parametrize("model", ["claude-opus-4-9", "claude-5-mega"])
    def test_a_new_model_is_not_an_old_one(self, model):
        assert line(model=model).reason == "no_price"

    @pytest.mark.parametrize("model", ["gpt-9", "gpt-5.95"])
    def test_a_new_openai_model_is_not_an_old_one(self, model):
        assert line("openai", model).status == "tokens_only"

    @pytest.mark.parametrize("model", ["claude-sonnet-4-5-20250929", "claude-sonnet-4-5@20250929", "claude-sonnet-4-5"])
    def test_a_date_is_the_same_model(self, model):
        priced = line(model=model)
        assert (priced.status, priced.card.matched_model) == ("exact", "claude-sonnet-4-5")

    @pytest.mark.parametrize(
        ("upstream", "model"),
        [
            ("anthropic", "claude-sonnet-4-20250514"),
            ("anthropic", "claude-3-5-haiku-latest"),
            ("openai", "gpt-4o-2024-08-06"),
            ("gemini", "gemini-2.0-flash-001"),
            ("vertex", "claude-sonnet-4-5@20250929"),
            ("bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"),
            ("openrouter", "openai/gpt-5-2025-08-07"),
        ],
    )
    def test_dates_revisions_and_regions_are_the_same_model(self, upstream, model):
        assert line(upstream, model).status == "exact"

    def test_a_preview_is_another_model(self):
        assert line("gemini", "gemini-2.5-pro-preview-05-06").caveat == "prefix_match"

    def test_anything_else_behind_a_name_is_flagged(self):
        priced = line(model="claude-sonnet-4-5-turbo")
        assert (priced.status, priced.caveat) == ("estimated", "prefix_match")
        assert priced.card.matched_model == "claude-sonnet-4-5"

    def test_googles_own_prefix(self):
        assert line("gemini", "models/gemini-2.5-pro").cost_pico == line("gemini", "gemini-2.5-pro").cost_pico

    def test_openrouter_spells_versions_with_a_dot(self):
        priced = line("openrouter", "anthropic/claude-sonnet-4-5")
        assert (priced.status, priced.card.matched_model) == ("exact", "anthropic/claude-sonnet-4.5")

    @pytest.mark.parametrize("model", ["openrouter/auto", "kimi-for-coding"])
    def test_names_for_no_model_in_particular_have_no_price(self, model):
        assert line("openrouter", model).reason == "no_price"


class TestProvider:
    """Trap 7: the provider is known or there is no price; the library is never asked to guess it."""

    def test_an_unknown_upstream_has_no_price_whatever_the_model(self):
        priced = line("my-gateway", "gpt-5")
        assert (priced.cost_pico, priced.status, priced.reason) == (None, "tokens_only", "no_provider")

    def test_bedrock_has_its_own_list_with_the_regional_premium(self):
        regional = line("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", tokens(1000))
        everywhere = line("bedrock", "global.anthropic.claude-sonnet-4-5-20250929-v1:0", tokens(1000))
        assert (regional.cost_pico, everywhere.cost_pico) == (usd("3.30", 1000), usd("3", 1000))
        assert regional.status == everywhere.status == "exact"

    def test_no_model_is_said_to_be_no_model(self):
        assert line(model=None).reason == "no_model"


class TestThresholds:
    """Trap 8: the size of the whole request decides the rate of all its tokens, per request and never for a sum."""

    def test_one_token_more_moves_every_token(self):
        below = line(count=tokens(100_000, 100_000, output=1000))
        above = line(count=tokens(100_001, 100_000, output=1000))
        assert below.cost_pico == usd("3", 100_000) + usd("0.30", 100_000) + usd("15", 1000)
        assert above.cost_pico == usd("6", 100_001) + usd("0.60", 100_000) + usd("22.50", 1000)

    def test_a_session_above_the_threshold_may_be_many_requests_below_it(self):
        priced = vendor("claude_code", "claude-sonnet-4-5", tokens(300_000), grain="session")
        assert (priced.cost_pico, priced.caveat) == (usd("3", 300_000), "tier_unknown")


class TestServedTier:
    """Trap 9: the served tier has its price, and a tier the book does not know is not silently standard."""

    def test_flex_and_priority(self):
        standard, flex = (
            line("openai", "gpt-5", tokens(1000)),
            line("openai", "gpt-5", tokens(1000), service_tier="flex"),
        )
        assert flex.cost_pico * 2 == standard.cost_pico
        assert flex.status == "exact"

    @pytest.mark.parametrize("tier", ["default", "auto", "standard", None])
    def test_the_standard_tiers(self, tier):
        assert line("openai", "gpt-5", tokens(1000), service_tier=tier).status == "exact"

    def test_fast_is_a_speed_at_anthropic(self):
        fast = line(model="claude-opus-5", count=tokens(1000), service_tier="fast")
        assert (fast.cost_pico, fast.status) == (usd("10", 1000), "exact")

    def test_a_tier_without_a_price(self):
        priced = line(count=tokens(1000), service_tier="priority")
        assert (priced.cost_pico, priced.status, priced.caveat) == (usd("3", 1000), "estimated", "tier_not_priced")

    def test_a_batch_before_the_book_knew_its_price(self):
        before = line(count=tokens(1000), service_tier="batch", ts=at("2026-10-13T00:00"))
        after = line(count=tokens(1000), service_tier="batch", ts=at("2026-10-14T00:00"))
        assert (before.caveat, after.caveat) == ("tier_not_priced", None)
        assert after.cost_pico == usd("1.50", 1000)


class TestCounts:
    """Traps 10 and 14: numbers that cannot be right get no price, and never half of one."""

    @pytest.mark.parametrize(
        "count",
        [tokens(10**9 + 1), tokens(1, write=5, hour=6), tokens(1, output=5, reasoning=6), Tokens(-1, 0, 0, 0, 0, 0)],
    )
    def test_absurd_numbers(self, count):
        priced = line(count=count)
        assert (priced.cost_pico, priced.reason) == (None, "bad_usage")

    def test_absurd_dollars(self):
        assert line(vendor_pico=10**24, vendor_basis="billed").reason == "bad_usage"


def test_pricing_starts_no_thread_and_loads_no_library_before_it_must():
    """Traps 11 and 12: no updater, and half a second of import only for a call that needs a price."""
    code = (
        "import sys, threading; from collector.book import Book; from collector.pricing import Pricer; b = Book();"
        "assert 'genai_prices' not in sys.modules; b.find('openai', 'gpt-5', None);"
        "assert threading.active_count() == 1 and b.version == 'genai-prices 0.2.3'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_nothing_of_the_library_is_kept():
    """Trap 15: its objects are shared and mutable; what a price keeps is text and integers."""
    priced = line()
    model = BOOK.providers()["anthropic"].find_model("claude-sonnet-4-5")
    assert model.id == priced.card.matched_model
    assert priced.card.data == (
        '{"book":"genai-prices 0.2.3","model":"claude-sonnet-4-5","pico_usd":['
        '{"above_input_tokens":0,"cache_read":300000,"cache_write":3750000,"cache_write_1h":6000000,'
        '"input":3000000,"output":15000000},'
        '{"above_input_tokens":200000,"cache_read":600000,"cache_write":7500000,"cache_write_1h":12000000,'
        '"input":6000000,"output":22500000}],"provider":"anthropic"}'
    )


class TestVendorDollars:
    """What the vendor states comes first; its caveat makes it an estimate, and no tokens are needed for it."""

    def test_without_model_or_tokens(self):
        priced = vendor("cline", None, Tokens(), vendor_pico=20_595_000_000, vendor_basis="billed")
        assert (priced.cost_pico, priced.status) == (20_595_000_000, "exact")
        assert (priced.source, priced.basis) == ("vendor", "billed")

    def test_a_runtimes_own_list_is_no_bill(self):
        assert vendor("pi", "claude-sonnet-4-5", vendor_pico=5, vendor_basis="runtime_price").basis == "runtime_price"

    def test_an_estimate_of_the_vendors_own(self):
        priced = vendor("goose", "gpt-5", vendor_pico=5, vendor_basis="runtime_price", caveat="vendor_estimate")
        assert (priced.status, priced.caveat) == ("estimated", "vendor_estimate")

    def test_a_charge_on_the_wire_goes_before_the_book(self):
        assert line("openrouter", "openai/gpt-5", vendor_pico=7, vendor_basis="billed").cost_pico == 7


class TestAcu:
    """Devin counts ACU; dollars only by a rate that the operator configured."""

    def test_without_a_rate_the_tokens_stay(self):
        priced = vendor("devin", "swe-1-5", acu_micro=50_000)
        assert (priced.cost_pico, priced.status, priced.reason) == (None, "tokens_only", "no_acu_rate")

    def test_with_a_rate(self):
        priced = vendor("devin", "swe-1-5", acu_micro=50_000, pricer=Pricer(BOOK, acu_usd="2.25"))
        assert priced.cost_pico == to_pico("0.1125")  # 0.05 ACU at $2.25
        assert (priced.status, priced.caveat) == ("estimated", "configured_rate")

    def test_a_message_without_a_committed_cost_has_none(self):
        assert vendor("devin", "swe-1-5", pricer=Pricer(BOOK, acu_usd="2.25")).status == "tokens_only"

    def test_a_list_price_never_stands_in_for_acu(self):
        assert vendor("devin", "claude-sonnet-4-5").cost_pico is None


class TestLocal:
    """Zero is a price only with evidence: a local server, reached on this machine, serving a model of its own."""

    @pytest.mark.parametrize("upstream", ["ollama", "vllm", "lmstudio", "llama-cpp"])
    def test_a_local_upstream(self, upstream):
        priced = line(upstream, "qwen3:8b")
        assert (priced.cost_pico, priced.status, priced.source) == (0, "exact", "derived")

    def test_evidence_in_a_store(self):
        assert vendor("goose", "qwen3:8b", local=True).cost_pico == 0

    @pytest.mark.parametrize("model", ["gpt-oss:120b-cloud", "qwen3-coder:cloud"])
    def test_a_model_that_the_daemon_forwards(self, model):
        assert line("ollama", model).cost_pico is None
        assert vendor("pi", model, local=True).cost_pico is None

    @pytest.mark.parametrize(
        ("url", "cost"),
        [
            ("http://127.0.0.1:11434", 0),
            ("http://[::1]:1", 0),
            ("http://localhost:1/v1", 0),
            ("https://ollama.com", None),
        ],
    )
    def test_a_configured_url_decides(self, url, cost):
        pricer = Pricer(BOOK, upstream_urls={"ollama": url})
        assert line("ollama", "qwen3:8b", pricer=pricer).cost_pico == cost

    def test_a_loopback_gateway_proves_nothing(self):
        pricer = Pricer(BOOK, upstream_urls={"litellm": "http://127.0.0.1:4000"})
        assert line("litellm", "gpt-5", pricer=pricer).cost_pico is None

    def test_the_name_alone_in_a_store_proves_nothing(self):
        assert vendor("opencode", "qwen3:8b", provider="ollama").cost_pico is None


class TestUnknownUsage:
    """Unknown is unknown: neither a zero nor a figure that looks whole."""

    def test_no_usage_at_all(self):
        priced = line(count=Tokens(), usage="missing")
        assert (priced.cost_pico, priced.status, priced.reason) == (None, "unavailable", "no_usage")
        assert priced.counted

    @pytest.mark.parametrize("outcome", ["rejected", "unreachable"])
    def test_a_refused_call_is_neither_free_nor_unknown(self, outcome):
        priced = line(count=Tokens(), usage="missing", outcome=outcome)
        assert (priced.cost_pico, priced.reason, priced.counted) == (None, "not_billed", False)

    @pytest.mark.parametrize("outcome", ["failed", "interrupted", "client_closed", "upstream_closed", "completed"])
    def test_a_call_that_may_have_been_billed_is_unknown(self, outcome):
        priced = line(count=Tokens(), usage="missing", outcome=outcome)
        assert (priced.status, priced.counted) == ("unavailable", True)

    def test_a_stream_that_ended_early_is_priced_as_far_as_it_was_seen(self):
        priced = line(count=Tokens(1000, 0, 0, 0, None, None), usage="partial", outcome="client_closed")
        assert (priced.cost_pico, priced.status, priced.caveat) == (usd("3", 1000), "partial", "usage_partial")

    def test_a_partial_zero_is_no_figure(self):
        assert line(count=Tokens(0, 0, 0, 0, None, None), usage="partial").cost_pico is None

    def test_a_cache_split_that_is_unknown_matters_where_the_prices_differ(self):
        unknown = Tokens(4000, None, None, None, 400, None)
        assert vendor("goose", "gpt-5", unknown, provider="openai").status == "estimated"
        assert line("openai", "gpt-4", unknown).status == "exact"  # no cache price, so nothing could differ

    def test_a_model_from_configuration(self):
        priced = vendor("kimi_cli", "kimi-k2-turbo-preview", model_source="config")
        assert (priced.status, priced.caveat) == ("estimated", "model_from_config")


def test_the_same_record_has_the_same_price_whenever_and_by_whomever_it_is_priced():
    one, other = Pricer(BOOK), Pricer(BOOK)
    call = record(count=tokens(1000, 2000, output=300), ts=NOON)
    assert one.price(call, "anthropic") == other.price(call, "anthropic") == one.price(call, "anthropic")


def test_random_model_names_do_not_grow_what_is_remembered():
    pricer = Pricer(BOOK)
    for number in range(10_050):
        pricer.price(record(f"m{number}"), "my-gateway")
    assert len(pricer._choices) <= 10_000
