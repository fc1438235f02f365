"""Our integer arithmetic against the price library's own, over every model that is priced by tokens alone."""

import time
from datetime import UTC, datetime
from decimal import Decimal

from genai_prices import Usage, calc_price
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from collector.book import REQUEST_PRICE, TIER_CONTEXT, TOKEN_PRICES, named_exactly
from collector.pricing import Pricer
from collector.rates import Card
from shim.line import Tokens
from tests.collector.priced import BOOK, NOON, record


def _prices(model):
    return model.prices if not isinstance(model.prices, list) else model.prices[-1].prices


# (provider, model id, the two tiers to try, whether one-hour writes have a price) of every row with input and output.
MODELS = [
    (provider.id, model.id)
    for provider in BOOK.providers().values()
    for model in provider.models
    if {"input_mtok", "output_mtok"} <= {key for key, value in _prices(model).__dict__.items() if value is not None}
    and provider.find_model(model.id) is model
]
TIERED = [name for name in MODELS if name[0] in TIER_CONTEXT]
counts = st.integers(0, 400_000)


@st.composite
def usages(draw):
    write, output = draw(counts), draw(counts)
    return Tokens(draw(counts), draw(counts), write, draw(st.integers(0, write)), output, draw(st.integers(0, output)))


def _theirs(provider: str, model: str, tokens: Tokens, ts: float, context: dict[str, str]) -> Decimal:
    usage = Usage(
        input_tokens=tokens.input_tokens + tokens.cache_read_tokens + tokens.cache_write_tokens,
        cache_read_tokens=tokens.cache_read_tokens,
        cache_write_tokens=tokens.cache_write_tokens,
        cache_write_1h_tokens=tokens.cache_write_1h_tokens,
        output_tokens=tokens.output_tokens,
        output_reasoning_tokens=tokens.reasoning_tokens,
    )
    when = datetime.fromtimestamp(ts, UTC)
    found = calc_price(usage, model, provider_id=provider, genai_request_timestamp=when, price_context=context)
    return found.total_price


def _ours(card: Card, tokens: Tokens) -> int:
    charge = card.charge(tokens)
    assert charge.pico is not None
    return charge.pico


def _without_hour_writes_where_unpriced(card: Card, tokens: Tokens) -> Tokens:
    """Where a list has no one-hour price, the library charges the five-minute one; we leave those tokens out."""
    whole = tokens.input_tokens + tokens.cache_read_tokens + tokens.cache_write_tokens
    if card.rates(whole).cache_write_1h is not None:
        return tokens
    return tokens._replace(cache_write_1h_tokens=0, reasoning_tokens=0)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(MODELS), usages(), st.integers(int(NOON) - 3 * 365 * 86400, int(NOON)))
def test_our_arithmetic_is_the_librarys(name, tokens, ts):
    card = BOOK.find(*name, None).at(ts)
    assume(card is not None and "time_of_day" not in (card.caveat or ""))  # there the book itself is wrong
    tokens = _without_hour_writes_where_unpriced(card, tokens)
    difference = abs(_ours(card, tokens) - _theirs(*name, tokens, ts, {}) * 10**12)
    assert difference <= _noise(name) * tokens.total  # nothing, but for the rows with noise in their rates


def _noise(name: tuple[str, str]) -> Decimal:
    """Half a pico a token for rows whose rates have more than six decimals, else nothing: then it is exact."""
    model = BOOK.providers()[name[0]].find_model(name[1])
    lists = [one.prices for one in model.prices] if isinstance(model.prices, list) else [model.prices]
    rates = [rate for prices in lists for key in TOKEN_PRICES for rate in _decimals(prices.__dict__.get(key))]
    return Decimal("0.5") if any(-rate.normalize().as_tuple().exponent > 6 for rate in rates) else Decimal(0)


def _decimals(price):
    if price is None:
        return []
    return [price] if isinstance(price, Decimal) else [price.base, *[tier.price for tier in price.tiers]]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(TIERED), usages(), st.data())
def test_served_tiers_are_the_librarys_variants(name, tokens, data):
    tier, (key, value) = data.draw(st.sampled_from(sorted(TIER_CONTEXT[name[0]].items())))
    card = BOOK.find(*name, tier).at(NOON)
    assume(card is not None and "time_of_day" not in (card.caveat or ""))
    tokens = _without_hour_writes_where_unpriced(card, tokens)
    assert _ours(card, tokens) == _theirs(*name, tokens, NOON, {key: value}) * 10**12


def test_every_model_is_named_by_its_own_id():
    providers = BOOK.providers()
    assert all(named_exactly(model, providers[provider].find_model(model)) for provider, model in MODELS)


def test_every_price_the_library_has_for_a_token_is_known_here():
    """A price key that a later release adds must be looked at, not left out of the figures in silence."""
    keys = {
        key
        for provider in BOOK.providers().values()
        for model in provider.models
        for price in (model.prices if isinstance(model.prices, list) else [None])
        for key, value in (price.prices if price else model.prices).__dict__.items()
        if value is not None
    }
    media = ("audio", "image", "video", "document", "chars", "messages", "searches", "hours", "citation")
    assert {key for key in keys if not any(word in key for word in media)} == {*TOKEN_PRICES, REQUEST_PRICE}


def test_a_fee_for_each_request_is_part_of_the_price():
    tokens = Tokens(1000, 0, 0, 0, 100, 0)
    card = BOOK.find("perplexity", "sonar", None).at(NOON)
    assert _ours(card, tokens) == _theirs("perplexity", "sonar", tokens, NOON, {}) * 10**12


def test_pricing_is_far_faster_than_asking_the_library():
    """Measured side by side, so the machine does not matter: at least ten times."""
    pricer, call = Pricer(BOOK), record(count=Tokens(1000, 5000, 200, 0, 700, 10))
    ours = _seconds(lambda: pricer.price(call, "anthropic"), 2000)
    theirs = _seconds(lambda: _theirs("anthropic", call.model, call.tokens, call.ts, {}), 100) * 20
    assert ours * 10 < theirs


def _seconds(what, times: int) -> float:
    what()
    start = time.process_time()
    for _ in range(times):
        what()
    return time.process_time() - start
