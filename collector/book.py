"""The price book: genai-prices, pinned, as the source of rates; matching is theirs, arithmetic and provider are ours.

What is copied out of the library is ids and integers, never its objects, which are shared and mutable. The library is
imported at the first look-up (half a second of CPU) and its updater is never started: a ledger's prices do not change
because a file on the internet did. Misses are remembered as well as hits. PRICING lists the traps that are met here:
empty prices, prefix matches, time-of-day prices, prices before the first date, tiers that the book ignores in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from collector.honesty import join_caveats
from collector.money import rate_to_pico
from collector.rates import Card, Rates

if TYPE_CHECKING:
    from genai_prices import types

DAY: Final = 86_400

# Price keys of the library to the fields of our rates; everything else in a price (audio, searches, storage) has no
# token class in our lines.
TOKEN_PRICES: Final[Mapping[str, str]] = {
    "input_mtok": "input",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_mtok": "output",
    "output_reasoning_mtok": "reasoning",
}
REQUEST_PRICE: Final = "requests_kcount"

STANDARD_TIERS: Final = frozenset({None, "auto", "default", "standard", "on_demand"})
BATCH: Final = ("processing", "batch")
# Served tier to the (key, value) by which the book names its price, per provider. A tier that is neither here nor
# standard, or whose price the book lacks, is priced as standard with a caveat: the library ignores it in silence.
TIER_CONTEXT: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "openai": {
        "flex": ("service_tier", "flex"),
        "priority": ("service_tier", "priority"),
        "fast": ("service_tier", "fast"),
        "batch": BATCH,
    },
    "google": {"flex": ("service_tier", "flex"), "priority": ("service_tier", "priority"), "batch": BATCH},
    "anthropic": {"fast": ("speed", "fast"), "batch": BATCH},
    "mistral": {"batch": BATCH},
    "groq": {"batch": BATCH},
    "x-ai": {"batch": BATCH},
}

# Daily windows that hold from Monday to Friday only, which the book cannot say: (provider, start in UTC seconds).
# https://api-docs.deepseek.com/quick_start/pricing , genai-prices PR 581.
WEEKDAYS_ONLY: Final = frozenset({("deepseek", 1 * 3600), ("deepseek", 6 * 3600)})

# Lists that spell versions with a dot where others write a dash (claude-sonnet-4.5).
DOTTED: Final = frozenset({"openrouter", "github-copilot"})
_DASHED_VERSION: Final = re.compile(r"(?<=\d)-(?=\d{1,2}(?!\d))")
# What may follow or precede a matched name without making it another model: dates, revisions, Bedrock's regions.
_DATE: Final = r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d)"
_SUFFIX: Final = re.compile(rf"(?:{_DATE}|-\d{{3}})?(?:[-@:](?:latest|default))?(?:-v\d+(?::\d+)?)?")
_REGION: Final = re.compile(r"(?:(?:us|eu|apac|jp|au|ca|global|regional|us-gov)\.)?(?:[a-z0-9]+\.)?")


@dataclass(frozen=True, slots=True)
class When:
    """When a price holds: from ``start`` (epoch seconds), or daily in a window of UTC seconds; always, if neither."""

    start: int | None = None
    daily: tuple[int, int] | None = None
    weekdays_only: bool = False

    def active(self, ts: float) -> bool:
        """Whether the price holds at ``ts`` (epoch seconds)."""
        if self.start is not None and ts < self.start:
            return False
        if self.weekdays_only and (int(ts // DAY) + 3) % 7 > 4:  # 1970-01-01 was a Thursday
            return False
        return self.daily is None or self.in_hours(ts)

    def in_hours(self, ts: float) -> bool:
        """Whether ``ts`` lies in the daily window, whatever the date; a window may span midnight."""
        if self.daily is None:
            return False
        start, end = self.daily
        second = ts % DAY
        return start <= second < end if start <= end else second >= start or second < end


# One price: its steps by field, (threshold in input tokens, pico-USD), as the book states it.
Prices = Mapping[str, tuple[tuple[int, int], ...]]


@dataclass(slots=True)
class Row:
    """One model of one list in one tier: its prices through time, with the cards made of them so far."""

    provider: str
    model: str
    book: str
    prices: tuple[tuple[When, Prices], ...]
    variants: tuple[tuple[When, Prices], ...] = ()
    tier_wanted: bool = False
    caveat: str | None = None
    _moving: tuple[When, ...] = ()
    _cards: dict[tuple[bool, ...], Card | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._moving = tuple(when for when, _ in (*self.prices, *self.variants) if when != When())

    def at(self, ts: float) -> Card | None:
        """The rates in force at ``ts`` (epoch seconds), ``None`` where the list has no token price for the model."""
        epoch = tuple(fact for when in self._moving for fact in (when.active(ts), when.in_hours(ts)))
        if epoch not in self._cards:
            self._cards[epoch] = self._card(ts)
        return self._cards[epoch]

    def _card(self, ts: float) -> Card | None:
        standard = next((prices for when, prices in reversed(self.prices) if when.active(ts)), self.prices[0][1])
        special: dict[str, tuple[tuple[int, int], ...]] = {}
        for when, prices in self.variants:
            if when.active(ts):
                special = {**prices, **special}
        steps = _steps({**standard, **special})
        if steps is None:
            return None
        caveat = join_caveats((self.caveat, *self._caveats(ts, tier_found=bool(special))))
        return Card(steps, self.provider, self.model, self.book, caveat)

    def _caveats(self, ts: float, *, tier_found: bool) -> Iterator[str]:
        starts = [when.start for when, _ in self.prices if when.start is not None]
        if starts and ts < min(starts):
            yield "before_first_price"
        if any(when.in_hours(ts) for when, _ in self.prices):
            yield "time_of_day"
        if self.tier_wanted and not tier_found:
            yield "tier_not_priced"


class Book:
    """The bundled genai-prices data as a price list."""

    def __init__(self) -> None:
        self.version: Final = f"genai-prices {version('genai-prices')}"
        self._providers: dict[str, types.Provider] | None = None

    def find(self, provider: str, model: str, tier: str | None) -> Row | None:
        """The row of a model at a provider (ids of the book) in a served tier, ``None`` if there is none."""
        provider_info = self.providers().get(provider)
        if provider_info is None:
            return None
        for name in _spellings(provider, model):
            found = provider_info.find_model(name, all_providers=list(self.providers().values()))
            if found is not None:
                return self._row(provider_info, found, name, tier)
        return None

    def providers(self) -> dict[str, types.Provider]:
        """The library's providers by id; imports the library when first asked."""
        if self._providers is None:
            from genai_prices.data_snapshot import get_snapshot

            self._providers = {provider.id: provider for provider in get_snapshot().providers}
        return self._providers

    def _row(self, provider: types.Provider, model: types.ModelInfo, name: str, tier: str | None) -> Row:
        own = any(model is one for one in provider.models)  # a fallback provider's variants do not apply here
        context = TIER_CONTEXT.get(provider.id, {}).get(tier or "")
        return Row(
            provider=provider.id,
            model=model.id,
            book=self.version,
            prices=_through_time(provider.id, model),
            variants=tuple(_variants(model, context)) if own and context else (),
            tier_wanted=tier not in STANDARD_TIERS,
            caveat=None if named_exactly(name, model) else "prefix_match",
        )


def named_exactly(name: str, model: types.ModelInfo) -> bool:
    """Whether a name means this model, and is not only one that begins like it (``claude-sonnet-4-5-anything``)."""
    name = name.lower()
    undated = re.sub(rf"{_DATE}$", "", name)  # "claude-sonnet-4-2025" is a prefix of the book that cuts a date in two
    return name == model.id.lower() or _means(name, model.match) or _means(undated, model.match)


def _means(name: str, clause: Any) -> bool:
    """A matched clause of the library read strictly: nothing but a date, a revision or a region may be left over."""
    if (parts := getattr(clause, "or_", None)) is not None:
        return any(_means(name, part) for part in parts)
    if (parts := getattr(clause, "and_", None)) is not None:
        return bool(clause.is_match(name)) and any(_means(name, part) for part in parts)
    if hasattr(clause, "equals"):
        return bool(name == clause.equals.lower())
    if hasattr(clause, "regex"):
        return re.fullmatch(clause.regex, name) is not None
    text = next(
        getattr(clause, key) for key in ("starts_with", "ends_with", "contains") if hasattr(clause, key)
    ).lower()
    before, found, after = name.partition(text)
    return bool(found) and _REGION.fullmatch(before) is not None and _SUFFIX.fullmatch(after) is not None


def _spellings(provider: str, model: str) -> Iterator[str]:
    yield model
    if provider in DOTTED:
        dotted = _DASHED_VERSION.sub(".", re.sub(rf"{_DATE}$", "", model))
        if dotted != model:
            yield dotted


def _through_time(provider: str, model: types.ModelInfo) -> tuple[tuple[When, Prices], ...]:
    """A model's prices with when they hold. A daily window belongs to the last dated price before it in the list."""
    if not isinstance(model.prices, list):
        return ((When(), _prices(model.prices)),)
    found, start = [], None
    for one in model.prices:
        when = _when(provider, one.constraint, start)
        start = when.start if when.start is not None else start
        found.append((when, _prices(one.prices)))
    return tuple(found)


def _variants(model: types.ModelInfo, context: tuple[str, str]) -> Iterator[tuple[When, Prices]]:
    for variant in model.price_variants or ():
        if variant.when == {context[0]: context[1]}:
            yield _when("", variant.constraint, None), _prices(variant.prices)


def _when(provider: str, constraint: Any, start: int | None) -> When:
    if constraint is None:
        return When()
    if hasattr(constraint, "start_date"):
        midnight = datetime.combine(constraint.start_date, datetime.min.time(), UTC)
        return When(start=int(midnight.timestamp()))
    window = (_second(constraint.start_time), _second(constraint.end_time))
    return When(start=start, daily=window, weekdays_only=(provider, window[0]) in WEEKDAYS_ONLY)


def _second(time: Any) -> int:
    """A time of day as seconds of the UTC day; one without a zone is UTC."""
    offset = int(time.utcoffset().total_seconds()) if time.utcoffset() is not None else 0
    return int(time.hour * 3600 + time.minute * 60 + time.second - offset) % DAY


def _prices(price: types.ModelPrice) -> Prices:
    """The token prices (and the price of a request) that a price really states; an empty price is not a free one."""
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for key, value in price.__dict__.items():
        if value is None or (key not in TOKEN_PRICES and key != REQUEST_PRICE):
            continue
        if key == REQUEST_PRICE:
            found["request"] = ((0, rate_to_pico(value) * 1000),)  # USD per thousand requests
        else:
            found[TOKEN_PRICES[key]] = tuple(_levels(value))
    return found


def _levels(value: Any) -> Iterator[tuple[int, int]]:
    if not hasattr(value, "tiers"):
        yield 0, rate_to_pico(value)
        return
    yield 0, rate_to_pico(value.base)
    for tier in value.tiers:
        yield tier.start, rate_to_pico(tier.price)


def _steps(prices: Prices) -> tuple[tuple[int, Rates], ...] | None:
    """One set of rates per threshold that any class has; ``None`` where no token has a price."""
    if not any(name in prices for name in ("input", "output")):
        return None
    thresholds = sorted({threshold for levels in prices.values() for threshold, _ in levels})
    return tuple((threshold, Rates(**_rates_at(prices, threshold))) for threshold in thresholds)


def _rates_at(prices: Prices, threshold: int) -> dict[str, int]:
    return {name: [rate for start, rate in levels if start <= threshold][-1] for name, levels in prices.items()}
