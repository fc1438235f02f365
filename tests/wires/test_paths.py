"""A path tells the wire by its end, the model where it names one, and whether it only counts."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from shim.wires.paths import counting_endpoint, model_from_path, wire_of

ARN = "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.m"


@pytest.mark.parametrize(
    ("path", "wire"),
    [
        ("/v1/chat/completions", "openai-chat"),
        ("/chat/completions", "openai-chat"),
        ("/api/coding/paas/v4/chat/completions", "openai-chat"),
        ("/openai/deployments/d/chat/completions?api-version=2024-10-21", "openai-chat"),
        ("/v1/projects/p/locations/l/endpoints/openapi/chat/completions", "openai-chat"),
        ("/v1/projects/p/locations/l/publishers/mistralai/models/m:streamRawPredict", "openai-chat"),
        ("/v1beta/openai/chat/completions/", "openai-chat"),
        ("/v1/responses", "openai-responses"),
        ("/backend-api/codex/responses", "openai-responses"),
        ("/v1/responses/compact", "openai-responses"),
        ("/v1/responses/input_tokens", "openai-responses"),
        ("/v1/responses/resp_1", "openai-responses"),
        ("/v1/responses/resp_1/cancel", "openai-responses"),
        ("/v1/responses/resp_1/input_items", None),
        ("/v1/completions", "openai-completions"),
        ("/v1/embeddings", "openai-embeddings"),
        ("/api/v1/embeddings", "openai-embeddings"),
        ("/v1/messages?beta=true", "anthropic-messages"),
        ("/api/anthropic/v1/messages", "anthropic-messages"),
        ("/v1/messages/count_tokens", "anthropic-messages"),
        ("/v1/messages/batches", None),
        ("/v1/threads/thread_1/messages", None),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude:rawPredict", "anthropic-messages"),
        ("/v1beta/models/gemini-2.5-pro:generateContent", "gemini"),
        ("/v1internal:streamGenerateContent?alt=sse", "gemini"),
        ("/v1beta/models/gemini-embedding-001:embedContent", "gemini"),
        ("/model/m/converse", "bedrock-converse"),
        ("/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.m/converse-stream", "bedrock-converse"),
        ("/model/m/invoke-with-response-stream", "bedrock-invoke"),
        ("/api/chat", "ollama"),
        ("/api/generate", "ollama"),
        ("/api/embed", "ollama"),
        ("/api/embeddings", "ollama"),
        ("/api/v1/chat", "lmstudio-chat"),
        ("/v2/chat", "cohere-v2"),
        ("/api/v1/services/aigc/multimodal-generation/generation", "dashscope-generation"),
        ("/completion", "llamacpp-completion"),
        ("/v1/models", None),
        ("/api/tags", None),
        ("/v1/files", None),
        ("/v1/images/generations", None),
        ("/v1/chat/completions/extra", None),
        ("/", None),
        ("", None),
    ],
)
def test_wire_by_path(path: str, wire: str | None) -> None:
    assert wire_of(path) == wire


@pytest.mark.parametrize(
    ("method", "path", "wire"),
    [
        ("POST", "/v1/chat/completions", "openai-chat"),
        ("GET", "/v1/chat/completions", None),
        ("GET", "/v1/responses/resp_1", "openai-responses"),
        ("GET", "/v1/responses", None),
        ("DELETE", "/v1/responses/resp_1", None),
        ("OPTIONS", "/v1/messages", None),
    ],
)
def test_only_a_post_is_a_call_and_a_get_reads_one_response(method: str, path: str, wire: str | None) -> None:
    assert wire_of(path, method) == wire


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages/count_tokens?beta=true",
        "/v1/responses/input_tokens",
        "/v1beta/models/gemini-2.5-pro:countTokens",
        "/model/anthropic.claude%3A0/count-tokens",
        "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict",
        "/v1/projects/p/locations/l/publishers/anthropic/models/count_tokens:rawPredict",
    ],
)
def test_counting_endpoints(path: str) -> None:
    assert counting_endpoint(path)
    assert wire_of(path) is not None


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1beta/models/count:generateContent", "/"])
def test_calls_are_not_counting(path: str) -> None:
    assert not counting_endpoint(path)


@pytest.mark.parametrize(
    ("wire", "path", "model"),
    [
        ("gemini", "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "gemini-2.5-pro"),
        ("gemini", "/v1/projects/p/locations/l/publishers/google/models/g-001:generateContent", "g-001"),
        ("gemini", "/v1internal:generateContent", None),
        ("anthropic-messages", "/v1/projects/p/publishers/anthropic/models/c-4@20250929:rawPredict", "c-4@20250929"),
        ("anthropic-messages", "/v1/messages", None),
        ("bedrock-converse", "/model/anthropic.claude-v1%3A0/converse", "anthropic.claude-v1:0"),
        ("bedrock-invoke", "/model/us.meta.llama/invoke-with-response-stream", "us.meta.llama"),
        ("bedrock-converse", f"/model/{quote(ARN, safe='')}/converse", ARN),
        ("bedrock-converse", f"/model/{ARN}/converse", ARN),
        ("openai-chat", "/openai/deployments/my-deploy/chat/completions", "my-deploy"),
        ("openai-chat", "/v1/chat/completions", None),
        ("ollama", "/api/chat", None),
        ("cursor-cli", "/", None),
    ],
)
def test_model_by_path(wire: str, path: str, model: str | None) -> None:
    assert model_from_path(wire, path) == model
