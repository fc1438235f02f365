"""One pricer over the bundled book and the records that the pricing tests put through it."""

from datetime import UTC, datetime

from collector.book import Book
from collector.pricing import Priced, Pricer
from collector.record import Record
from shim.line import Tokens

BOOK = Book()
PRICER = Pricer(BOOK)


def at(text: str) -> float:
    """An ISO time without a zone as epoch seconds, UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOON = at("2026-11-18T12:00")  # a Wednesday, outside every peak window


def tokens(fresh=0, read=0, write=0, hour=0, output=0, reasoning=0):
    """Token classes that are all known unless given as ``None``."""
    return Tokens(fresh, read, write, hour, output, reasoning)


def record(model="claude-sonnet-4-5", count=None, *, runtime="picoclaw", ts=NOON, **rest):
    """A record of one call."""
    count = tokens(1000, output=100) if count is None else count
    return Record(runtime=runtime, key="k", session_id="s", ts=ts, tokens=count, model=model, **rest)


def line(upstream="anthropic", model="claude-sonnet-4-5", count=None, *, pricer=PRICER, **rest) -> Priced:
    """The price of a usage line's record."""
    return pricer.price(record(model, count, source="log", **rest), upstream)


def vendor(runtime, model, count=None, *, pricer=PRICER, **rest) -> Priced:
    """The price of a store's record."""
    return pricer.price(record(model, count, runtime=runtime, **rest))


def usd(dollars_per_million: str, count: int) -> int:
    """Pico-USD of so many tokens at a price in USD per million."""
    from decimal import Decimal

    return int(Decimal(dollars_per_million) * count * 10**6)
