"""Money is an integer number of pico-USD (1 USD = 10**12) from where it is read to where it is shown.

A rate of up to six decimals per million tokens is a whole number of pico-USD per token, so every cost and every sum is
exact. A float is accepted only as JSON delivers it (its shortest decimal is what the source wrote) and made only for
JSON on the way out; no sum is ever taken over floats.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Final

from collector.record import PICO

MILLION: Final = 10**6
UNKNOWN: Final = "unknown"
# 40 digits hold every amount a ledger can hold (19 digits of pico-USD) with room; the machine's context is not used.
_EXACT: Final = Context(prec=40, rounding=ROUND_HALF_EVEN)


def to_pico(usd: Decimal | str | int | float) -> int:
    """USD as pico-USD, rounded half-even below one pico.

    Raises ``ValueError`` for anything that is not a finite amount (a bool, NaN, an infinity, other text).
    """
    if isinstance(usd, bool):
        raise ValueError("a bool is not an amount of money")
    try:
        amount = Decimal(repr(usd) if isinstance(usd, float) else usd)
    except InvalidOperation:
        raise ValueError(f"{usd!r} is not an amount of money") from None
    if not amount.is_finite():
        raise ValueError(f"{usd!r} is not an amount of money")
    try:
        return int(_EXACT.quantize(amount.scaleb(12, _EXACT), Decimal(1)))
    except InvalidOperation:
        raise ValueError(f"{usd!r} is more money than a ledger can hold") from None


def rate_to_pico(usd_per_million: Decimal | str | int) -> int:
    """A price in USD per million tokens as pico-USD per token, rounded half-even once, here.

    Only feed noise has more than six decimals (0.18000000000000002), so nothing real is lost.
    """
    return int(_EXACT.quantize(Decimal(usd_per_million).scaleb(6, _EXACT), Decimal(1)))


def to_decimal(pico: int) -> Decimal:
    """Pico-USD as an exact decimal number of USD, without trailing zeros or an exponent."""
    whole = Decimal(pico).scaleb(-12, _EXACT)
    return whole.quantize(Decimal(1)) if whole == whole.to_integral_value() else whole.normalize(_EXACT)


def to_usd(pico: int | None) -> float | None:
    """Pico-USD as the float nearest to it, for JSON only; ``None`` stays ``None``."""
    return None if pico is None else pico / PICO


def plain(pico: int | None) -> str:
    """For CSV: every digit, no sign of currency, no exponent; empty where the cost is unknown."""
    return "" if pico is None else format(to_decimal(pico), "f")


def show(pico: int | None) -> str:
    """For people: ``$1,234.50`` with cents, more digits below ten cents, ``<$0.0001``, ``unknown`` for ``None``.

    An amount that is not zero never reads as ``$0.00``.
    """
    if pico is None:
        return UNKNOWN
    sign, amount = ("-" if pico < 0 else ""), abs(pico)
    if amount == 0 or amount >= PICO // 10:
        return f"{sign}${Decimal(amount).scaleb(-12, _EXACT).quantize(Decimal('0.01'), context=_EXACT):,}"
    if amount < PICO // 10**4:
        return f"{sign}<$0.0001"
    return f"{sign}${Decimal(amount).scaleb(-12, _EXACT).quantize(Decimal('0.0001'), context=_EXACT)}"
