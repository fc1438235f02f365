"""One provider and one shim process for all tests of a module that only send requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.programs import Shim, running_shim
from tests.fake_upstream import EMPTY, FakeUpstream


@pytest.fixture(scope="module")
def module_upstream() -> Iterator[FakeUpstream]:
    with FakeUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def module_shim(module_upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shim]:
    names = dict.fromkeys(("OPENAI", "ANTHROPIC", "GEMINI", "OLLAMA", "BEDROCK", "OPENROUTER"), module_upstream.url)
    with running_shim(tmp_path_factory.mktemp("shim"), names) as running:
        yield running


@pytest.fixture
def provider(module_upstream: FakeUpstream) -> FakeUpstream:
    """The module's provider, with nothing remembered and its default script."""
    module_upstream.got.clear()
    module_upstream.answers(EMPTY)
    return module_upstream


@pytest.fixture
def shim(module_shim: Shim, provider: FakeUpstream) -> Shim:
    """The module's shim, in front of ``provider``."""
    return module_shim
