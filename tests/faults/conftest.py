"""A provider and a shim in front of it, for every test that damages something."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.e2e.programs import Shim, running_shim
from tests.faults.upstream import Upstream

Start = Callable[..., AbstractContextManager[Shim]]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture
def start(tmp_path: Path, upstream: Upstream) -> Start:
    """Starts a shim over the test's folder; again and again where a test wants restarts."""

    def begin(**settings: str) -> AbstractContextManager[Shim]:
        return running_shim(tmp_path, {"OPENAI": upstream.url}, **settings)

    return begin


@pytest.fixture
def shim(start: Start) -> Iterator[Shim]:
    with start() as running:
        yield running
