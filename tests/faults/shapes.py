"""How each wire says the same call: its URL, request, whole answer and stream.

A call is known by its marker, ``m-<n>``: that is the model's name, and ``n`` the input tokens, so a usage line can be
matched to its call exactly.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

OUTPUT_TOKENS = 5


@dataclass(frozen=True, slots=True)
class Shape:
    """One wire. ``begin``, ``middle`` and ``end`` are the framed parts of its stream."""

    upstream: str
    path: Callable[[str, bool], str]
    request: Callable[[str, bool], dict[str, Any]]
    whole: Callable[[str], dict[str, Any]]
    begin: Callable[[str], bytes]
    middle: Callable[[str, int], bytes]
    end: Callable[[str], bytes]
    content_type: str = "text/event-stream"


def number(marker: str) -> int:
    return int(marker.removeprefix("m-"))


def sse(value: dict[str, Any], event: str | None = None) -> bytes:
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(value)}\n\n".encode()


def ndjson(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _chat_usage(marker: str) -> dict[str, int]:
    total = number(marker) + OUTPUT_TOKENS
    return {"prompt_tokens": number(marker), "completion_tokens": OUTPUT_TOKENS, "total_tokens": total}


def _chat_chunk(marker: str, choices: list[dict[str, Any]], **more: Any) -> bytes:
    value = {"id": f"chatcmpl-{marker}", "object": "chat.completion.chunk", "model": marker, "choices": choices}
    return sse(value | more)


def _chat_delta(text: str) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": {"content": text}, "finish_reason": None}]


def _chat_request(marker: str, stream: bool) -> dict[str, Any]:
    """Usage is asked for, so the shim has no reason to change the stream."""
    asked = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return {"model": marker, "messages": [{"role": "user", "content": "hello"}], **asked}


CHAT = Shape(
    "openai",
    lambda marker, stream: "v1/chat/completions",
    _chat_request,
    lambda marker: {
        "id": f"chatcmpl-{marker}",
        "object": "chat.completion",
        "model": marker,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": _chat_usage(marker),
    },
    lambda marker: _chat_chunk(marker, _chat_delta("begin")),
    lambda marker, n: _chat_chunk(marker, _chat_delta(f"word {n}")),
    lambda marker: _chat_chunk(marker, [], usage=_chat_usage(marker)) + b"data: [DONE]\n\n",
)


def _message(marker: str, output: int) -> dict[str, Any]:
    usage = {
        "input_tokens": number(marker),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output,
    }
    return {
        "id": f"msg_{marker}",
        "type": "message",
        "role": "assistant",
        "model": marker,
        "content": [],
        "usage": usage,
    }


def _text_delta(n: int) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"word {n}"}}


MESSAGES = Shape(
    "anthropic",
    lambda marker, stream: "v1/messages",
    lambda marker, stream: {
        "model": marker,
        "max_tokens": 10,
        "stream": stream,
        "messages": [{"role": "user", "content": "hello"}],
    },
    lambda marker: _message(marker, OUTPUT_TOKENS) | {"stop_reason": "end_turn"},
    lambda marker: sse({"type": "message_start", "message": _message(marker, 1)}, "message_start"),
    lambda marker, n: sse(_text_delta(n), "content_block_delta"),
    lambda marker: (
        sse(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": OUTPUT_TOKENS},
            },
            "message_delta",
        )
        + sse({"type": "message_stop"}, "message_stop")
    ),
)


def _response(marker: str, status: str) -> dict[str, Any]:
    usage = {
        "input_tokens": number(marker),
        "output_tokens": OUTPUT_TOKENS,
        "total_tokens": number(marker) + OUTPUT_TOKENS,
    }
    found = {"id": f"resp_{marker}", "object": "response", "model": marker, "status": status, "output": []}
    return found | {"usage": usage if status == "completed" else None}


RESPONSES = Shape(
    "openai",
    lambda marker, stream: "v1/responses",
    lambda marker, stream: {"model": marker, "input": "hello", "stream": stream},
    lambda marker: _response(marker, "completed"),
    lambda marker: sse({"type": "response.created", "response": _response(marker, "in_progress")}, "response.created"),
    lambda marker, n: sse({"type": "response.output_text.delta", "delta": f"word {n}"}, "response.output_text.delta"),
    lambda marker: sse(
        {"type": "response.completed", "response": _response(marker, "completed")}, "response.completed"
    ),
)


def _candidate(marker: str, text: str, *, last: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "responseId": f"r-{marker}",
        "modelVersion": marker,
        "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}],
    }
    if last:
        found["candidates"][0]["finishReason"] = "STOP"
        found["usageMetadata"] = {
            "promptTokenCount": number(marker),
            "candidatesTokenCount": OUTPUT_TOKENS,
            "totalTokenCount": number(marker) + OUTPUT_TOKENS,
        }
    return found


GEMINI = Shape(
    "gemini",
    lambda marker, stream: f"v1beta/models/{marker}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}",
    lambda marker, stream: {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]},
    lambda marker: _candidate(marker, "hi", last=True),
    lambda marker: sse(_candidate(marker, "begin", last=False)),
    lambda marker, n: sse(_candidate(marker, f"word {n}", last=False)),
    lambda marker: sse(_candidate(marker, "", last=True)),
)


def _ollama(marker: str, text: str, *, done: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"model": marker, "message": {"role": "assistant", "content": text}, "done": done}
    counts = {"prompt_eval_count": number(marker), "eval_count": OUTPUT_TOKENS, "done_reason": "stop"}
    return found | (counts if done else {})


OLLAMA = Shape(
    "ollama",
    lambda marker, stream: "api/chat",
    lambda marker, stream: {
        "model": marker,
        "stream": stream,
        "messages": [{"role": "user", "content": "hello"}],
    },
    lambda marker: _ollama(marker, "hi", done=True),
    lambda marker: ndjson(_ollama(marker, "begin", done=False)),
    lambda marker, n: ndjson(_ollama(marker, f"word {n}", done=False)),
    lambda marker: ndjson(_ollama(marker, "", done=True)),
    "application/x-ndjson",
)

SHAPES = (CHAT, MESSAGES, RESPONSES, GEMINI, OLLAMA)
# A piece of the path -> the shape of its answers; the first found counts.
BY_PATH = (
    ("/chat/completions", CHAT),
    ("/v1/messages", MESSAGES),
    ("/v1/responses", RESPONSES),
    ("/v1beta/models/", GEMINI),
    ("/api/chat", OLLAMA),
)


def shape_of(path: str) -> Shape:
    return next(shape for piece, shape in BY_PATH if piece in path)
