"""OpenTelemetry metrics over OTLP/HTTP: the ledger's sums as cumulative counters, for any OpenTelemetry collector.

The names are one table with two sets: ``1.41`` is what backends know, ``latest`` what the GenAI conventions say after
they moved to a repository of their own. In both, cache and reasoning tokens are *subsets* of input and output, unlike
in the ledger and in Prometheus. There is no convention for cost, so it stands in our own namespace, one metric per
basis of money: adding them up would add a bill to a list price. A token class that is not known has no point.
Durations are not exported: the rollups that this reads do not keep them.
"""

# The names below were read at these revisions; both sets are "Development" there and may still change.
# 1.41:   https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai
# latest: https://github.com/open-telemetry/semantic-conventions-genai/blob/32c328e85013588c6fe32ebc30934ab5b1752b6a
#         /docs/gen-ai/non-normative/migration.md

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any, Final

from collector.ledger import Group
from collector.money import to_usd
from collector.providers import provider_of
from shim import __version__
from shim.line import TOKEN_CLASSES

# What a data point counts, to the classes whose sum it is; the first class must be known.
INPUT: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
OUTPUT: Final = ("output_tokens",)


@dataclass(frozen=True, slots=True)
class Name:
    """One metric of a set: its name, the classes it sums, extra attributes, and whether it is a histogram."""

    metric: str
    classes: tuple[str, ...]
    attributes: Mapping[str, str]
    histogram: bool = False


_MODALITY: Final = {"gen_ai.token.modality": "unknown"}
_USAGE: Final = "gen_ai.client.inference.usage"
NAMES: Final[Mapping[str, tuple[Name, ...]]] = {
    "1.41": (
        Name("gen_ai.client.token.usage", INPUT, {"gen_ai.token.type": "input"}, histogram=True),
        Name("gen_ai.client.token.usage", OUTPUT, {"gen_ai.token.type": "output"}, histogram=True),
    ),
    "latest": (
        Name(f"{_USAGE}.input_tokens", INPUT, _MODALITY),
        Name(f"{_USAGE}.output_tokens", OUTPUT, _MODALITY),
        Name(f"{_USAGE}.cache_read.input_tokens", ("cache_read_tokens",), _MODALITY),
        Name(f"{_USAGE}.cache_write.input_tokens", ("cache_write_tokens",), _MODALITY),
        Name(f"{_USAGE}.reasoning.output_tokens", ("reasoning_tokens",), _MODALITY),
    ),
}
# Providers of our tables to gen_ai.provider.name; others go by their own name.
PROVIDER_NAMES: Final = {
    "google": "gcp.gemini",
    "aws": "aws.bedrock",
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "x-ai": "x_ai",
}
COSTS: Final = {"list_price": "usage.cost.list", "billed": "usage.cost.billed", "runtime_price": "usage.cost.runtime"}
CUMULATIVE: Final = 2
POINTS_PER_REQUEST: Final = 2_000

Point = tuple[str, str, bool, dict[str, Any]]


def requests(groups: Iterable[Group], names: str, start: float, now: float) -> Iterator[dict[str, Any]]:
    """Export requests in OTLP's JSON form from ``Query.groups``; each has at most ``POINTS_PER_REQUEST``.

    ``names`` is a key of ``NAMES``; ``start`` (of the counting) and ``now`` are epoch seconds.
    """
    times = {"startTimeUnixNano": str(int(start * 1e9)), "timeUnixNano": str(int(now * 1e9))}
    for vm, own in groupby(groups, lambda group: group.key[0]):
        found: dict[tuple[Any, ...], list[Group]] = {}
        for group in own:
            found.setdefault(group.key, []).append(group)
        points = chain.from_iterable(_points(key, found[key], names) for key in sorted(found, key=str))
        while part := list(islice(points, POINTS_PER_REQUEST)):
            yield _request(vm, part, times)


def protobuf(request: Mapping[str, Any]) -> bytes:
    """A request in OTLP's binary form. Raises ``ImportError`` without the ``otlp`` extra."""
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    message: bytes = ParseDict(dict(request), ExportMetricsServiceRequest()).SerializeToString()
    return message


def _points(key: tuple[Any, ...], groups: Sequence[Group], names: str) -> Iterator[Point]:
    """(metric, unit, histogram, point) of everything that is known of one vm, runtime, upstream and model."""
    shared = _attributes(key)
    counted = [group for group in groups if group.kind.counted]
    for name in NAMES[names]:
        total, known = _tokens(counted, name.classes)
        if known:
            number = {"count": str(known), "sum": float(total), "bucketCounts": [str(known)], "explicitBounds": []}
            point = _point(shared, number if name.histogram else total, **name.attributes)
            yield name.metric, "{token}", name.histogram, point
    for basis, metric in COSTS.items():
        priced = [group for group in counted if group.priced and group.kind.cost_basis == basis]
        if priced:
            yield metric, "{USD}", False, _point(shared, to_usd(sum(group.cost_pico for group in priced)))
    outcomes = sorted({group.kind.outcome for group in groups})
    for outcome in outcomes:
        calls = sum(group.calls for group in groups if group.kind.outcome == outcome)
        yield "usage.calls", "{call}", False, _point(shared, calls, **{"usage.outcome": outcome})
    unknown = sum(group.calls for group in counted if group.kind.cost_status not in ("exact", "estimated"))
    yield "usage.calls.unknown_cost", "{call}", False, _point(shared, unknown)


def _tokens(groups: Sequence[Group], classes: tuple[str, ...]) -> tuple[int, int]:
    """The sum over classes and how many records know the first of them."""
    places = [TOKEN_CLASSES.index(name) for name in classes]
    total = sum(group.sums[place] for group in groups for place in places)
    return total, sum(group.known[places[0]] for group in groups)


def _attributes(key: tuple[Any, ...]) -> list[dict[str, Any]]:
    _, runtime, upstream, model = key
    lists = provider_of(runtime, None, upstream, model or "")
    provider = lists[0].provider if lists else upstream or "unknown"
    named = {"gen_ai.request.model": model, "gen_ai.response.model": model} if model else {}
    return _list(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDER_NAMES.get(provider, provider),
            "usage.runtime": runtime,
            **named,
        }
    )


def _point(shared: Sequence[dict[str, Any]], number: Any, **more: str) -> dict[str, Any]:
    """A data point; ``more``: attributes beside those that it shares with others."""
    if not isinstance(number, dict):
        number = {"asInt": str(number)} if isinstance(number, int) else {"asDouble": number}
    return {"attributes": [*shared, *_list(more)], **number}


def _list(attributes: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in attributes.items()]


def _request(vm: str, points: Iterable[Point], times: Mapping[str, str]) -> dict[str, Any]:
    metrics: dict[str, dict[str, Any]] = {}
    for metric, unit, histogram, point in points:
        kind = "histogram" if histogram else "sum"
        form = {"dataPoints": [], "aggregationTemporality": CUMULATIVE} | ({} if histogram else {"isMonotonic": True})
        made = metrics.setdefault(metric, {"name": metric, "unit": unit, kind: form})
        made[kind]["dataPoints"].append(point | dict(times))
    resource = {"service.name": "vm-usage", "service.version": __version__, "host.name": vm}
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": _list(resource)},
                "scopeMetrics": [
                    {"scope": {"name": "vm-usage", "version": __version__}, "metrics": list(metrics.values())}
                ],
            }
        ]
    }
