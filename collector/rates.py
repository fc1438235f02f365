"""A price as integers: rates in pico-USD per token, chosen by the size of the whole request, and what a call costs.

Pure arithmetic (PRICING): the four disjoint classes at their own rates, a class without a rate at its parent's (cache
reads and writes at the input rate, reasoning at the output rate). A threshold moves *all* tokens of the request to the
higher rate. The price library is the oracle of this file in the tests.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from collector.honesty import join_caveats
from shim.line import Tokens

CLASSES: Final = ("input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning")
# More input, or output, than this in one record is a broken source, not a call; it also keeps costs far inside 64 bits.
MAX_PLAUSIBLE_TOKENS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Rates:
    """Pico-USD per token of each class, ``None`` where the list has no such price; ``request``: per request."""

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    output: int | None = None
    reasoning: int | None = None
    request: int = 0


@dataclass(frozen=True)
class Card:
    """The rates of one model at one time in one tier of service.

    ``steps``: (threshold in input tokens, rates), ascending from 0; the last step whose threshold is *below* the
    request's whole input applies to all its tokens. ``caveat``: what is approximate about this card.
    """

    steps: tuple[tuple[int, Rates], ...]
    provider: str
    matched_model: str
    book: str
    caveat: str | None = None
    basis: str = field(default="list_price")

    def rates(self, whole_input: int) -> Rates:
        """The rates for a request with this many input tokens, cache included."""
        found = self.steps[0][1]
        for threshold, rates in self.steps[1:]:
            if whole_input > threshold:
                found = rates
        return found

    def charge(self, tokens: Tokens, grain: str = "call", usage: str = "reported") -> Charge:
        """What this card makes of a record's tokens; ``grain`` and ``usage`` as in ``collector.record.Record``."""
        rates, caveat = self._step(_whole_input(tokens), grain)
        pico = _input_cost(rates, tokens) + _output_cost(rates, tokens)
        missing = _missing(rates, tokens, usage)
        unsure = _unsure(rates, tokens)
        if caveat or missing or unsure or self.caveat:
            caveat = join_caveats((self.caveat, caveat, *missing, *unsure))
        if missing and pico == 0:
            return Charge(None, False, caveat)  # what is priced of it costs nothing: no figure, least of all a zero
        if rates.request and grain == "call":
            pico += rates.request
        return Charge(pico, not missing, caveat)

    def _step(self, whole_input: int, grain: str) -> tuple[Rates, str | None]:
        """The rates for a record, and ``tier_unknown`` where it sums requests whose sizes decide the price."""
        if grain == "call":
            return self.rates(whole_input), None
        base = self.steps[0][1]
        depends = base.request or (len(self.steps) > 1 and whole_input > self.steps[1][0])
        return base, "tier_unknown" if depends else None

    def meters(self, tokens: Tokens, grain: str = "call") -> list[tuple[str, int, int | None]]:
        """A record cut into what is charged apart: (meter, quantity, pico-USD each or ``None`` without a price).

        Their products add up to ``charge``. Meters are ``CLASSES`` made disjoint, and ``request``.
        """
        rates, _ = self._step(_whole_input(tokens), grain)
        found = [(name, count, _rate_of(rates, name)) for name, count in disjoint(tokens)]
        if rates.request and grain == "call":
            found.append(("request", 1, rates.request))
        return found

    @cached_property
    def data(self) -> str:
        """The rates as canonical JSON, to be kept beside the records that were priced with them."""
        steps = [
            {"above_input_tokens": threshold}
            | {name: rate for name in CLASSES if (rate := getattr(rates, name)) is not None}
            | ({"request": rates.request} if rates.request else {})
            for threshold, rates in self.steps
        ]
        body = {"book": self.book, "provider": self.provider, "model": self.matched_model, "pico_usd": steps}
        return json.dumps(body, sort_keys=True, separators=(",", ":"))

    @cached_property
    def id(self) -> str:
        """A short hash of ``data``: the same rates of the same book have the same id everywhere."""
        return hashlib.sha256(self.data.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Charge:
    """What a card makes of a call: pico-USD or ``None``, whether that covers all of it, and the caveat."""

    pico: int | None
    complete: bool
    caveat: str | None


def bad(tokens: Tokens) -> bool:
    """Whether the counts cannot be those of one record: a subset above its whole, or an absurd number."""
    read, write, output = tokens.cache_read_tokens or 0, tokens.cache_write_tokens or 0, tokens.output_tokens or 0
    fresh, hour, reasoning = tokens.input_tokens or 0, tokens.cache_write_1h_tokens or 0, tokens.reasoning_tokens or 0
    if hour > write or reasoning > output or min(fresh, read, write, hour, output, reasoning) < 0:
        return True
    return fresh + read + write > MAX_PLAUSIBLE_TOKENS or output > MAX_PLAUSIBLE_TOKENS


def disjoint(tokens: Tokens) -> list[tuple[str, int]]:
    """The known token classes without the subsets in them, by the names of ``CLASSES``; none that is zero."""
    hour, reasoning = tokens.cache_write_1h_tokens or 0, tokens.reasoning_tokens or 0
    counts = (
        tokens.input_tokens or 0,
        tokens.cache_read_tokens or 0,
        (tokens.cache_write_tokens or 0) - hour,
        hour,
        (tokens.output_tokens or 0) - reasoning,
        reasoning,
    )
    return [(name, count) for name, count in zip(CLASSES, counts, strict=True) if count > 0]


def from_data(data: str) -> Card:
    """The card whose ``data`` was kept beside a record. Raises ``ValueError`` for anything else."""
    try:
        body = json.loads(data)
        steps = tuple(
            (int(step["above_input_tokens"]), Rates(**{k: v for k, v in step.items() if k != "above_input_tokens"}))
            for step in body["pico_usd"]
        )
        return Card(steps, body["provider"], body["model"], body["book"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("these are no rates of ours") from error


def _whole_input(tokens: Tokens) -> int:
    return (tokens.input_tokens or 0) + (tokens.cache_read_tokens or 0) + (tokens.cache_write_tokens or 0)


def _rate_of(rates: Rates, name: str) -> int | None:
    """A class's rate or the one it falls back to; one-hour writes fall back to none."""
    own: int | None = getattr(rates, name)
    if own is not None or name in ("input", "output", "cache_write_1h"):
        return own
    return rates.output if name == "reasoning" else rates.input


def _input_cost(rates: Rates, tokens: Tokens) -> int:
    fresh_rate = rates.input or 0
    pico = (tokens.input_tokens or 0) * fresh_rate
    if read := tokens.cache_read_tokens:
        pico += read * (fresh_rate if rates.cache_read is None else rates.cache_read)
    if write := tokens.cache_write_tokens:
        write_rate = fresh_rate if rates.cache_write is None else rates.cache_write
        hour = tokens.cache_write_1h_tokens or 0
        pico += (write - hour) * write_rate + hour * (rates.cache_write_1h or 0)
    return pico


def _output_cost(rates: Rates, tokens: Tokens) -> int:
    output_rate, output = rates.output or 0, tokens.output_tokens or 0
    if rates.reasoning is None or not tokens.reasoning_tokens:
        return output * output_rate
    reasoning = tokens.reasoning_tokens
    return (output - reasoning) * output_rate + reasoning * rates.reasoning


def _missing(rates: Rates, tokens: Tokens, usage: str) -> list[str]:
    """Why the figure is not the whole cost. A class that the list does not charge for is not missed."""
    found = []
    if (
        usage != "reported"
        or (tokens.input_tokens is None and rates.input is not None)
        or (tokens.output_tokens is None and rates.output is not None)
    ):
        found.append("usage_partial")
    if tokens.cache_write_1h_tokens and rates.cache_write_1h is None:
        found.append("no_1h_rate")
    if (tokens.output_tokens and rates.output is None) or (
        rates.input is None
        and (
            tokens.input_tokens
            or (tokens.cache_read_tokens and rates.cache_read is None)
            or (tokens.cache_write_tokens and rates.cache_write is None)
        )
    ):
        found.append("no_rate")
    return found


def _unsure(rates: Rates, tokens: Tokens) -> list[str]:
    """What could be off about a figure that is whole. An unknown split matters only where the prices differ."""
    found = []
    if (
        (tokens.cache_read_tokens is None and rates.cache_read not in (None, rates.input))
        or (tokens.cache_write_tokens is None and rates.cache_write not in (None, rates.input))
        or (
            tokens.cache_write_tokens
            and tokens.cache_write_1h_tokens is None
            and rates.cache_write_1h not in (None, rates.cache_write)
        )
    ):
        found.append("cache_split_unknown")
    if tokens.output_tokens and tokens.reasoning_tokens is None and rates.reasoning not in (None, rates.output):
        found.append("reasoning_split_unknown")
    if (tokens.cache_read_tokens and rates.cache_read is None) or (
        tokens.cache_write_tokens and rates.cache_write is None
    ):
        found.append("no_cache_rate")
    return found
