"""A real collector over a ledger of 200 calls, today's and of the two days before, for the tests of what it answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from shim.line import Tokens, encode
from tests.e2e.programs import collector
from tests.page.conftest import Collector, running_collector
from tests.shim.test_line import LINE

DAY = 86_400
NOW = time.time()
TODAY, YESTERDAY = (datetime.fromtimestamp(at, UTC).date().isoformat() for at in (NOW, NOW - DAY))


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    folder = tmp_path_factory.mktemp("api")
    lines = [
        replace(
            LINE,
            id=f"b-{seq}",
            ts=NOW + (seq % 3 - 2) * DAY,
            session=f"s{seq % 40}",
            response=None,
            model=("gpt-5", "gpt-5-mini", "acme-unlisted-1")[seq % 3],
            tokens=Tokens(seq, 2 * seq, None, None, 3, 1),
        )
        for seq in range(1, 201)
    ]
    (folder / "usage.jsonl").write_bytes(b"".join(map(encode, lines)))
    with running_collector(folder) as found:
        collector(found.environ, "ingest")
        yield found
