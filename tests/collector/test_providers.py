"""Whose price list a call belongs to: our tables and nothing else."""

import pytest

from collector.providers import (
    FAMILIES,
    LOCAL_UPSTREAMS,
    PROVIDERS,
    RUNTIME_PROVIDERS,
    is_local,
    is_loopback,
    maker_of,
    provider_of,
)
from shim.upstreams import BASES, NEEDS_ADDRESS
from tests.collector.priced import BOOK, tokens, vendor


def lists(runtime, model, provider=None, upstream=None):
    return [(one.provider, one.model, one.caveat) for one in provider_of(runtime, provider, upstream, model)]


def test_every_provider_of_the_tables_is_one_of_the_book():
    named = {*PROVIDERS.values(), *RUNTIME_PROVIDERS.values(), *[provider for _, provider in FAMILIES]} - {None}
    assert named <= set(BOOK.providers())


@pytest.mark.parametrize(
    ("runtime", "model", "provider", "upstream", "found"),
    [
        ("picoclaw", "gpt-5", None, "azure", [("azure", "gpt-5", None)]),
        ("picoclaw", "gpt-5", None, "azure-myresource", [("azure", "gpt-5", None)]),
        ("picoclaw", "openai/gpt-5", None, "openrouter", [("openrouter", "openai/gpt-5", None)]),
        (
            "picoclaw",
            "claude-x",
            "openai",
            "anthropic",
            [("anthropic", "claude-x", None)],
        ),  # the route counts
        ("goose", "anthropic/claude-haiku-4-5", "anthropic", None, [("anthropic", "claude-haiku-4-5", None)]),
        ("opencode", "glm-4.6", "Z_AI", None, [("zai", "glm-4.6", None)]),
        ("claude_code", "claude-sonnet-4-5", None, None, [("anthropic", "claude-sonnet-4-5", None)]),
        ("exo", "openai/gpt-5", None, None, [("openai", "gpt-5", None)]),
        ("aider", "claude-sonnet-4-5", None, None, [("anthropic", "claude-sonnet-4-5", "provider_from_model")]),
        ("opencode", "claude-sonnet-4-5", "acme-gateway", None, []),
        ("opencode", "claude-sonnet-4-5", "opencode", None, []),  # known, with prices of its own
        ("qwen_code", "qwen3-coder-plus", None, None, []),
        ("pi", "acme-small-1", None, None, []),
    ],
)
def test_where_a_price_is_looked_for(runtime, model, provider, upstream, found):
    assert lists(runtime, model, provider, upstream) == found


def test_cursor_passes_the_makers_price_on_for_models_that_are_not_its_own():
    assert lists("cursor", "GPT-5", upstream="cursor") == [("cursor", "GPT-5", None), ("openai", "GPT-5", None)]
    assert vendor("cursor", "GPT-5", tokens(3400, 21000, output=200)).status == "exact"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("claude-4.5-sonnet-thinking", "claude-sonnet-4-5"),
        ("sonnet-4.5", "claude-sonnet-4-5"),
        ("opus-4.1", "claude-opus-4-1"),
        ("gpt-5.1-codex-high", "gpt-5.1-codex"),
        ("gpt-5-high", "gpt-5"),
    ],
)
def test_cursors_names_are_translated_and_said_to_be(name, model):
    priced = vendor("cursor", name, tokens(1000))
    assert priced.cost_pico == vendor("cursor", model, tokens(1000)).cost_pico is not None
    assert (priced.status, priced.caveat) == ("estimated", "model_alias")


@pytest.mark.parametrize("name", ["auto", "default", "gpt-5.1-codex-max", "sonnet", "my-sonnet-4.5"])
def test_cursors_names_that_mean_no_known_model_are_not_translated(name):
    assert vendor("cursor", name, tokens(1000)).caveat != "model_alias"


def test_copilot_without_its_ledger_is_an_estimate_on_another_basis():
    priced = vendor("copilot", "claude-sonnet-4.5", tokens(1100, 800, output=140))
    assert (priced.status, priced.caveat) == ("estimated", "other_basis")


@pytest.mark.parametrize(
    ("model", "maker"),
    [
        ("claude-sonnet-4-5", "anthropic"),
        ("GPT-5", "openai"),
        ("o3", "openai"),
        ("o4-mini", "openai"),
        ("gemini-2.5-pro", "google"),
        ("olmo-3", None),
        ("my-claude", None),
        ("home-model", None),
    ],
)
def test_makers(model, maker):
    assert maker_of(model) == maker


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.1.2.3:1", True),
        ("http://[::1]/v1", True),
        ("http://localhost:8000", True),
        ("http://gpu.localhost", True),
        ("http://localhost.evil.test", False),
        ("http://127.0.0.1.evil.test", False),
        ("http://10.0.0.5:8000", False),
        ("not a url", False),
    ],
)
def test_loopback_is_an_address_and_not_a_text(url, local):
    assert is_loopback(url) is local


def test_every_upstream_of_the_shim_has_its_place_in_the_tables():
    assert {*BASES, *NEEDS_ADDRESS} <= {*PROVIDERS, *LOCAL_UPSTREAMS}


@pytest.mark.parametrize(
    ("model", "local"),
    [
        ("qwen3:8b", True),
        ("gpt-oss:20b", True),
        ("gpt-oss:120b-cloud", False),
        ("claude-sonnet-4-5", False),
        (None, True),
    ],
)
def test_what_cannot_be_hosted_here_is_not_local(model, local):
    assert is_local("vllm", model, {}) is local
