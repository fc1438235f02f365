"""Money: whole pico-USD in, exact decimals out, and no amount that reads as something it is not."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import money

PICO = 10**12
amounts = st.integers(min_value=0, max_value=2**63 - 1)


@pytest.mark.parametrize(
    ("usd", "pico"),
    [
        ("0.064425", 64_425_000_000),
        (Decimal("1E-12"), 1),
        (0.1, PICO // 10),
        (3, 3 * PICO),
        ("0.0000000000005", 0),  # half-even below one pico
        ("0.0000000000015", 2),
        (0.039612, 39_612_000_000),
    ],
)
def test_dollars_become_whole_pico(usd, pico):
    assert money.to_pico(usd) == pico


@pytest.mark.parametrize("usd", [float("nan"), float("inf"), "NaN", True, "ten", "1e40"])
def test_what_is_no_amount_is_refused(usd):
    with pytest.raises(ValueError):
        money.to_pico(usd)


@given(amounts)
def test_decimal_out_and_in_again_loses_nothing(pico):
    assert money.to_pico(money.to_decimal(pico)) == pico
    assert money.to_pico(money.plain(pico)) == pico


@given(amounts)
def test_the_float_for_json_is_the_nearest_one(pico):
    assert money.to_usd(pico) == float(Decimal(pico) / PICO)


@given(st.decimals(min_value=0, max_value=1000, places=6))
def test_a_rate_of_six_decimals_is_exact(rate):
    assert money.rate_to_pico(rate) * money.MILLION == int(rate * PICO)


def test_feed_noise_in_a_rate_is_rounded_once():
    assert money.rate_to_pico(Decimal("0.18000000000000002")) == 180_000


@pytest.mark.parametrize(
    ("pico", "text"),
    [
        (None, "unknown"),
        (0, "$0.00"),
        (1, "<$0.0001"),
        (1234 * PICO + PICO // 2, "$1,234.50"),
        (75 * PICO // 10_000, "$0.0075"),
        (PICO // 10, "$0.10"),
        (-2 * PICO, "-$2.00"),
    ],
)
def test_amounts_as_people_see_them(pico, text):
    assert money.show(pico) == text


@given(amounts.filter(bool))
def test_an_amount_that_is_not_zero_never_reads_as_zero(pico):
    assert any(digit in "123456789" for digit in money.show(pico))


def test_unknown_is_null_in_json_and_empty_in_csv():
    assert money.to_usd(None) is None
    assert money.plain(None) == ""


def test_csv_has_every_digit_and_no_exponent():
    assert money.plain(1) == "0.000000000001"
    assert money.plain(100 * PICO) == "100"
