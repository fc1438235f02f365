"""Kimi Code: agents and forks of a session, and a provider that sends no usage."""

import json
from pathlib import Path

import pytest

from collector.runtimes.kimi_code import READER
from tests.runtimes.transcripts import Read, read_home, total, write

START = 1_796_000_000_000


def call(at: int, fresh: int, output: int, alias: str = "k") -> dict:
    usage = {"inputOther": fresh, "output": output, "inputCacheRead": 0, "inputCacheCreation": 0}
    return {"type": "usage.record", "model": alias, "usage": usage, "usageScope": "turn", "time": START + at}


def session(home: Path, name: str, made: object, *lines: dict, agent: str = "main", **state: object) -> None:
    folder = home / ".kimi-code/sessions/wd_demo_0123456789ab" / f"session_{name}"
    first = {"type": "metadata", "protocol_version": "1.5", "created_at": START}
    write(folder / "agents" / agent / "wire.jsonl", first, *lines)
    (folder / "state.json").write_text(json.dumps({"createdAt": made, **state}))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("made", [START + 900_000, "2026-11-30T13:20:00.000Z"], ids=["ms", "iso"])
def test_a_fork_pays_for_what_follows_its_mark_in_every_agent(tmp_path, made, backwards):
    main, helper = [call(1_000, 100, 10), call(2_000, 200, 20)], [call(1_500, 40, 4)]
    session(tmp_path, "a", START, *main)
    session(tmp_path, "a", START, *helper, agent="agent-1")
    mark = {"type": "forked", "time": START + 900_050}
    session(tmp_path, "b", made, *main, mark, call(901_000, 7, 1), forkedFrom="session_a")
    session(tmp_path, "b", made, *helper, mark, agent="agent-1", forkedFrom="session_a")
    read: Read = read_home(READER, tmp_path, backwards=backwards)
    assert total(read.of("session_a"), "input_tokens") == 100 + 200 + 40
    assert total(read.of("session_b"), "input_tokens") == 7
    assert read.sessions["session_b"].parent_session_id == "session_a"


def test_zeros_of_a_call_whose_provider_sent_no_usage_are_not_measured(tmp_path):
    session(tmp_path, "a", START, call(1_000, 0, 0), call(2_000, 0, 3))
    assert [record.usage for record in read_home(READER, tmp_path).of("session_a")] == ["missing", "reported"]


def test_an_alias_means_the_model_that_was_asked_for_last(tmp_path):
    def asked(at: int, model: str) -> dict:
        return {"type": "llm.request", "model": model, "modelAlias": "k", "time": START + at}

    lines = (
        asked(1, "kimi-k2"),
        call(1_000, 1, 1),
        asked(2_000, "kimi-k3"),
        call(3_000, 2, 1),
        call(4_000, 3, 1, "other"),
    )
    session(tmp_path, "a", START, *lines)
    assert [record.model for record in read_home(READER, tmp_path).of("session_a")] == ["kimi-k2", "kimi-k3", "other"]
