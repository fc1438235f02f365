"""Random projects of Claude Code: sessions, silent forks of them and of forks, transcripts cut at their beginning.

A world knows who wrote every call first. A session that was forked writes no more (what it wrote after its fork began
would tell nothing apart); a snapshot without ``uuid`` stands before each of a session's own prompts, as in real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from collector.runtimes.values import iso

KINDS = ("user", "answer")


def stamp(minute: int) -> str:
    return f"2026-11-{1 + minute // 1440:02d}T{minute // 60 % 24:02d}:{minute % 60:02d}:00.000Z"


@dataclass
class Transcript:
    """The lines of one session."""

    name: str
    lines: list[dict] = field(default_factory=list)

    def add(self, minute: int, entry: dict) -> None:
        parent = next((line["uuid"] for line in reversed(self.lines) if "uuid" in line), None)
        self.lines.append({"parentUuid": parent, **entry, "sessionId": self.name, "timestamp": stamp(minute)})

    def turn(self, minute: int) -> str:
        """A prompt and its answer; returns the id of the call."""
        call = f"msg_{minute:030d}"
        usage = {"input_tokens": minute, "output_tokens": 1}
        self.lines.append({"type": "file-history-snapshot", "snapshot": {"timestamp": stamp(minute)}})
        self.add(minute, {"type": "user", "uuid": f"user-{minute}"})
        message = {"id": call, "model": "claude-sonnet-4-5", "usage": usage}
        self.add(minute + 1, {"type": "assistant", "uuid": f"answer-{minute}", "message": message})
        return call

    def fork(self, name: str, turns: int) -> Transcript:
        """A copy of the first turns under another name, as the program writes its chain anew."""
        copy = Transcript(name)
        chain = [line for line in self.lines if "uuid" in line][: 2 * turns]
        for line in chain:
            copy.add(0, {key: value for key, value in line.items() if key != "parentUuid"})
            copy.lines[-1]["timestamp"] = line["timestamp"]
        return copy

    @property
    def turns(self) -> int:
        return sum("message" in line for line in self.lines)

    def calls(self) -> set[str]:
        return {line["message"]["id"] for line in self.lines if "message" in line}

    def uuids(self) -> set[str]:
        return {line["uuid"] for line in self.lines if "uuid" in line}


@dataclass
class World:
    """Transcripts; who wrote each call first; of a fork, what it was forked from; how the files came to be."""

    transcripts: dict[str, Transcript] = field(default_factory=dict)
    wrote: dict[str, str] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    # Which transcript was written next, and what its lines were then.
    steps: list[tuple[str, list[dict]]] = field(default_factory=list)

    def holders(self, call: str) -> list[Transcript]:
        return [one for one in self.transcripts.values() if call in one.calls()]

    def told(self, call: str) -> bool:
        """Whether a file of the session that wrote the call still shows that it did: it holds it, or every file that
        does shares another line with it."""
        writer = self.transcripts[self.wrote[call]]
        return call in writer.calls() or all(one.uuids() & writer.uuids() for one in self.holders(call))

    def known_forks(self) -> dict[str, float]:
        """Forks that still share a line with what they were forked from, with the time of the first own line there."""
        return {
            name: min(iso(line["timestamp"]) for line in self.own(name))
            for name, source in self.source.items()
            if self.transcripts[name].uuids() & self.transcripts[source].uuids()
        }

    def own(self, name: str) -> list[dict]:
        """The lines with ``uuid`` of a session's own turns that its transcript still has."""
        written = {f"{kind}-{int(call[4:])}" for call, by in self.wrote.items() if by == name for kind in KINDS}
        return [line for line in self.transcripts[name].lines if line.get("uuid") in written]


@st.composite
def worlds(draw: st.DrawFn, most: int = 5) -> World:
    """Worlds of a few sessions, each new or forked from any that there is, some of them cut."""
    world = World()
    minute = 0
    for number in range(draw(st.integers(2, most))):
        name = f"{draw(st.integers(0, 15)):x}{number:07x}-0000-4000-8000-000000000000"
        old = list(world.transcripts.values())
        source = draw(st.sampled_from([None, *old, *old])) if old else None
        one = Transcript(name)
        if source is not None:
            one = source.fork(name, draw(st.integers(1, source.turns)))
            world.source[name] = source.name
        for _ in range(draw(st.integers(1, 4))):
            world.wrote[one.turn(minute)] = name
            minute += draw(st.sampled_from((2, 3, 2000)))
            world.steps.append((name, list(one.lines)))
        world.transcripts[name] = one
    for one in world.transcripts.values():
        # At least the last turn stays: an empty file is no transcript.
        if cut := draw(st.sampled_from((0, 0, draw(st.integers(0, len(one.lines) - 3))))):
            del one.lines[:cut]
            world.steps.append((one.name, list(one.lines)))
    return world
