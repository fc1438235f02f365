"""What a reading says beside tokens: outcome, tier, id; and what other wires need that no case shows."""

from __future__ import annotations

import json

import pytest

from shim.line import WIRES
from shim.wires import Exchange, Reading
from shim.wires.table import READERS, open_reader, outcome_of


def read(wire: str, document: object, **exchange: object) -> Reading:
    reader = open_reader(wire, Exchange(200, "application/json", **exchange))  # type: ignore[arg-type]
    reader.feed(json.dumps(document).encode())
    return reader.finish(complete=True)


def test_every_wire_of_the_line_but_the_cli_has_a_reader() -> None:
    assert [*READERS, "cursor-cli"] == list(WIRES)


@pytest.mark.parametrize(
    ("reading", "status", "complete", "client_gone", "outcome"),
    [
        (Reading(ended=True), 200, True, False, "completed"),
        (Reading(ended=True), 200, False, True, "completed"),
        (Reading(ended=True, failed=True), 200, True, False, "failed"),
        (Reading(), 200, False, True, "client_closed"),
        (Reading(), 200, False, False, "upstream_closed"),
        (Reading(), 200, True, False, "upstream_closed"),
        (Reading(failed=True), 200, False, True, "failed"),
        (Reading(ended=True), 429, True, False, "rejected"),
        (Reading(failed=True), 503, True, False, "rejected"),
    ],
)
def test_outcome(reading: Reading, status: int, complete: bool, client_gone: bool, outcome: str) -> None:
    assert outcome_of(reading, status, complete=complete, client_gone=client_gone) == outcome


@pytest.mark.parametrize(
    ("wire", "document", "tier"),
    [
        ("openai-chat", {"service_tier": "priority"}, "priority"),
        ("openai-responses", {"service_tier": "flex"}, "flex"),
        ("anthropic-messages", {"usage": {"input_tokens": 1, "service_tier": "batch"}}, "batch"),
        ("anthropic-messages", {"usage": {"input_tokens": 1, "service_tier": "standard", "speed": "fast"}}, "fast"),
        ("gemini", {"usageMetadata": {"promptTokenCount": 1, "serviceTier": "flex"}}, "flex"),
        ("gemini", {"usageMetadata": {"promptTokenCount": 1, "trafficType": "PROVISIONED_THROUGHPUT"}}, "provisioned"),
        ("bedrock-converse", {"serviceTier": {"type": "priority"}, "usage": {"inputTokens": 1}}, "priority"),
    ],
)
def test_service_tier_is_the_served_one(wire: str, document: object, tier: str) -> None:
    assert read(wire, document).service_tier == tier


@pytest.mark.parametrize(
    ("wire", "document", "response_id"),
    [
        ("openai-chat", {"id": "chatcmpl-1"}, "chatcmpl-1"),
        ("openai-responses", {"id": "resp_1"}, "resp_1"),
        ("anthropic-messages", {"id": "msg_1", "type": "message"}, "msg_1"),
        ("gemini", {"responseId": "r1"}, "r1"),
        ("dashscope-generation", {"request_id": "q1"}, "q1"),
        ("cohere-v2", {"id": "c1"}, "c1"),
        ("lmstudio-chat", {"response_id": "resp_2"}, "resp_2"),
    ],
)
def test_response_id_is_the_providers(wire: str, document: object, response_id: str) -> None:
    assert read(wire, document).response_id == response_id


def test_bedrock_names_a_response_in_a_header() -> None:
    assert read("bedrock-converse", {}, headers={"x-amzn-requestid": "r-1"}).response_id == "r-1"


def test_nova_states_converse_usage_under_invoke() -> None:
    usage = {"inputTokens": 9, "outputTokens": 4, "totalTokens": 13, "cacheReadInputTokenCount": 5}
    tokens = read("bedrock-invoke", {"output": {}, "usage": usage}).tokens
    assert (tokens.input_tokens, tokens.cache_read_tokens, tokens.output_tokens) == (9, 5, 4)


def test_openai_shaped_models_under_invoke_are_read_as_such() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
    tokens = read("bedrock-invoke", {"id": "x", "model": "gpt-oss", "usage": usage}).tokens
    assert (tokens.input_tokens, tokens.cache_read_tokens, tokens.output_tokens) == (4, 5, 4)


def test_embedding_models_under_invoke_have_no_output() -> None:
    headers = {"x-amzn-bedrock-input-token-count": "8"}
    path = "/model/amazon.titan-embed-text-v2%3A0/invoke"
    assert read("bedrock-invoke", {"embedding": [0.1]}, headers=headers, path=path).usage == "reported"


def test_an_array_of_one_error_is_an_error() -> None:
    assert read("openai-chat", [{"error": {"code": 400, "message": "x", "status": "INVALID_ARGUMENT"}}]).failed


def test_a_json_body_cut_behind_its_usage_is_partial() -> None:
    reader = open_reader("openai-chat", Exchange(200, "application/json"))
    reader.feed(b'{"id": "c", "usage": {"prompt_tokens": 3, "completion_tokens": 4}, "choices": [{"mess')
    reading = reader.finish(complete=False)
    assert (reading.usage, reading.ended, reading.tokens.input_tokens) == ("partial", False, 3)


def test_ndjson_labelled_json_ends_with_its_done_line_only() -> None:
    line = b'{"model": "l", "done": false}\n'
    for last, state in ((b"", "missing"), (b'{"done": true, "prompt_eval_count": 2, "eval_count": 1}\n', "reported")):
        reader = open_reader("ollama", Exchange(200, "application/json", path="/api/chat"))
        reader.feed(line * 3 + last)
        reading = reader.finish(complete=True)
        assert (reading.usage, reading.ended) == (state, state == "reported")


def test_a_body_no_wire_speaks_is_complete_when_http_says_so() -> None:
    for complete in (True, False):
        reader = open_reader("openai-chat", Exchange(200, "text/html"))
        reader.feed(b"<html><body>gateway says hello</body></html>")
        reading = reader.finish(complete=complete)
        assert (reading.usage, reading.ended) == ("missing", complete)


def test_ticks_and_prices_of_nothing_are_unknown() -> None:
    assert read("openai-chat", {"usage": None}).cost_usd is None


def test_converse_one_hour_writes_are_a_subset_of_its_writes() -> None:
    details = [{"ttl": "1h", "inputTokens": 900}, {"ttl": "5m", "inputTokens": 1}]
    usage = {"inputTokens": 1, "outputTokens": 1, "cacheWriteInputTokens": 600, "cacheDetails": details}
    assert read("bedrock-converse", {"usage": usage}).tokens.cache_write_1h_tokens == 600
