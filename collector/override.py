"""The operator's own prices (``/etc/vm-usage/prices.yaml``), with effective dates; they come before the price book.

Read strictly: an unknown key, a key given twice, a price that is not a number, two rows that say different things about
the same calls at the same time are errors that name file, line and key, because a price that is silently not applied is
worse than a collector that does not start. ``deploy/prices.example.yaml`` shows every key. A figure made with these
prices is ``estimated`` with the caveat ``configured_rate``: nobody outside has checked the rate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import yaml

from collector.book import STANDARD_TIERS
from collector.honesty import join_caveats
from collector.money import rate_to_pico, to_pico
from collector.rates import CLASSES, Card, Rates
from shim.line import SERVICE_TIERS
from shim.names import ConfigError

VERSION: Final = 1
ROW_KEYS: Final = frozenset(
    {
        "model",
        "provider",
        "runtime",
        "service_tier",
        "from",
        "until",
        "usd_per_million",
        "usd_per_request",
        "above",
        "note",
    }
)
STEP_KEYS: Final = frozenset({"input_tokens", "usd_per_million"})


@dataclass(frozen=True, slots=True)
class Price:
    """One row of the file. ``start`` (inclusive) and ``end`` (exclusive) are epoch seconds, ``None`` where open.

    ``model`` may end in ``*``; ``provider``, ``runtime`` and ``tier`` are ``None`` where the row holds for any.
    """

    line: int
    model: str
    provider: str | None
    runtime: str | None
    tier: str | None
    start: float | None
    end: float | None
    steps: tuple[tuple[int, Rates], ...]

    def fits(self, names: tuple[str, ...], runtime: str, model: str) -> bool:
        """Whether the row is about this model of this provider in this runtime."""
        wanted, given = self.model.lower(), model.lower()
        if not (given.startswith(wanted[:-1]) if wanted.endswith("*") else given == wanted):
            return False
        return self.runtime in (None, runtime) and (self.provider is None or _same_name(self.provider, names))

    def holds(self, ts: float) -> bool:
        """Whether the row is in force at ``ts`` (epoch seconds)."""
        return (self.start is None or ts >= self.start) and (self.end is None or ts < self.end)

    def overlaps(self, other: Price) -> bool:
        """Whether both rows are in force at some moment."""
        starts_late = self.end is not None and other.start is not None and other.start >= self.end
        ends_early = other.end is not None and self.start is not None and self.start >= other.end
        return not (starts_late or ends_early)


def _same_name(provider: str, names: tuple[str, ...]) -> bool:
    return provider.lower().replace("_", "-") in {name.lower().replace("_", "-") for name in names}


@dataclass(slots=True)
class _Row:
    """The rows that are about one kind of call, in the order of the file."""

    prices: tuple[Price, ...]
    version: str
    tier: str | None
    _cards: dict[int, Card] = field(default_factory=dict)

    def at(self, ts: float) -> Card | None:
        """The rates of the first row in force at ``ts``, ``None`` if there is none."""
        place = next((place for place, one in enumerate(self.prices) if one.holds(ts)), None)
        if place is None:
            return None
        if place not in self._cards:
            self._cards[place] = self._card(self.prices[place])
        return self._cards[place]

    def _card(self, price: Price) -> Card:
        loose = price.tier is None and self.tier not in STANDARD_TIERS
        caveat = join_caveats(("configured_rate", "tier_not_priced" if loose else None))
        return Card(price.steps, price.provider or "any", price.model, self.version, caveat)


@dataclass(frozen=True, slots=True)
class Overrides:
    """The whole file. ``version`` is the hash that is kept with every record priced by it."""

    prices: tuple[Price, ...]
    version: str

    def find(self, names: tuple[str, ...], runtime: str, model: str, tier: str | None) -> _Row | None:
        """The row for a model; a row that names the served tier goes before one that names none."""
        fitting = [price for price in self.prices if price.fits(names, runtime, model)]
        same = [price for price in fitting if price.tier is not None and price.tier == tier]
        same += [price for price in fitting if price.tier is None]
        return _Row(tuple(same), self.version, tier) if same else None


def load(path: Path) -> Overrides | None:
    """The operator's prices; ``None`` where there is no such file.

    Raises ``ConfigError`` naming file, line and key.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give usage-collector the right to.") from error
    return parse(data, str(path))


def parse(data: bytes, name: str) -> Overrides:
    """The text of a price file; ``name`` is how errors call it. Raises ``ConfigError``."""
    try:
        root = yaml.compose(data.decode(), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: is not UTF-8; save it as UTF-8.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{name}{line}: is not YAML; mind indentation and colons.") from error
    reader = _Reader(name)
    prices = reader.prices(root)
    digest = hashlib.sha256(data).hexdigest()[:12]
    return Overrides(prices, f"prices.yaml sha256:{digest}")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turns YAML nodes, which know their line, into rows; every refusal names file, line and key."""

    name: str

    def prices(self, root: yaml.Node | None) -> tuple[Price, ...]:
        """All rows of the document, none contradicting another."""
        if root is None:
            return ()
        top = self.mapping(root, frozenset({"version", "prices"}))
        version = top.get("version")
        if version is None or self.scalar(version) != VERSION:
            raise self.error(version or root, "version", f"must be {VERSION}")
        rows = top.get("prices")
        if rows is None or not isinstance(rows, yaml.SequenceNode):
            raise self.error(rows or root, "prices", "must be a list of rows")
        prices = tuple(self.price(node) for node in rows.value)
        self._no_contradiction(prices)
        return prices

    def price(self, node: yaml.Node) -> Price:
        """One row."""
        row = self.mapping(node, ROW_KEYS)
        if "model" not in row or "usd_per_million" not in row:
            missing = "model" if "model" not in row else "usd_per_million"
            raise self.error(node, missing, "is missing")
        start, end = self.moment(row, "from"), self.moment(row, "until")
        if start is not None and end is not None and end <= start:
            raise self.error(row["until"], "until", "must be later than from")
        return Price(
            line=node.start_mark.line + 1,
            model=self.text(row, "model") or "",
            provider=self.text(row, "provider"),
            runtime=self.text(row, "runtime"),
            tier=self.tier(row),
            start=start,
            end=end,
            steps=self.steps(row),
        )

    def steps(self, row: Mapping[str, yaml.Node]) -> tuple[tuple[int, Rates], ...]:
        """The row's rates, with the ones above each threshold; a threshold's row repeats only what changes."""
        base = self.rates(row["usd_per_million"])
        if "usd_per_request" in row:
            base["request"] = self.money(row["usd_per_request"], "usd_per_request", per_million=False)
        found = [(0, Rates(**base))]
        above = row.get("above")
        if above is None:
            return tuple(found)
        if not isinstance(above, yaml.SequenceNode):
            raise self.error(above, "above", "must be a list")
        for node in above.value:
            step = self.mapping(node, STEP_KEYS)
            if "input_tokens" not in step or "usd_per_million" not in step:
                raise self.error(node, "above", "needs input_tokens and usd_per_million")
            threshold = self.scalar(step["input_tokens"])
            if type(threshold) is not int or threshold <= found[-1][0]:
                raise self.error(step["input_tokens"], "input_tokens", "must be a whole number above the one before")
            found.append((threshold, Rates(**{**base, **self.rates(step["usd_per_million"])})))
        return tuple(found)

    def rates(self, node: yaml.Node) -> dict[str, int]:
        """Pico-USD per token by class; at least one."""
        given = self.mapping(node, frozenset(CLASSES))
        if not given:
            raise self.error(node, "usd_per_million", "must price at least one of " + ", ".join(CLASSES))
        return {key: self.money(value, key, per_million=True) for key, value in given.items()}

    def money(self, node: yaml.Node, key: str, *, per_million: bool) -> int:
        """A price as written, never through a float."""
        try:
            amount = Decimal(node.value) if isinstance(node, yaml.ScalarNode) else Decimal("NaN")
        except InvalidOperation:
            amount = Decimal("NaN")
        if not amount.is_finite() or not 0 <= amount < 10**6:
            raise self.error(node, key, "must be a price in USD, a number from 0 on")
        return rate_to_pico(amount) if per_million else to_pico(amount)

    def tier(self, row: Mapping[str, yaml.Node]) -> str | None:
        """The served tier of a row, of the line's vocabulary."""
        tier = self.text(row, "service_tier")
        if tier is not None and tier not in SERVICE_TIERS:
            raise self.error(row["service_tier"], "service_tier", "must be one of " + ", ".join(SERVICE_TIERS))
        return tier

    def text(self, row: Mapping[str, yaml.Node], key: str) -> str | None:
        """A text that is not empty, ``None`` where the key is absent."""
        if key not in row:
            return None
        node = row[key]
        if not isinstance(node, yaml.ScalarNode) or not node.value or node.tag.endswith(":null"):
            raise self.error(node, key, "must be a name")
        return str(node.value)

    def moment(self, row: Mapping[str, yaml.Node], key: str) -> float | None:
        """A date (its UTC midnight) or a time with its zone, as epoch seconds."""
        if key not in row:
            return None
        value = self.scalar(row[key])
        if isinstance(value, datetime):
            if value.second or value.microsecond:  # a verdict may be remembered for a minute
                raise self.error(row[key], key, "must be a whole minute")
            return value.replace(tzinfo=value.tzinfo or UTC).timestamp()
        if isinstance(value, date):
            return datetime.combine(value, datetime.min.time(), UTC).timestamp()
        raise self.error(row[key], key, "must be a date like 2026-01-31 or a time like 2026-01-31T12:00:00Z")

    def scalar(self, node: yaml.Node) -> Any:
        """The value of a scalar node as YAML 1.1 reads it."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, "value", "must be a single value")
        try:
            return yaml.SafeLoader("").construct_object(node)
        except (ValueError, yaml.YAMLError):
            raise self.error(node, node.value, "is not a value YAML can read") from None

    def mapping(self, node: yaml.Node, allowed: frozenset[str]) -> dict[str, yaml.Node]:
        """The entries of a mapping, every key known and given once."""
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, "row", "must have keys: " + ", ".join(sorted(allowed)))
        found: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = str(getattr(key_node, "value", ""))
            if key not in allowed:
                raise self.error(key_node, key, "is not known here; the keys are " + ", ".join(sorted(allowed)))
            if key in found:
                raise self.error(key_node, key, "is given twice")
            found[key] = value
        return found

    def error(self, node: yaml.Node, key: str, what: str) -> ConfigError:
        """A refusal that says where."""
        return ConfigError(f"{self.name}:{node.start_mark.line + 1}: {key} {what}.")

    def _no_contradiction(self, prices: tuple[Price, ...]) -> None:
        for place, one in enumerate(prices):
            for other in prices[:place]:
                about = (one.model.lower(), one.provider, one.runtime, one.tier)
                if about == (other.model.lower(), other.provider, other.runtime, other.tier) and one.overlaps(other):
                    raise ConfigError(
                        f"{self.name}:{one.line}: model {one.model} has another price at the same time in line "
                        f"{other.line}; give the older row an until."
                    )
