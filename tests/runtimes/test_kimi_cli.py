"""Kimi CLI: a configuration that names the model only after the first pass."""

import json

import pytest

from collector.ingest_store import stamp
from collector.runtimes.kimi_cli import READER
from tests.runtimes.transcripts import Read

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
