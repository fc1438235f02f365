"""Aider: a chat history in Markdown in each repository, and an analytics log of JSON lines for those who ask for it.

Read from https://github.com/Aider-AI/aider (aider/coders/base_coder.py, aider/analytics.py). True here:

- the history is text for people with rounded tokens and dollars (``aider_history``). Dollars of a message are summed;
  the session's figure is cumulative. All of it is an estimate and says so (``caveat``).
- ``--analytics-log`` has exact integers per message without a cache split, again with Aider's own price. Where aider
  streams it counts tokens itself. The name of a model it does not know is redacted.
- one run can be in both. The log knows better: a run of the history that starts when the log says that aider was
  launched is not counted again. Only what the log cannot say is taken from there: the history names cache hits and
  writes where aider saw any, so a message without them had none as far as it knows (it overlooks OpenAI's).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec

from collector.jsonl import LineFile, lines, lines_with, parse
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, SourceError
from collector.runtimes.aider_history import HEADER, RUNTIME, SAME_START, History, is_local_model, uncached
from collector.runtimes.aider_places import HISTORY, histories_and_logs, is_history
from collector.runtimes.values import count, latest, mapping, model, seconds, usd
from shim.line import Tokens

ESTIMATED: Final = "vendor_estimate"

# Cache hits and writes of a message; the messages' of runs, in order, with the run's start.
Runs = list[tuple[float, list[tuple[int, int]]]]


class Aider:
    """Reader of aider's chat histories and analytics logs."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source a history or log; those of the other kind are its parts."""
        found = histories_and_logs(home, environ)
        logs = tuple(path for path in found if not is_history(path.name))
        histories = tuple(path for path in found if is_history(path.name))
        for path in found:
            yield Source(RUNTIME, path, histories if path in logs else logs)

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """A log or a history from the last run that was seen on. Raises ``SourceError``."""
        if is_history(source.path.name):
            return _read_history(source, state or {})
        return _read_log(source, state or {})


def _label(path: Path) -> str:
    own = path.name.removesuffix(HISTORY)
    return own if own and own != path.name else path.absolute().parent.name


def _read_history(source: Source, state: dict[str, Any]) -> Iterator[Batch]:
    """Reads from the last header on: a message's place is counted within its run.

    All of it, where a log is found to tell of runs that were read already: what was counted of them is taken back.
    ``state``: ``told``: when the runs began of which a log told. It may be gone; what it told stays counted.
    """
    launches = sorted(at for log in source.parts for at in _launches(log))
    elsewhere: set[float] = set(state.get("told", ()))
    launches += [start for start in elsewhere if not _is_among(launches, start)]
    found = "at" in state and _told(launches, state.get("start", inf)) > state.get("launches", 0)
    history = History(_label(source.path), launches, take_back=found)
    file = LineFile(source.path, None if found else state.get("at"))
    position: list[int] | None = None
    for block in file.blocks():
        at = file.offset - len(block)
        position = position or [file.inode, at]
        records: dict[str, Record] = {}
        for line in block.splitlines(keepends=True):
            bare = line.rstrip()
            if HEADER.fullmatch(bare):
                position = [file.inode, at]
            at += len(line)
            if (record := history.take(bare)) is not None:
                records[record.key] = record
        skipped, history.skipped = history.skipped, Counter()
        sessions, history.sessions = history.sessions, history.sessions[-1:]
        start = history.start or 0.0
        elsewhere |= history.elsewhere
        told = {"start": start, "launches": _told(launches, start), "told": sorted(elsewhere)}
        yield Batch(list(records.values()), sessions, skipped, {"at": position, **told})


def _is_among(launches: list[float], start: float) -> bool:
    """Whether one of the launches, in order, can be of the run that began at ``start``."""
    at = bisect_left(launches, start - SAME_START)
    return at < len(launches) and launches[at] <= start + SAME_START


def _told(launches: list[float], start: float) -> int:
    """Of how many runs up to the one that began at ``start`` logs tell."""
    return sum(launch <= start + SAME_START for launch in launches)


def _launches(log: Path) -> Iterator[float]:
    try:
        for block in LineFile(log).blocks():
            for line in lines_with(block, b'"launched"'):
                entry = parse(line)
                when = seconds(entry.get("time")) if entry is not None else None
                if entry is not None and entry.get("event") == "launched" and when is not None:
                    yield when
    except SourceError:
        return


def _cache_parts(histories: tuple[Path, ...]) -> Runs:
    """Start of every run in the histories, with the cache hits and writes of each of its messages in order."""
    runs: Runs = []
    for path in histories:
        history = History("", [])
        try:
            for block in LineFile(path).blocks():
                for line in block.splitlines():
                    before, record = history.messages, history.take(line.rstrip())
                    if HEADER.fullmatch(line.rstrip()) and history.start is not None:
                        runs.append((history.start, []))
                    if record is not None and history.messages != before:
                        tokens = record.tokens
                        runs[-1][1].append((tokens.cache_read_tokens or 0, tokens.cache_write_tokens or 0))
        except SourceError:
            continue
    return runs


def _cache_of(runs: Runs, start: float, number: int) -> tuple[int | None, int | None]:
    """Cache hits and writes of message ``number`` of the run that began at ``start``, if a history tells."""
    for began, messages in runs:
        if abs(began - start) <= SAME_START and number <= len(messages):
            return messages[number - 1]
    return None, None


def _read_log(source: Source, state: dict[str, Any]) -> Iterator[Batch]:
    """Messages of an analytics log; a run is everything from one ``launched`` to the next."""
    file = LineFile(source.path, state.get("at"))
    told = _cache_parts(source.parts)
    start, ended, messages = state.get("start"), state.get("ended"), state.get("messages", 0)
    run = state.get("run", 0)
    before = file.offset
    for block in file.blocks():
        if file.offset - len(block) < before:
            # The file was replaced: it is read from its start, and so are its runs.
            start, ended, messages, run = None, None, 0, 0
        before = 0
        batch = Batch()
        for line in lines(block):
            entry = parse(line)
            when = seconds(entry.get("time")) if entry is not None else None
            if entry is None or when is None or not isinstance(entry.get("event"), str):
                batch.skipped["no_event"] += 1
                continue
            if entry["event"] == "launched":
                start, ended, messages, run = when, when, 0, run + 1
            if start is None:
                start, run = when, 1
            ended = latest(ended, when)
            if entry["event"] == "message_send":
                messages += 1
                record = _sent(mapping(entry.get("properties")), _run(run, start), start, when, messages)
                batch.records.append(_with_cache(record, *_cache_of(told, start, messages)))
            _list(batch, _run(run, start), start, ended)
        batch.state = {"at": file.position, "start": start, "ended": ended, "messages": messages, "run": run}
        yield batch


def _list(batch: Batch, name: str, start: float, ended: float | None) -> None:
    session = Session(RUNTIME, name, start, ended)
    if batch.sessions and batch.sessions[-1].session_id == session.session_id:
        batch.sessions[-1] = session
    else:
        batch.sessions.append(session)


def _run(number: int, start: float) -> str:
    """Start and place in the log: aider gives a run no id."""
    return f"analytics@{start:.0f}/aider-run-{number}"


def _sent(properties: dict[str, Any], run: str, start: float, when: float, number: int) -> Record:
    named = properties.get("main_model")
    known = None if not isinstance(named, str) or named.endswith("REDACTED") else model(named)
    sent, received = count(properties.get("prompt_tokens")), count(properties.get("completion_tokens"))
    pico = usd(properties.get("cost")) or None
    return Record(
        RUNTIME,
        f"analytics:{start!r}:{number}:{when!r}:{sent}:{received}",
        run,
        when,
        Tokens(sent, None, None, None, received, None),
        known,
        "log" if known else "none",
        grain="turn",
        owner=start,
        vendor_pico=pico,
        vendor_basis=None if pico is None else "runtime_price",
        caveat=ESTIMATED,
        usage="reported" if sent or received else "missing",
        local=pico is None and is_local_model(known),
    )


def _with_cache(record: Record, hit: int | None, write: int | None) -> Record:
    """The record with the cache's part taken out of its input; as it is where no part is known or it cannot be."""
    tokens = record.tokens
    rest = uncached(tokens.input_tokens, hit, write)
    if hit is None or rest is None:
        return record
    return msgspec.structs.replace(record, tokens=Tokens(rest, hit, write, None, tokens.output_tokens, None))


READER: Final = Aider()
FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="<repository>/.aider.chat.history.md, analytics.jsonl, three levels below the home; ~/.aider.conf.yml",
    variables="AIDER_CHAT_HISTORY_FILE, AIDER_ANALYTICS_LOG",
    aggregation="sum of messages",
    input_includes_cache="yes, hits and writes",
    reasoning_in_output="yes, not stated",
    dedupe_key="run header, position and figures",
    cost_field="Cost: $… message; properties.cost",
    cost_unit="USD, rounded in the history",
    cost_basis="runtime_price",
)
