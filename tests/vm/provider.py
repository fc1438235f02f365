"""A provider on port 4319 of the machine, for PicoClaw's configuration: OpenAI-style answers, streams as long as asked.

Standard library alone, since it runs with the machine's own Python. ``model`` ``...-slow-N``: a stream of N tenths of a
second. It wants usage to be asked for, as OpenAI does.
"""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {
    "prompt_tokens": 1200,
    "completion_tokens": 150,
    "total_tokens": 1350,
    "prompt_tokens_details": {"cached_tokens": 1024},
    "completion_tokens_details": {"reasoning_tokens": 64},
}


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = request["model"]
        if request.get("stream"):
            ticks = int(model.rpartition("-slow-")[2]) if "-slow-" in model else 3
            self.stream(model, ticks, (request.get("stream_options") or {}).get("include_usage", False))
            return
        message = {"role": "assistant", "content": "An answer."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": f"chatcmpl-{time.monotonic_ns()}", "model": model, "choices": [choice], "usage": USAGE}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, model: str, ticks: int, include_usage: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        head = {"id": f"chatcmpl-{time.monotonic_ns()}", "object": "chat.completion.chunk", "model": model}
        for _ in range(ticks):
            self.event({**head, "choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]})
            time.sleep(0.1)
        self.event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if include_usage:
            self.event({**head, "choices": [], "usage": USAGE})
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, body: dict[str, Any]) -> None:
        self.chunk(f"data: {json.dumps(body)}\n\n".encode())

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 4319), Provider).serve_forever()
