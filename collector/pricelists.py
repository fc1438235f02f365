"""The pricer that the settings describe: the operator's file before the bundled book."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from collector.book import Book
from collector.override import load
from collector.pricing import Pricer
from collector.settings import Settings
from shim.names import ConfigError
from shim.places import ETC


def pricer(settings: Settings) -> Pricer:
    """The pricer for these settings. Raises ``ConfigError`` for a price file or a rate that cannot be used."""
    overrides = load(settings.prices)
    if overrides is None and settings.prices != ETC / "prices.yaml":
        raise ConfigError(f"VM_USAGE_PRICES: there is no file {settings.prices}; correct the path or unset it.")
    return Pricer(Book(), overrides, acu_rate(settings.acu_usd), settings.upstream_urls)


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
