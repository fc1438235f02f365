"""A loopback provider that speaks enough of OpenAI's and Anthropic's wires for their own SDKs.

What it answers depends on the last user message alone: ``say hello``, ``call a tool``, ``be limited`` (429 with
Retry-After once, then an answer), ``break`` (500 for ever), ``refuse`` (400). The numbers are fixed: see ``CHAT_USAGE``
and ``MESSAGE_USAGE``.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CHAT_USAGE = {
    "prompt_tokens": 1200,
    "completion_tokens": 150,
    "total_tokens": 1350,
    "prompt_tokens_details": {"cached_tokens": 1024},
    "completion_tokens_details": {"reasoning_tokens": 64},
}
MESSAGE_USAGE = {
    "input_tokens": 21,
    "cache_creation_input_tokens": 300,
    "cache_read_input_tokens": 4096,
    "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 100},
    "output_tokens": 57,
}
TOOL = {"name": "lookup", "arguments": {"city": "Oslo"}}


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    tries: Counter[str]

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        wish = request["messages"][-1]["content"]
        self.tries[wish] += 1
        if wish == "be limited" and self.tries[wish] == 1:
            self.error(429, "rate_limit_error", {"Retry-After": "0"})
        elif wish == "break":
            self.error(500, "api_error", {})
        elif wish == "refuse":
            self.error(400, "invalid_request_error", {})
        elif self.path == "/v1/chat/completions":
            self.send(chat_events(request, wish) if request.get("stream") else chat(request, wish))
        else:
            self.send(message_events(request, wish) if request.get("stream") else message(request, wish))

    def error(self, status: int, kind: str, headers: dict[str, str]) -> None:
        body = {"type": "error", "error": {"type": kind, "message": "as asked"}}
        self.send(body, status, headers)

    def send(self, body: dict[str, Any] | list[str], status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"x-request-id": "req_1", "request-id": "req_1"} | (headers or {})).items():
            self.send_header(name, value)
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
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event.encode()), event.encode()))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test output clean."""


def chat(request: dict[str, Any], wish: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "Hello there."}
    if wish == "call a tool":
        function = {"name": TOOL["name"], "arguments": json.dumps(TOOL["arguments"])}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1796068800,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": CHAT_USAGE,
    }


def chat_events(request: dict[str, Any], wish: str) -> list[str]:
    whole = chat(request, wish)
    head = {key: whole[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    message = whole["choices"][0]["message"]
    if wish == "call a tool":
        deltas = [{"tool_calls": [{"index": 0, **message["tool_calls"][0]}]}]
    else:
        deltas = [{"content": word} for word in ("Hello", " there", ".")]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events: list[dict[str, Any]] = [{**head, "choices": [choice]} for choice in choices]
    if (request.get("stream_options") or {}).get("include_usage"):
        events.append({**head, "choices": [], "usage": CHAT_USAGE})
    return [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]


def message(request: dict[str, Any], wish: str) -> dict[str, Any]:
    content: dict[str, Any] = {"type": "text", "text": "Hello there."}
    if wish == "call a tool":
        content = {"type": "tool_use", "id": "toolu_1", "name": TOOL["name"], "input": TOOL["arguments"]}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [content],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": MESSAGE_USAGE,
    }


def message_events(request: dict[str, Any], wish: str) -> list[str]:
    whole = message(request, wish)
    content = whole["content"][0]
    if wish == "call a tool":
        block = {**content, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(content["input"])}]
    else:
        block = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": word} for word in ("Hello", " there", ".")]
    start = {**whole, "content": [], "stop_reason": None, "usage": {**MESSAGE_USAGE, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    events.append({"type": "content_block_start", "index": 0, "content_block": block})
    events += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
    events.append({"type": "content_block_stop", "index": 0})
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 57}})
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]


@dataclass(frozen=True, slots=True)
class Running:
    """A provider that serves: its base URL and how often each wish was made of it."""

    url: str
    tries: Counter[str]


@contextmanager
def provider() -> Iterator[Running]:
    """A fresh provider that serves until the block ends."""
    tries: Counter[str] = Counter()
    handler = type("Fresh", (Provider,), {"tries": tries})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield Running(f"http://127.0.0.1:{server.server_port}", tries)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
