"""What was ingested: ledger, stores, gaps, quarantine, refusals and the age of the price book."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Final

from collector.doctor import NOTE, OK, WRONG, Finding, Ward

# The day the pinned price book was last chosen (pyproject.toml pins it; the book itself carries no date).
BOOK_CHOSEN: Final = date(2026, 11, 30)
BOOK_DAYS: Final = 90
SHOWN: Final = 5


def ledger(ward: Ward) -> Iterator[Finding]:
    """Whether the ledger can be opened."""
    if ward.ledger_error:
        yield Finding("ledger", WRONG, ward.ledger_error, "usage-collector ingest")
    elif ward.query is None:
        yield Finding("ledger", NOTE, f"{ward.settings.db} does not exist yet", "usage-collector ingest")
    else:
        yield Finding("ledger", OK, str(ward.settings.db))


def stores(ward: Ward) -> Iterator[Finding]:
    """Which session stores were found, and which could not be read."""
    if ward.query is None:
        return
    sources = ward.query.sources()
    by: dict[str, int] = {}
    for source in sources:
        if source.ok and source.runtime:
            by[source.runtime] = by.get(source.runtime, 0) + 1
    if by:
        yield Finding("stores", OK, "read: " + ", ".join(f"{name} {count}" for name, count in sorted(by.items())))
    else:
        yield Finding("stores", NOTE, "no session store was found in the homes that are read", "usage-collector stores")
    broken = [source for source in sources if not source.ok]
    for source in broken[:SHOWN]:
        yield Finding("stores", WRONG, f"{source.path}: {source.error}", f"ls -l {source.path}")
    if len(broken) > SHOWN:
        yield Finding("stores", WRONG, f"{len(broken) - SHOWN} more cannot be read", "usage-collector status --json")


def gaps(ward: Ward) -> Iterator[Finding]:
    """Whether usage lines are missing or were put aside."""
    if ward.query is None:
        return
    missing = ward.query.gaps()
    if missing:
        lines = sum(gap.lines for gap in missing)
        yield Finding("lines", WRONG, f"{lines} usage lines are missing ({len(missing)} gaps)", "usage-shim status")
    aside = ward.query.quarantine(SHOWN)
    for row in aside:
        where = f"{row.path} at byte {row.offset}" + (f", line {row.line}" if row.line else "")
        yield Finding(
            "lines", WRONG, f"put aside ({row.reason}): {where}", f"tail -c +{row.offset + 1} {row.path} | head -1"
        )


def refusals(ward: Ward) -> Iterator[Finding]:
    """What was refused because it would count twice or is not metered."""
    if ward.query is None:
        return
    for row in ward.query.refused()[:SHOWN]:
        yield Finding("refused", NOTE, f"{row.count} records of {row.runtime}: {row.reason}", "usage-collector status")


def price_book(ward: Ward) -> Iterator[Finding]:
    """How old the price book is."""
    days = (datetime.fromtimestamp(ward.now, UTC).date() - BOOK_CHOSEN).days
    if days > BOOK_DAYS:
        yield Finding(
            "prices",
            NOTE,
            f"the price book is {days} days old; newer models have no price in it",
            "apt-get upgrade vm-usage",
        )
    else:
        yield Finding("prices", OK, f"price book chosen on {BOOK_CHOSEN}")


CHECKS: Final = (
    ("ledger", ledger),
    ("stores", stores),
    ("lines", gaps),
    ("refused", refusals),
    ("prices", price_book),
)
