"""Captured output of ``cline --json``: one file, one run, of which the last ``run_result`` with usage counts.

Its ``usage`` is cumulative and, unlike the manifest's, includes teammates. A run that was killed has only the running
totals of its last usage event, and a model only where ``--verbose`` had it begin with ``run_start``. A stream names no
session, so a run that is also in the session store is left to the store: one of which a message within the run's time
is of the same model or has the counts of one of its usage events. A store learns of a message later than the stream
does; what was counted until then is taken back, and the session with it, of which nothing but the record tells. Models
that Cline gives away have their cost forced to 0 here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from collector import jsonl
from collector.record import Record
from collector.runtimes import Batch, Source, values
from collector.runtimes.cline_sessions import MESSAGES, RUNTIME, USAGE_KEYS, counts_of, money, tokens_of
from collector.runtimes.counts import Counts
from collector.runtimes.places import subfolders

START: Final = "run_start"
RESULT: Final = "run_result"
RUNNING: Final = {f"total{key[0].upper()}{key[1:]}": key for key in USAGE_KEYS}
# Clocks of one machine, read some calls apart.
SLACK_SECONDS: Final = 2.0


@dataclass(slots=True)
class _Run:
    """What is known of the run so far. ``final``: its result was written. ``turns``: counts of its usage events."""

    first: float | None = None
    last: float | None = None
    counts: Counts | None = None
    model: str | None = None
    provider: str | None = None
    final: bool = False
    turns: set[tuple[int | None, ...]] = field(default_factory=set)

    def take(self, line: dict[str, Any]) -> None:
        when = values.iso(line.get("ts"))
        self.first, self.last = self.first or when, when or self.last
        event = values.mapping(line.get("event"))
        if line.get("type") == RESULT:
            usage = values.mapping(line.get("aggregateUsage")) or values.mapping(line.get("usage"))
            counts = counts_of(usage, usage.get("totalCost"))
            model = values.mapping(line.get("model"))
            self.model = values.model(model.get("id")) or self.model
            self.provider = values.name(model.get("provider")) or self.provider
            self.counts, self.final = (counts or self.counts), self.final or counts is not None
        elif line.get("type") == START:
            self.model, self.provider = values.model(line.get("modelId")), values.name(line.get("providerId"))
        elif event.get("type") == "usage" and not self.final:
            if (turn := counts_of(event, None)) is not None and turn.size:
                self.turns.add(turn.numbers)
            usage = {key: event.get(total) for total, key in RUNNING.items()}
            self.counts = counts_of(usage, event.get("totalCost")) or self.counts

    def has(self, message: dict[str, Any]) -> bool:
        """Whether a stored message is one of this run, as far as its model or its counts tell."""
        model = values.model(values.mapping(message.get("modelInfo")).get("id"))
        counts = counts_of(values.mapping(message.get("metrics")), None)
        return (model is not None and model == self.model) or (counts is not None and counts.numbers in self.turns)


def read_stream(source: Source, state: dict[str, Any] | None) -> Batch:
    """The run of one file. Lines are parsed one at a time; only the numbers of the last usage are kept.

    ``state``: the revision that the run was counted with, or the beginning of one that the store had, which may have
    been deleted there since.
    """
    counted = values.count((state or {}).get("counted"))
    batch = Batch(state=state)
    run = _Run()
    file = jsonl.LineFile(source.path)
    for block in file.blocks():
        for line in jsonl.lines(block):
            value = jsonl.parse(line)
            if value is None:
                batch.skipped["bad_json"] += 1
            elif "ts" in value:
                run.take(value)
    if run.counts is None or run.first is None or run.last is None:
        batch.skipped["no_usage"] += 1
    elif (state or {}).get("copy") == run.first or _is_stored(source, run):
        batch.skipped["copy"] += 1
        batch.state = {"counted": counted, "copy": run.first}
        if counted is not None:
            batch.records.append(_record(source.path.name, run, run.counts, counted + 1, taken_back=True))
    else:
        revision = 2 * run.counts.size + run.final
        batch.records.append(_record(source.path.name, run, run.counts, revision))
        batch.state = {"counted": max(revision, counted or 0)}
    return batch


def _record(name: str, run: _Run, counts: Counts, revision: int, *, taken_back: bool = False) -> Record:
    first = run.first or 0.0
    pico, basis = money(counts, run.provider, local=False)
    return Record(
        runtime=RUNTIME,
        key=f"stream:{first:.3f}",
        session_id=values.reference(f"stream:{name}") or f"stream:{first:.3f}",
        ts=first,
        tokens=tokens_of(counts),
        model=run.model,
        model_source="log" if run.model else "none",
        provider=run.provider,
        grain="session",
        owner=first,
        revision=revision,
        vendor_pico=pico or None,
        vendor_basis=basis if pico else None,
        usage="reported" if run.final else "partial",
        ended_ts=run.last,
        taken_back=taken_back,
    )


def _is_stored(source: Source, run: _Run) -> bool:
    return any(_holds(Path(entry.path), run) for part in source.parts for entry in subfolders(part))


def _holds(folder: Path, run: _Run) -> bool:
    """Whether a session folder has a message of this run."""
    manifest = jsonl.json_document(folder / f"{folder.name}.json") or {}
    started, ended = values.iso(manifest.get("started_at")), values.iso(manifest.get("ended_at"))
    if started is None or not _meet(run, started, ended):
        return False
    messages = (jsonl.json_document(folder / (folder.name + MESSAGES)) or {}).get("messages")
    for message in messages if isinstance(messages, list) else ():
        if values.mapping(message).get("role") == "assistant":
            ts = values.millis(message.get("ts"))
            if ts is not None and _meet(run, ts, ts) and run.has(message):
                return True
    return False


def _meet(run: _Run, start: float, end: float | None) -> bool:
    first, last = run.first or 0.0, run.last or 0.0
    return start <= last + SLACK_SECONDS and (end is None or end >= first - SLACK_SECONDS)
