"""The collector's ``/metrics``: one table of families, read from rollups alone: a scrape costs the same in any ledger.

Token kinds are disjoint: adding them up over all labels gives the tokens of all calls. No label is a session, a path or
a text of a user; models beyond ``MAX_MODELS`` are counted together as ``other``. A cost that is unknown is in no cost
family; the calls it is unknown of are counted by reason. Costs are one family per kind of money, because a bill and a
list price do not add up. A counter can fall when the ledger learns that a call was counted twice; Prometheus takes
that for a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from collector.book import Book
from collector.ledger import Group
from collector.money import to_usd
from collector.providers import LOCAL_UPSTREAMS, provider_of
from collector.query import ALL_RECORDS, Query
from shim.line import TOKEN_CLASSES

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_MODELS: Final = 100
OTHER: Final = "other"
UNKNOWN: Final = "unknown"

# Kind of token to the classes that are added and the subsets that are taken out of them. A cache write whose lifetime
# is not known counts as a five-minute one, which is what writes are unless they ask for more.
KINDS: Final[dict[str, tuple[str, str | None]]] = {
    "input_uncached": ("input_tokens", None),
    "cache_read": ("cache_read_tokens", None),
    "cache_write_5m": ("cache_write_tokens", "cache_write_1h_tokens"),
    "cache_write_1h": ("cache_write_1h_tokens", None),
    "output_text": ("output_tokens", "reasoning_tokens"),
    "output_reasoning": ("reasoning_tokens", None),
}
# The same by place in ``TOKEN_CLASSES``.
PLACES: Final = tuple(
    (name, TOKEN_CLASSES.index(whole), None if part is None else TOKEN_CLASSES.index(part))
    for name, (whole, part) in KINDS.items()
)
COSTS: Final = {
    "list_price": "usage_list_cost_usd",
    "billed": "usage_billed_cost_usd",
    "runtime_price": "usage_runtime_cost_usd",
}
WHO: Final = ("runtime", "provider", "model")


@dataclass(frozen=True, slots=True)
class Family:
    """One family: its name (``_total`` is added to counters), labels, help and whether it only grows."""

    name: str
    labels: tuple[str, ...]
    help: str
    counter: bool = True


FAMILIES: Final = (
    Family("usage_tokens", (*WHO, "kind"), "Tokens by disjoint kind; kinds add up to all tokens."),
    Family("usage_calls", (*WHO, "outcome"), "Calls (or a store's turns) by how they ended."),
    Family("usage_list_cost_usd", WHO, "Cost at list price, in USD, of the calls that have one."),
    Family("usage_billed_cost_usd", WHO, "Cost that vendors stated as charged, in USD."),
    Family("usage_runtime_cost_usd", WHO, "Cost by the runtimes' own price lists, in USD."),
    Family("usage_unpriced_calls", ("reason",), "Calls whose cost is unknown, by reason."),
    Family("usage_incomplete_calls", ("runtime",), "Calls whose cost is not, or not wholly, in the cost families."),
    Family("usage_refused_records", ("reason",), "Lines and records refused by the merge, by reason."),
    Family("usage_missing_lines", (), "Usage lines that were written and never arrived."),
    Family("usage_source_success", ("source",), "1 if every source of this kind was read last time.", counter=False),
    Family("usage_source_last_read_timestamp_seconds", ("source",), "When the source was last read.", counter=False),
    Family("usage_source_lag_bytes", ("source",), "Bytes not yet read.", counter=False),
    Family("usage_price_book_info", ("book",), "The price book in use.", counter=False),
)  # fmt: skip
Labels = tuple[str, ...]
Samples = dict[Labels, int | float]
Part = tuple[tuple[Labels, int | float], ...]


class Exposition:
    """What a scrape is answered with; the texts of the scrape before are kept. ``book``: else the bundled one."""

    def __init__(self, book: str | None = None) -> None:
        self._book = book
        # Of each family, by the first label of its parts: the samples and their text.
        self._last: dict[str, dict[Labels, tuple[Part, bytes]]] = {}

    def __call__(self, query: Query) -> bytes:
        """Every family in Prometheus's text format (``CONTENT_TYPE``)."""
        found = samples(query, self._book or Book().version)
        return b"".join(self._family(family, found[family.name]) for family in FAMILIES)

    def _family(self, family: Family, found: Samples) -> bytes:
        # By its first label, most often the runtime: between two scrapes few runtimes do anything.
        parts = {first: tuple(part) for first, part in groupby(sorted(found.items()), lambda sample: sample[0][:1])}
        before, now = self._last.get(family.name, {}), {}
        for first, part in (parts or {(): ()}).items():
            kept = before.get(first)
            now[first] = kept if kept is not None and kept[0] == part else (part, _text(family, part))
        self._last[family.name] = now
        text, *others = [text for _, text in now.values()]
        return text + b"".join(other.split(b"\n", 2)[2] for other in others)  # HELP and TYPE are there already


def _text(family: Family, part: Part) -> bytes:
    """These samples of a family, and what it is."""
    # A collector that nobody scrapes does without it.
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(family, part))
    return generate_latest(registry)


class _Scrape:
    """Samples of one family, as a scrape collects them."""

    def __init__(self, family: Family, part: Part) -> None:
        self._family = family
        self._part = part

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        kind = CounterMetricFamily if self._family.counter else GaugeMetricFamily
        metric = kind(self._family.name, self._family.help, labels=self._family.labels)
        for labels, value in self._part:
            metric.add_metric(labels, value)
        yield metric


def samples(query: Query, book: str) -> dict[str, Samples]:
    """Every family's samples by label values."""
    ledger = query.ledger
    groups = ledger.groups(("runtime", "upstream", "model"), ALL_RECORDS)
    who = _labels(groups)
    found: dict[str, Samples] = {family.name: {} for family in FAMILIES}
    for group in groups:
        _count(found, who(group.key), group)
    for name in COSTS.values():  # summed as whole pico-USD, shown as the nearest float
        found[name] = {labels: to_usd(int(pico)) or 0.0 for labels, pico in found[name].items()}
    found["usage_refused_records"] = {(reason,): count for reason, count in ledger.refused_counts().items()}
    found["usage_missing_lines"][()] = sum(gap.lines for gap in ledger.gaps())
    _sources(found, query)
    found["usage_price_book_info"][(book,)] = 1
    return found


def _count(found: dict[str, Samples], who: tuple[str, ...], group: Group) -> None:
    kind = group.kind
    _add(found["usage_calls"], (*who, kind.outcome), group.calls)
    if not kind.counted:
        return
    sums, by_kind = group.sums, found["usage_tokens"]
    for name, whole, part in PLACES:
        if tokens := sums[whole] - (0 if part is None else sums[part]):
            _add(by_kind, (*who, name), tokens)
    if group.priced and kind.cost_basis in COSTS:
        _add(found[COSTS[kind.cost_basis]], who, group.cost_pico)
    if kind.reason is not None:
        _add(found["usage_unpriced_calls"], (kind.reason,), group.calls)
    if kind.cost_status not in ("exact", "estimated"):
        _add(found["usage_incomplete_calls"], (who[0],), group.calls)


def _labels(groups: Sequence[Group]) -> Callable[[tuple[Any, ...]], tuple[str, ...]]:
    """Runtime, provider and model of a group's key as bounded label values."""
    calls: Counter[str] = Counter()
    for group in groups:
        calls[group.key[2] or UNKNOWN] += group.calls
    ranked = sorted(calls, key=lambda model: (-calls[model], model))
    shown = frozenset(ranked[:MAX_MODELS])

    @cache
    def labels(key: tuple[Any, ...]) -> tuple[str, ...]:
        runtime, upstream, model = key
        lists = provider_of(runtime, None, upstream, model or "")
        provider = lists[0].provider if lists else upstream if upstream in LOCAL_UPSTREAMS else UNKNOWN
        name = model or UNKNOWN
        return runtime, provider, name if name in shown else OTHER

    return labels


def _sources(found: dict[str, Samples], query: Query) -> None:
    for source in query.sources():
        label = (source.kind if source.runtime is None else f"{source.kind}:{source.runtime}",)
        success = found["usage_source_success"]
        success[label] = min(success.get(label, 1), int(source.ok))
        _add(found["usage_source_lag_bytes"], label, source.lag_bytes)
        if source.last_read_at is not None:
            read = found["usage_source_last_read_timestamp_seconds"]
            read[label] = max(read.get(label, 0), datetime.fromisoformat(source.last_read_at).timestamp())


def _add(family: Samples, labels: tuple[str, ...], value: int) -> None:
    family[labels] = family.get(labels, 0) + value
