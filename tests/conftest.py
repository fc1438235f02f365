"""Fixtures of more than one folder: a provider of raw bytes, and shim processes in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from tests.e2e.programs import Shim, running_shim
from tests.fake_upstream import FakeUpstream

StartShim = Callable[..., Shim]


@pytest.fixture
def upstream() -> Iterator[FakeUpstream]:
    """A provider that does what the test writes in ``script``."""
    with FakeUpstream() as running:
        yield running


@pytest.fixture
def shim_process(tmp_path: Path, upstream: FakeUpstream) -> Iterator[StartShim]:
    """Starts a shim process with ``upstream`` as openai and anthropic; keywords are further settings."""
    with ExitStack() as stack:

        def start(runtime: str | None = None, **settings: str) -> Shim:
            both = {"OPENAI": upstream.url, "ANTHROPIC": upstream.url}
            program: AbstractContextManager[Shim] = running_shim(tmp_path, both, runtime, **settings)
            return stack.enter_context(program)

        yield start
