"""The pricer that the settings describe: the operator's file before the bundled book."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

from collector.book import Book
from collector.override import load
from collector.pricing import Pricer
from shim.names import ConfigError, upstream_urls
from shim.places import ETC

PRICES: Final = ETC / "prices.yaml"


def pricer(settings: Mapping[str, str]) -> Pricer:
    """A pricer for resolved ``VM_USAGE_*`` settings.

    Raises ``ConfigError`` for a price file or a rate that cannot be used.
    """
    prices = settings.get("VM_USAGE_PRICES")
    overrides = load(Path(prices) if prices else PRICES)
    if prices and overrides is None:
        raise ConfigError(f"VM_USAGE_PRICES: there is no file {prices}; correct the path or unset it.")
    return Pricer(Book(), overrides, acu_rate(settings.get("VM_USAGE_ACU_USD")), upstream_urls(settings))


def acu_rate(text: str | None) -> Decimal | None:
    """USD of one ACU as written. Raises ``ConfigError`` for anything but a number from 0 on."""
    if not text:
        return None
    try:
        rate = Decimal(text)
    except InvalidOperation:
        rate = Decimal("NaN")
    if not rate.is_finite() or not 0 <= rate < 10**6:
        raise ConfigError(f"VM_USAGE_ACU_USD: {text} is not a price; give USD for one ACU, for example 2.25.")
    return rate
