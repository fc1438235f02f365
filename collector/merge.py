"""Which records count: pure rules over lines and stores' records, so that every call is counted once (CONTRACTS 6).

A call has one source. Usage lines count for token-blind runtimes alone; a store's record counts for self-reporting ones
alone. Of copies of one record the session that paid keeps it. A line that is the *twin* of a self-reporting runtime's
record (that runtime was pointed at the shim under another's name) is withdrawn. No rule depends on what came first.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from collector.record import Record
from shim.allowlist import Allowlist
from shim.line import Tokens

# Why something was refused: the ``reason`` of ``/api/local/refused`` and what it means.
REASONS: Final = {
    "not_token_blind": "A usage line of a runtime that keeps its own record, or of none that the allowlist knows.",
    "not_allowed": "A usage line of a token-blind runtime that VM_USAGE_ALLOW leaves out.",
    "token_blind_record": "A store's record with tokens for a token-blind runtime: kept as evidence, not added.",
    "twin": "A usage line of a call that a self-reporting runtime on the same VM recorded itself.",
    "duplicate_line": "A usage line whose id was read before.",
    "id_clash": "A usage line whose id another call's line has: counted as a call of its own, under an id of its own.",
    "copy": "A store's record that another session, home or VM holds too; it counts for the one that paid.",
}

# A store writes its record within this time of the call's begin and end, in ms: clocks are the same, the disk is slow.
TWIN_SLACK_MS: Final = 5_000
# No call lasts longer (ms); it bounds how far back a record's line is looked for.
LONGEST_CALL_MS: Final = 2 * 3600 * 1000
_DATE: Final = re.compile(r"[-@:](?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")


def refused_line(runtime: str, allowlist: Allowlist) -> str | None:
    """Why lines of a runtime do not count, ``None`` if they do."""
    if allowlist.allows(runtime):
        return None
    return "not_allowed" if runtime in allowlist.token_blind else "not_token_blind"


def is_evidence(record: Record, allowlist: Allowlist) -> bool:
    """Whether a store's record may not be added because usage lines are the source for its runtime."""
    return record.runtime in allowlist.token_blind


@dataclass(frozen=True, slots=True)
class Version:
    """What decides between two copies of one record. ``owner_ms``: start of the recording session, epoch ms."""

    session_id: str
    owner_ms: int
    revision: int
    content: tuple[int, ...]


def version(record: Record) -> Version:
    """The version of a store's record."""
    counts = (record.tokens.output_tokens, record.tokens.total, record.acu_micro)
    content = tuple(-1 if count is None else count for count in counts)
    return Version(record.session_id, int(record.owner * 1000), record.revision, content)


def prefer(new: Version, old: Version) -> bool:
    """Whether ``new`` replaces ``old``: the older session paid; within one the later revision, then the larger.

    Of two that say the same within one session the smaller owner stays: a copy may not know when that began.
    """
    if new.session_id == old.session_id:
        return (new.revision, new.content, -new.owner_ms) > (old.revision, old.content, -old.owner_ms)
    return (new.owner_ms, new.session_id) < (old.owner_ms, old.session_id)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a possible pair of twins: a usage line, or a self-reporting runtime's record. Times in epoch ms.

    ``response`` is a hash with the key of one VM, so that it says more than the VM's name.
    """

    id: int
    vm: str
    start_ms: int
    end_ms: int
    model: str | None
    tokens: Tokens
    response: str | None = None


def twins(lines: Sequence[Side], records: Sequence[Side]) -> dict[int, int]:
    """Lines that are twins, with the record of each: ids to ids.

    By response id where both have it; else by model and token numbers within the call's time span, where line and
    record each have exactly one candidate left.
    """
    found = _by_response(lines, records)
    taken = set(found.values())
    open_lines = [line for line in lines if line.id not in found]
    open_records = [record for record in records if record.id not in taken]
    by_line = {line.id: [record.id for record in open_records if fits(line, record)] for line in open_lines}
    lines_of: dict[int, list[int]] = {}
    for line_id, candidates in by_line.items():
        for candidate in candidates:
            lines_of.setdefault(candidate, []).append(line_id)
    for line_id, candidates in by_line.items():
        if len(candidates) == 1 and len(lines_of[candidates[0]]) == 1:
            found[line_id] = candidates[0]
    return found


def _by_response(lines: Iterable[Side], records: Iterable[Side]) -> dict[int, int]:
    """Every line with the response id of a record: a response polled twice is still that one call."""
    holders: dict[Hashable, int] = {}
    for record in sorted(records, key=lambda side: side.id):
        if record.response is not None:
            holders.setdefault(record.response, record.id)
    return {line.id: holders[line.response] for line in lines if line.response in holders}


def fits(line: Side, record: Side) -> bool:
    """Whether a record could be of the line's call by VM, model, token numbers and time."""
    if line.response is not None and record.response is not None:
        return False  # both are known and, being here, differ
    return (
        record.vm == line.vm
        and record.start_ms <= line.end_ms + TWIN_SLACK_MS
        and record.end_ms >= line.start_ms - TWIN_SLACK_MS
        and same_tokens(line.tokens, record.tokens)
        and same_model(line.model, record.model)
    )


def same_tokens(one: Tokens, other: Tokens) -> bool:
    """Whether two counts can be of one call: input and output known and equal, and nothing else known and different."""
    if one.output_tokens is None or one.input_tokens is None or not one.total:
        return False
    if (one.input_tokens, one.output_tokens) != (other.input_tokens, other.output_tokens):
        return False
    pairs = (
        (one.cache_read_tokens, other.cache_read_tokens),
        (one.cache_write_tokens, other.cache_write_tokens),
    )
    return all(a is None or b is None or a == b for a, b in pairs)


def same_model(one: str | None, other: str | None) -> bool:
    """Whether two names can be of one model: provider prefix, case and date do not matter; unknown fits any."""
    return one is None or other is None or bare_model(one) == bare_model(other)


def bare_model(name: str) -> str:
    """A model's name without provider, case, date and ``latest``."""
    return _DATE.sub("", name.rpartition("/")[2].lower())
