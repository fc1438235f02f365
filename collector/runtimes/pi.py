"""Pi: JSONL sessions below ``~/.pi/agent/sessions``, one entry a line, assistant messages with usage and cost.

Verified in https://github.com/badlogic/pi-mono (packages/coding-agent/docs/session.md); input excludes the cache,
reasoning is inside output. True here:

- every assistant entry is a call that was paid, on whatever branch it lies, aborted or not; a try that failed before
  any token leaves zeros and is none.
- newer versions put the ``usage`` of the call that wrote a compaction or a summary into that entry; the model is
  not named there and is the one that the session used last (https://github.com/huggingface/tau/issues/701). A
  branched session has the entries of its branch alone, so another may have been last there: such a call is known by
  its time and counts.
- forks copy entries word for word into a file whose header names ``parentSession``; the header's time is the owner's.
- the first version's entries had no ids; a newer Pi that opens such a file gives them random ones and writes it anew.
  So a call without a response's id is known by its time, model and counts.
- ``cost.total`` is Pi's own price list in USD, a provider's charge where ``totalFromProvider``; a custom model without
  a price costs 0 there, so 0 is only believed of a local provider.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from collector.jsonl import LineFile, json_document, lines, parse
from collector.record import Record, Session
from collector.runtimes import Batch, Facts, Source, places
from collector.runtimes.local import is_local
from collector.runtimes.values import (
    count,
    iso,
    latest,
    mapping,
    millis,
    model,
    name,
    reference,
    usd,
)
from shim.line import Tokens

RUNTIME: Final = "pi"
SUMMARIES: Final = ("compaction", "branch_summary")
# Extensions keep the sessions of subagents in folders beside the one that ran them, and those of theirs below.
DEPTH: Final = 10


@dataclass(slots=True)
class Transcript:
    """A session in the entry format of Pi, which OpenClaw shares, as far as it was read.

    ``urls`` are the base URLs of the providers in the runtime's configuration: evidence of a local one.
    """

    runtime: str
    session: str
    urls: Mapping[str, object]
    start: float | None = None
    ended: float | None = None
    parent: str | None = None
    provider: str | None = None
    model: str | None = None
    skipped: Counter[str] = field(default_factory=Counter)

    def take(self, entry: dict[str, Any]) -> Record | None:
        """The call that an entry tells of, if it does; the session's id, start and end as they come."""
        when = iso(entry.get("timestamp"))
        if entry.get("type") == "session":
            self.session = reference(entry.get("id")) or self.session
            self.start = when
            self.parent = _stem(entry.get("parentSession"))
        self.start = self.start if self.start is not None else when
        self.ended = latest(self.ended, when)
        if entry.get("type") in SUMMARIES and isinstance(entry.get("usage"), dict):
            used = {"usage": entry["usage"], "provider": self.provider, "model": self.model}
            return self._call(entry, used, when, str(entry["type"])) if _tokens(entry["usage"]).total else None
        if entry.get("type") == "model_change":
            self.provider, self.model = name(entry.get("provider")), model(entry.get("modelId"))
        message = entry.get("message")
        if entry.get("type") != "message" or not isinstance(message, dict) or message.get("role") != "assistant":
            return None
        self.provider, self.model = name(message.get("provider")), model(message.get("model"))
        return self._call(entry, message, when)

    def _call(
        self, entry: dict[str, Any], message: dict[str, Any], when: float | None, kind: str | None = None
    ) -> Record | None:
        usage = mapping(message.get("usage"))
        provider = name(message.get("provider"))
        named = model(message.get("responseModel")) or model(message.get("model"))
        ts = millis(message.get("timestamp")) or when
        if not usage or ts is None:
            self.skipped["no_usage"] += 1
            return None
        tokens = _tokens(usage)
        if not tokens.total and message.get("stopReason") in ("error", "aborted"):
            self.skipped["failed_try"] += 1
            return None
        response = reference(message.get("responseId"))
        figures = f"{kind or named}:{tokens.input_tokens}:{tokens.output_tokens}:{tokens.cache_read_tokens}"
        called = f"{response or figures}:{message.get('timestamp') or entry.get('timestamp')}"
        local = is_local(provider, named, self.urls.get(provider or ""))
        cost = mapping(usage.get("cost"))
        pico = usd(cost.get("total")) if tokens.total else None
        if pico == 0 and not local:
            pico = None
        return Record(
            self.runtime,
            called,
            self.session,
            ts,
            tokens,
            named,
            "log" if named else "none",
            provider,
            owner=self.start if self.start is not None else ts,
            parent_session_id=self.parent,
            vendor_pico=pico,
            vendor_basis=_basis(cost, pico),
            local=local and pico == 0,
            response_id=response,
            # A gateway that sends no usage leaves zeros behind an answer: the store's zero, but not a measured one.
            usage="reported" if tokens.total else "missing",
        )

    def listed(self) -> list[Session]:
        """The session, once anything dated was read."""
        if self.start is None:
            return []
        return [Session(self.runtime, self.session, self.start, self.ended, parent_session_id=self.parent)]


def _stem(parent: object) -> str | None:
    """The id in the name of the file that a fork came from: ``<time>_<id>.jsonl``."""
    if not isinstance(parent, str):
        return None
    return reference(Path(parent).name.partition(".jsonl")[0].rpartition("_")[2])


def _basis(cost: dict[str, Any], pico: int | None) -> str | None:
    if pico is None:
        return None
    return "billed" if cost.get("totalFromProvider") is True else "runtime_price"


def _tokens(usage: dict[str, Any]) -> Tokens:
    write = count(usage.get("cacheWrite"))
    output = count(usage.get("output"))
    reasoning = count(usage.get("reasoning", usage.get("reasoningTokens")))
    long_lived = count(usage.get("cacheWrite1h"))
    return Tokens(
        count(usage.get("input")),
        count(usage.get("cacheRead")),
        write,
        min(long_lived, write) if long_lived is not None and write is not None else None,
        output,
        min(reasoning, output) if reasoning is not None and output is not None else None,
    )


def resume(transcript: Transcript, state: Mapping[str, Any]) -> None:
    """Go on from what ``saved`` kept of a transcript."""
    transcript.session = str(state.get("session") or transcript.session)
    transcript.start, transcript.ended = state.get("start"), state.get("ended")
    transcript.parent = state.get("parent")
    transcript.provider, transcript.model = state.get("provider"), state.get("model")


def saved(transcript: Transcript) -> dict[str, Any]:
    """What a transcript must know when more of it is read."""
    return {
        "session": transcript.session,
        "start": transcript.start,
        "ended": transcript.ended,
        "parent": transcript.parent,
        "provider": transcript.provider,
        "model": transcript.model,
    }


def read_lines(path: Path, transcript: Transcript, state: dict[str, Any] | None) -> Iterator[Batch]:
    """Batches of a JSONL file in this format. Raises ``SourceError``."""
    file = LineFile(path, (state or {}).get("at"))
    resume(transcript, state or {})
    for block in file.blocks():
        records = take_lines(transcript, block)
        batch = Batch(records, transcript.listed(), transcript.skipped, {"at": file.position, **saved(transcript)})
        transcript.skipped = Counter()
        yield batch
    yield Batch(skipped=file.skipped, state={"at": file.position, **saved(transcript)})


def take_lines(transcript: Transcript, block: bytes) -> list[Record]:
    """The calls in some whole lines."""
    records = []
    for line in lines(block):
        entry = parse(line)
        if entry is None:
            transcript.skipped["bad_json"] += 1
        elif (record := transcript.take(entry)) is not None:
            records.append(record)
    return records


class Pi:
    """Reader of Pi's sessions."""

    runtime = RUNTIME

    def sources(self, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
        """One source a session file; the models' configuration is a part of each."""
        agent = _agent(home, environ)
        found: dict[str, None] = {}
        for root in session_folders(home, environ):
            yield from places.stray(RUNTIME, home, root)
            if not places.leads_out(home, root):
                found |= dict.fromkeys(entry.path for entry in places.walk(root, _is_session, DEPTH))
        if not places.leads_out(home, agent):
            # Version 0.30.0 left sessions there; the next one moved them.
            found |= dict.fromkeys(entry.path for entry in places.files(agent, _is_session))
        for path in found:
            yield Source(RUNTIME, Path(path), (agent / "models.json",))

    def read(self, source: Source, state: dict[str, Any] | None) -> Iterator[Batch]:
        """Records from the saved offset on. Raises ``SourceError``."""
        transcript = Transcript(RUNTIME, source.path.stem.rpartition("_")[2], _urls(source.parts))
        yield from read_lines(source.path, transcript, state)


def session_folders(home: Path, environ: Mapping[str, str]) -> list[Path]:
    """Where a variable, or the settings beside the folder that they took the place of, have sessions kept.

    Of what the settings name only a folder below the home is one: a relative one is below each project.
    """
    if environ.get("PI_CODING_AGENT_SESSION_DIR", "").strip():
        return [places.folder(home, environ, "PI_CODING_AGENT_SESSION_DIR", "")]
    agent = _agent(home, environ)
    named = mapping(json_document(agent / "settings.json")).get("sessionDir")
    folders = [agent / "sessions"]
    if isinstance(named, str) and named.startswith(("/", "~/")):
        folder = Path(os.path.normpath(places.expanded(home, named)))
        folders += [folder] if home in folder.parents and folder != folders[0] else []
    return folders


def _agent(home: Path, environ: Mapping[str, str]) -> Path:
    return places.folder(home, environ, "PI_CODING_AGENT_DIR", ".pi/agent")


def _is_session(file: str) -> bool:
    return file.endswith(".jsonl")


def _urls(parts: tuple[Path, ...]) -> dict[str, object]:
    config = json_document(parts[0]) if parts else None
    providers = mapping(mapping(config).get("providers"))
    return {provider: mapping(settings).get("baseUrl") for provider, settings in providers.items()}


READER: Final = Pi()
FACTS: Final = Facts(
    runtime=RUNTIME,
    paths="~/.pi/agent/sessions/--<folder>--/<time>_<id>.jsonl, sessionDir of settings.json",
    variables="PI_CODING_AGENT_DIR, PI_CODING_AGENT_SESSION_DIR",
    aggregation="sum of assistant entries and summaries, every branch",
    input_includes_cache="no",
    reasoning_in_output="yes",
    dedupe_key="responseId (else model and counts), message.timestamp",
    cost_field="message.usage.cost.total",
    cost_unit="USD",
    cost_basis="runtime_price; billed where totalFromProvider",
)
