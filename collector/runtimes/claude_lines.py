"""The lines of a Claude Code transcript: the usage of an assistant line, and whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec

from collector.jsonl import parse
from collector.runtimes.values import count, iso, mapping, reference, usd
from collector.runtimes.values import model as model_name
from shim.line import MAX_TOKENS, Tokens, tier_or_none

SYNTHETIC: Final = "<synthetic>"
# No message is this long; so an order of lines (``Line.grown``) has 30 bits.
MAX_OUTPUT: Final = 1 << 26
MAX_EXTRAS: Final = 7
UNKNOWN: Final = Tokens()
# What a message's own numbers leave out: a compaction within the call, and another model that was asked for advice.
COMPACTION: Final = "compaction"
ADVISOR: Final = "advisor_message"

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)] | None


class Lifetimes(msgspec.Struct, gc=False):
    """Cache writes by how long they last."""

    ephemeral_5m_input_tokens: Count = None
    ephemeral_1h_input_tokens: Count = None


class Usage(msgspec.Struct, gc=False):
    """What a message used."""

    output_tokens: Count = None
    input_tokens: Count = None
    cache_read_input_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_creation: Lifetimes | None = None
    service_tier: str | None = None
    speed: str | None = None
    iterations: list[Iteration] | None = None


class Iteration(Usage, gc=False):
    """One step of a message (https://platform.claude.com/docs/en/build-with-claude/compaction)."""

    type: str | None = None
    model: str | None = None


class Message(msgspec.Struct, gc=False):
    """An API message as one line tells it; one without usage is no assistant's."""

    id: str | None = None
    model: str | None = None
    usage: Usage | None = None


class Origin(msgspec.Struct, gc=False, rename="camel"):
    """Where a copied line says that it comes from."""

    session_id: str | None = None


class Line(msgspec.Struct, gc=False, rename="camel"):
    """The fields of a line that are looked at; msgspec passes over the others without making anything of them."""

    type: str | None = None
    message: Message | None = None
    timestamp: str | None = None
    session_id: str | None = None
    is_sidechain: bool | None = None
    forked_from: Origin | None = None
    request_session_id: str | None = None
    cost_usd: float | None = msgspec.field(default=None, name="costUSD")

    @property
    def grown(self) -> int:
        """Orders the lines of a message, below 0 for one without usage. At equal output one that tells of more steps
        comes first, then the main chain's before a sidechain's replay of it."""
        message = self.message
        if message is None or (usage := message.usage) is None or (output := usage.output_tokens) is None:
            return -1
        extras = min(MAX_EXTRAS, sum(1 for _ in steps(usage, COMPACTION, ADVISOR))) if usage.iterations else 0
        return (output << 4 | extras << 1 | (self.is_sidechain is not True)) if output < MAX_OUTPUT else -1


class Named(msgspec.Struct, gc=False):
    """A line's own id."""

    uuid: str | None = None


class Call(msgspec.Struct, gc=False):
    """One API message by its best line. ``grown`` orders the lines of a message; ``pico`` is what it cost; ``side``:
    a sub-agent made it."""

    grown: int
    session: str
    ts: float
    model: str | None
    tokens: Tokens
    tier: str | None
    pico: int | None
    response_id: str | None
    side: bool = False


def steps(usage: Usage, *kinds: str) -> Iterator[Iteration]:
    """The steps of these kinds."""
    return (step for step in usage.iterations or () if step.type in kinds)


# A line by its types. Raises ``UNEXPECTED`` where a value has another type, or where there is no JSON object.
decode: Final = msgspec.json.Decoder(Line).decode
_named: Final = msgspec.json.Decoder(Named).decode
UNEXPECTED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def uuid(data: bytes) -> str | None:
    """The line's own id: in place of the message's where that has none.

    As lenient as ``decode``, which does not look into other texts and numbers.
    """
    try:
        return _named(data).uuid
    except UNEXPECTED:
        return _text((parse(data) or {}).get("uuid"))


def careful(data: bytes) -> Line:
    """What ``decode`` does not take: a value of another type is not known, the others are; no type for no object."""
    entry = parse(data) or {}
    message = mapping(entry.get("message"))
    usage = mapping(message.get("usage"))
    iterations = usage.get("iterations")
    cost = entry.get("costUSD")
    return Line(
        type=_text(entry.get("type")),
        message=Message(
            id=_text(message.get("id")),
            model=_text(message.get("model")),
            usage=Usage(
                *_counts(usage),
                _text(usage.get("service_tier")),
                _text(usage.get("speed")),
                [
                    Iteration(*_counts(step), type=_text(step.get("type")), model=_text(step.get("model")))
                    for step in map(mapping, iterations if isinstance(iterations, list) else ())
                ],
            ),
        ),
        timestamp=_text(entry.get("timestamp")),
        session_id=_text(entry.get("sessionId")),
        is_sidechain=entry.get("isSidechain") is True,
        forked_from=Origin(_text(mapping(entry.get("forkedFrom")).get("sessionId"))) if "forkedFrom" in entry else None,
        request_session_id=_text(entry.get("requestSessionId")),
        cost_usd=cost if type(cost) in (int, float) else None,
    )


def _counts(usage: dict[str, Any]) -> tuple[Count, Count, Count, Count, Lifetimes]:
    """The counts of a ``Usage`` in its order."""
    split = mapping(usage.get("cache_creation"))
    return (
        count(usage.get("output_tokens")),
        count(usage.get("input_tokens")),
        count(usage.get("cache_read_input_tokens")),
        count(usage.get("cache_creation_input_tokens")),
        Lifetimes(count(split.get("ephemeral_5m_input_tokens")), count(split.get("ephemeral_1h_input_tokens"))),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def call(line: Line, grown: int, session: str) -> Call | str:
    """The call that a line tells of, or a word why it tells of none; ``session`` wrote it unless it says otherwise."""
    message = line.message
    if grown < 0 or message is None or (usage := message.usage) is None:
        return "no_usage"
    if message.model == SYNTHETIC:
        return "synthetic"
    when = iso(line.timestamp)
    if when is None:
        return "no_time"
    # A copy that says who asked for the answer, or else where it came from, is that session's line.
    writer = line.forked_from.session_id if line.forked_from is not None else line.session_id
    writer = line.request_session_id or writer
    copied = False
    if writer != session and (named := reference(writer)) is not None:
        copied, session = True, named
    pico = None if line.cost_usd is None else usd(line.cost_usd) or None
    # Anthropic's fast mode counts as a tier.
    tier = "fast" if usage.speed == "fast" else tier_or_none(usage.service_tier)
    tokens = _tokens(usage)
    if usage.iterations:
        for step in steps(usage, COMPACTION):
            tokens = Tokens(*map(_plus, tokens, _tokens(step)))
    elif not tokens.output_tokens and not any(tokens):
        if copied:
            # A message that a compaction kept, written anew: its tokens are told where it was written first.
            return "no_usage"
        tokens = UNKNOWN  # a provider that sends no usage
    return Call(
        grown,
        session,
        when,
        model_name(message.model),
        tokens,
        tier,
        pico,
        message.id or None,
        line.is_sidechain is True,
    )


def advice(line: Line, call: Call) -> Iterator[Call]:
    """The calls of other models that a message asked for advice; they are no part of its own numbers."""
    if line.message is not None and (usage := line.message.usage) is not None:
        for step in steps(usage, ADVISOR):
            named, tier = model_name(step.model), tier_or_none(step.service_tier)
            yield Call(call.grown, call.session, call.ts, named, _tokens(step), tier, None, None, call.side)


def _plus(one: int | None, other: int | None) -> int | None:
    return one if other is None else (one or 0) + other


def _tokens(usage: Usage) -> Tokens:
    write, split, long_lived = usage.cache_creation_input_tokens, usage.cache_creation, None
    if split is not None and (long_lived := split.ephemeral_1h_input_tokens) is not None:
        if write is None:
            write = long_lived + (split.ephemeral_5m_input_tokens or 0)
        if long_lived > write:
            long_lived = write
    return Tokens(usage.input_tokens, usage.cache_read_input_tokens, write, long_lived, usage.output_tokens)
