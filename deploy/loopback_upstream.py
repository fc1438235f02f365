"""A loopback upstream for the quickstart: replays what OpenAI and Anthropic send, plain and streamed.

The numbers are fixed, so that the report can be checked by eye. It answers nothing else and listens on loopback only.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OPENAI_USAGE = {
    "prompt_tokens": 1200,
    "completion_tokens": 150,
    "total_tokens": 1350,
    "prompt_tokens_details": {"cached_tokens": 1024},
    "completion_tokens_details": {"reasoning_tokens": 64},
}
ANTHROPIC_START = {
    "input_tokens": 21,
    "cache_creation_input_tokens": 2048,
    "cache_read_input_tokens": 4096,
    "cache_creation": {"ephemeral_5m_input_tokens": 2048, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 1,
}
WORDS = ("Usage ", "is ", "counted ", "once.")


def openai_plain(model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": "".join(WORDS)}
    return {
        "id": "chatcmpl-quickstart-1",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": OPENAI_USAGE,
        "service_tier": "default",
    }


def openai_stream(model: str, include_usage: bool) -> list[str]:
    head = {"id": "chatcmpl-quickstart-2", "object": "chat.completion.chunk", "model": model}
    deltas: list[dict[str, Any]] = [{"delta": {"content": word}, "finish_reason": None} for word in WORDS]
    deltas.append({"delta": {}, "finish_reason": "stop"})
    events = [{**head, "choices": [{"index": 0, **delta}]} for delta in deltas]
    if include_usage:
        events.append({**head, "choices": [], "usage": OPENAI_USAGE})
    return [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]


def anthropic_plain(model: str) -> dict[str, Any]:
    return {
        "id": "msg_quickstart_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": "".join(WORDS)}],
        "stop_reason": "end_turn",
        "usage": {**ANTHROPIC_START, "output_tokens": 57},
    }


def anthropic_stream(model: str) -> list[str]:
    message = {**anthropic_plain(model), "id": "msg_quickstart_2", "content": [], "usage": ANTHROPIC_START}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    events.append({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for word in WORDS:
        delta = {"type": "text_delta", "text": word}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    events.append({"type": "content_block_stop", "index": 0})
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 57}})
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]


class Replay(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model, stream = request["model"], request.get("stream", False)
        if self.path.endswith("/chat/completions"):
            include_usage = (request.get("stream_options") or {}).get("include_usage", False)
            self.answer(openai_stream(model, include_usage) if stream else openai_plain(model))
        elif self.path.endswith("/messages"):
            self.answer(anthropic_stream(model) if stream else anthropic_plain(model))
        else:
            self.send_error(404)

    def answer(self, body: dict[str, Any] | list[str]) -> None:
        self.send_response(200)
        if isinstance(body, dict):
            data = json.dumps(body).encode()
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in body:
            data = event.encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the quickstart prints what matters."""


def serve() -> ThreadingHTTPServer:
    """A server on a free loopback port, not yet serving."""
    return ThreadingHTTPServer(("127.0.0.1", 0), Replay)
