"""From the URL of a request to where it goes. Pure; the runtime and the upstream are told by the URL alone.

Three forms (CONTRACTS 5): ``/<runtime>/<upstream>/<path>``; ``/<upstream>/<path>`` where ``VM_USAGE_RUNTIME`` names the
runtime; and a provider's own path for clients that can only be given a host. The rest of the target goes on as it is,
byte for byte, after the upstream's own prefix.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from shim.line import NAME
from shim.names import UPSTREAM_PREFIX
from shim.upstreams import NEEDS_ADDRESS, Upstream
from shim.wires.paths import counting_endpoint, model_from_path, wire_of

# A provider's own path -> its upstream; the first that the path begins with counts.
BARE_PATHS: Final = (
    ("/v1/messages", "anthropic"),
    ("/v1/complete", "openai"),
    ("/v1/organizations", "anthropic"),
    ("/v1/projects/", "vertex"),
    ("/v1/publishers/", "vertex"),
    ("/v1beta1/", "vertex"),
    ("/v1internal", "code-assist"),
    ("/v1beta/", "gemini"),
    ("/v1alpha/", "gemini"),
    ("/upload/v1beta/", "gemini"),
    ("/v1/", "openai"),
    ("/v2/", "cohere"),
    ("/model/", "bedrock"),
    ("/api/v1/services/", "dashscope"),
    ("/compatible-mode/", "dashscope"),
    ("/api/v1/chat/completions", "openrouter"),
    ("/api/v1/responses", "openrouter"),
    ("/api/v1/messages", "openrouter"),
    ("/api/v1/", "lmstudio"),
    ("/api/v0/", "lmstudio"),
    ("/api/paas/", "zai"),
    ("/api/coding/", "zai"),
    ("/api/anthropic/", "zai"),
    ("/apps/anthropic/", "alibaba-coding"),
    ("/inference/v1/", "fireworks"),
    ("/api/", "ollama"),
    ("/completion", "llama-cpp"),
)


PATHS_KEPT: Final = 512


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads. ``runtime``: as the URL or the configuration names it, ``None`` where neither does.

    ``path``: as the upstream gets it. ``wire``: ``None`` for a path that is no model call. ``counting``: it only
    counts tokens. ``model``: as the path names it.
    """

    runtime: str | None
    upstream: Upstream
    path: str
    wire: str | None
    counting: bool
    model: str | None


class NoRoute(Exception):
    """A URL that leads nowhere. The message is one sentence naming what was not found."""


class Routes:
    """The routes of one configuration. ``runtimes``: known runtime keys; ``runtime``: ``VM_USAGE_RUNTIME``."""

    def __init__(
        self, upstreams: Mapping[str, Upstream], runtimes: Collection[str], runtime: str | None = None
    ) -> None:
        self._upstreams = upstreams
        self._runtimes = runtimes
        self._runtime = runtime
        # A client calls few paths. Queries are not kept: some vendors take keys in them.
        self._known: OrderedDict[str, Place] = OrderedDict()

    def find(self, target: str) -> tuple[Place, str]:
        """Where a target leads, and the target (path and query) that the upstream gets. Raises ``NoRoute``."""
        path, mark, query = target.partition("?")
        place = self._known.get(path)
        if place is None:
            place = self._known[path] = self._place(path)
            if len(self._known) > PATHS_KEPT:
                self._known.popitem(last=False)
        return place, place.path + mark + query if mark else place.path

    def _place(self, path: str) -> Place:
        first, rest = _split(path)
        second, tail = _split(rest)
        if first in self._upstreams and first not in self._runtimes:
            return self._at(self._runtime, first, rest)
        # Vendors' own paths name each other (/v1beta/openai/, /api/anthropic/): no runtime is called v1beta or api.
        bare = _bare_upstream(path) if first not in self._runtimes else None
        if bare is not None:
            return self._at(self._runtime, bare, path)
        if second in self._upstreams and NAME.fullmatch(first):
            return self._at(first, second, tail)
        raise NoRoute(_unknown(second if first in self._runtimes else first))

    def _at(self, runtime: str | None, name: str, tail: str) -> Place:
        upstream = self._upstreams[name]
        path = upstream.path(tail)
        wire = wire_of(path)
        model = model_from_path(wire, path) if wire is not None else None
        return Place(runtime, upstream, path, wire, counting_endpoint(path), model)


def _bare_upstream(path: str) -> str | None:
    """The upstream whose own path this is, ``None`` where it is nobody's."""
    return next((upstream for prefix, upstream in BARE_PATHS if path.startswith(prefix)), None)


def _split(path: str) -> tuple[str, str]:
    """The first segment of a path that begins with a slash, and the rest with its slash."""
    segment, slash, rest = path[1:].partition("/")
    return segment, slash + rest


def _unknown(name: str) -> str:
    if not NAME.fullmatch(name):
        return "The URL names no upstream."
    variable = UPSTREAM_PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())
    if name in NEEDS_ADDRESS:
        return f"The upstream {name} has no address: set {variable} to {NEEDS_ADDRESS[name]}."
    return f"There is no upstream {name}: set {variable} or mend the URL."
