"""The sum at the end: every call that reached the upstream is one line, or one number that is missing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shim.line import Line, LineError, decode
from tests.faults.shapes import OUTPUT_TOKENS, number


@dataclass(frozen=True, slots=True)
class Balance:
    """``reached``: calls the upstream saw; ``lost``: missing ``seq``; the rest are counts of lines or calls.

    ``unseen``: lines of calls that did not reach the upstream. ``unnamed``: lines without a model.
    """

    reached: int
    lines: int
    lost: int
    doubled: int
    missing: int
    unseen: int
    unnamed: int
    quarantined: int
    wrong: int
    outcomes: dict[str, int]
    boots: int

    @property
    def holds(self) -> bool:
        """Whether nothing was lost unseen, written twice or written wrong."""
        accounted = 0 <= self.missing - self.lost <= self.unnamed
        return accounted and self.doubled == 0 and self.wrong == 0

    def __str__(self) -> str:
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        return (
            f"{self.reached} calls reached the upstream = {self.lines - self.unseen} lines + {self.lost} missing seq; "
            f"{self.unseen} lines of calls it did not see; {self.doubled} doubled, {self.wrong} with other tokens than "
            f"the client was told, {self.unnamed} without model, {self.quarantined} quarantined; "
            f"{self.boots} boots; {outcomes}"
        )


def balance(logs: Iterable[Path], reached: set[str], whole: set[str]) -> Balance:
    """Compare the logs with what the upstream saw and with what clients were told. ``whole``: calls that ended."""
    lines, quarantined = read(logs)
    by_marker: dict[str | None, list[Line]] = defaultdict(list)
    for line in lines:
        by_marker[line.model].append(line)
    unnamed = len(by_marker.pop(None, []))
    return Balance(
        reached=len(reached),
        lines=len(lines),
        lost=missing_seq(lines),
        doubled=sum(len(found) > 1 for found in by_marker.values()),
        missing=len(reached - by_marker.keys()),
        unseen=len(by_marker.keys() - reached),
        unnamed=unnamed,
        quarantined=quarantined,
        wrong=sum(not is_right(found[0]) for marker, found in by_marker.items() if marker in whole),
        outcomes=dict(Counter(line.outcome for line in lines)),
        boots=len({line.boot for line in lines}),
    )


def is_right(line: Line) -> bool:
    """Whether the line of a call that came to its end has what the client was told."""
    tokens = (line.tokens.input_tokens, line.tokens.output_tokens)
    told = (number(line.model or "m-0"), OUTPUT_TOKENS)
    # The process may be killed between the answer's last byte and the end of its line.
    return line.outcome == "interrupted" or (line.outcome, line.usage, *tokens) == ("completed", "reported", *told)


def read(logs: Iterable[Path]) -> tuple[list[Line], int]:
    """Lines of all logs and how many a reader would put aside."""
    lines, quarantined = [], 0
    for log in logs:
        *parts, unfinished = log.read_bytes().split(b"\n")
        quarantined += bool(unfinished)
        for part in filter(None, parts):
            try:
                lines.append(decode(part))
            except LineError:
                quarantined += 1
    return lines, quarantined


def missing_seq(lines: Iterable[Line]) -> int:
    """How many numbers below each boot's highest have no line."""
    seen: dict[str, set[int]] = defaultdict(set)
    for line in lines:
        seen[line.boot].add(line.seq)
    return sum(max(numbers) - len(numbers) for numbers in seen.values())
