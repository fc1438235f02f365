"""Kimi CLI: a configuration that names the model only after the first pass; sub-agents with and without a log;
forks that say when they were made."""

import json

import pytest

from collector.ingest_store import stamp
from collector.runtimes.kimi_cli import READER
from tests.runtimes.transcripts import Read, read_home, total

START = 1_796_000_000.0


def step(at, output):
    usage = {"input_other": 10, "input_cache_read": 5, "input_cache_creation": 0, "output": output}
    payload = {"token_usage": usage, "message_id": f"chatcmpl-{at:020}"}
    return json.dumps({"timestamp": START + at, "message": {"type": "StatusUpdate", "payload": payload}}) + "\n"


@pytest.fixture
def wire(tmp_path):
    path = tmp_path / ".kimi/sessions" / ("0" * 32) / "s1" / "wire.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"type":"metadata","protocol_version":"1.10"}\n' + step(1, 20) + step(2, 30))
    return path


def test_a_model_that_is_configured_later_is_given_to_what_was_read_without(tmp_path, wire):
    read = Read()
    (source,) = READER.sources(tmp_path, {})
    read.take(READER, source)
    assert [record.model for record in read.of("s1")] == [None, None]
    before = stamp(source)
    (tmp_path / ".kimi/config.toml").write_text('default_model = "k"\n[models.k]\nmodel = "kimi-k2"\n')
    (source,) = READER.sources(tmp_path, {})
    assert stamp(source) != before
    read.take(READER, source)
    assert [(record.model, record.model_source) for record in read.of("s1")] == [("kimi-k2", "config")] * 2
    assert read.sessions["s1"].model == "kimi-k2"


def test_a_model_that_is_configured_otherwise_later_leaves_what_was_read(tmp_path, wire):
    config = tmp_path / ".kimi/config.toml"
    read = Read()
    for named in ("kimi-k2", "kimi-k3"):
        config.write_text(f'default_model = "{named}"\n')
        (source,) = READER.sources(tmp_path, {})
        read.take(READER, source)
        with wire.open("a") as file:
            file.write(step(3, 40))
    read.take(READER, source)
    assert [record.model for record in read.of("s1")] == ["kimi-k2", "kimi-k2", "kimi-k3"]


def test_the_configuration_of_versions_before_toml_names_the_model_too(tmp_path, wire):
    config = tmp_path / ".kimi/config.json"
    config.write_text(json.dumps({"default_model": "k", "models": {"k": {"model": "kimi-k2"}}}))
    assert read_home(READER, tmp_path).sessions["s1"].model == "kimi-k2"
    (tmp_path / ".kimi/config.toml").write_text('default_model = "kimi-k3"\n')
    assert read_home(READER, tmp_path).sessions["s1"].model == "kimi-k3"


def wrapped(at, output, **agent):
    event = json.loads(step(at, output))
    payload = {"task_tool_call_id": "t", "event": event["message"], **agent}
    return json.dumps({**event, "message": {"type": "SubagentEvent", "payload": payload}}) + "\n"


def test_a_sub_agent_that_has_no_log_of_its_own_counts_where_its_events_are_wrapped(tmp_path, wire):
    with wire.open("a") as file:
        file.write(wrapped(3, 7) + wrapped(4, 8) + wrapped(5, 1000, agent_id="ab12"))
    fork = wire.parents[1] / "s2" / "wire.jsonl"
    fork.parent.mkdir()
    fork.write_text(wire.read_text() + step(900, 60))
    read = read_home(READER, tmp_path)
    assert total(read.of("s1"), "output_tokens") == 20 + 30 + 7 + 8
    assert total(read.of("s2"), "output_tokens") == 60
    assert read.skipped["mirrored"] == 2


def said(wire, made, file="state.json"):
    """What Kimi CLI writes beside a log: a session with a title, and when its log was copied if it was."""
    state = {"custom_title": "secret", "title_generated": file == "state.json", "wire_mtime": made}
    wire.with_name(file).write_text(json.dumps(state))


@pytest.mark.parametrize("file", ["state.json", "metadata.json"], ids=["since 1.28", "before"])
@pytest.mark.parametrize("name", ["s0", "s2"])
@pytest.mark.parametrize("lines", [2, 3], ids=["up to a turn", "all of it"])
def test_a_fork_that_is_seen_before_anybody_went_on_with_it_owns_nothing_of_what_it_copied(
    tmp_path, wire, name, lines, file
):
    fork = wire.parents[1] / name / "wire.jsonl"
    fork.parent.mkdir()
    fork.write_text("".join(wire.read_text().splitlines(keepends=True)[:lines]))
    said(wire, None)
    said(fork, START + 500, file)
    read = read_home(READER, tmp_path)
    assert total(read.of("s1"), "output_tokens") == 50
    assert not read.of(name)
    for path, line in ((fork, step(600, 4)), (wire, step(700, 8))):
        path.write_text(path.read_text() + line)
    for source in READER.sources(tmp_path, {}):
        read.take(READER, source)
    assert [total(read.of(session), "output_tokens") for session in ("s1", name)] == [58, 4]
    assert [read.sessions[session].started_ts for session in ("s1", name)] == [START + 1, START + 500]
    assert read.facts() == read_home(READER, tmp_path, backwards=True).facts()


def test_when_an_older_web_page_saw_a_log_last_is_not_when_it_was_copied(tmp_path, wire):
    """Before 1.28 every session that the page listed kept the time of its log, as a fork did that went on."""
    said(wire, START + 2.01)
    fork = wire.parents[1] / "s2" / "wire.jsonl"
    fork.parent.mkdir()
    fork.write_text(wire.read_text() + step(600, 4))
    wire.write_text(wire.read_text() + step(300, 8))
    for backwards in (False, True):
        read = read_home(READER, tmp_path, backwards=backwards)
        assert [total(read.of(session), "output_tokens") for session in ("s1", "s2")] == [58, 4]
        assert read.sessions["s1"].started_ts == START + 1
