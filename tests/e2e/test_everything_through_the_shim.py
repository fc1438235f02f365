"""A fleet that exports the environment everywhere: three runtimes sent through the shim under one token-blind name.

Claude Code and Codex keep their own records, PicoClaw keeps none; what sits between them and the shim has replaced
their User-Agent, so the shim meters all three as PicoClaw's. Each call counts once, for the runtime that made it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.programs import collector, report, running_collector, running_shim

CODEX_SESSION = "ffff0000-0000-7000-8000-00000000000a"
CLAUDE_SESSION = "0000000a-0000-4000-8000-00000000000a"


class Provider(BaseHTTPRequestHandler):
    """Answers each call with tokens and an id by its number, which the request's metadata tell."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        data = json.dumps(answer(self.path, int(request["metadata"]["user_id"]), request["model"])).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test output clean."""


def answer(path: str, number: int, model: str) -> dict[str, Any]:
    if path.endswith("/messages"):
        usage: dict[str, Any] = {"input_tokens": 10 + number, "output_tokens": 20 + number}
        return {"id": f"msg_{number}", "type": "message", "model": model, "content": [], "usage": usage}
    if path.endswith("/responses"):
        usage = {"input_tokens": 1000 + number, "output_tokens": 200 + number, "total_tokens": 1200 + 2 * number}
        usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        return {"id": f"resp_{number}", "object": "response", "status": "completed", "model": model, "usage": usage}
    usage = {"prompt_tokens": 100 + number, "completion_tokens": 30 + number, "total_tokens": 130 + 2 * number}
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "model": model,
        "choices": [choice],
        "usage": usage,
    }


@contextmanager
def provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Home:
    """What Claude Code and Codex write of their calls as they make them."""

    def __init__(self, folder: Path) -> None:
        self.claude = folder / ".claude/projects/-work" / f"{CLAUDE_SESSION}.jsonl"
        day = datetime.now(UTC).strftime("%Y/%m/%d")
        self.codex = folder / ".codex/sessions" / day / f"rollout-{now()[:19].replace(':', '-')}-{CODEX_SESSION}.jsonl"
        self.total = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0, "reasoning_output_tokens": 0}
        self.append(self.codex, "session_meta", {"id": CODEX_SESSION, "timestamp": now(), "model_provider": "openai"})
        self.append(self.codex, "turn_context", {"model": "gpt-5", "turn_id": "turn-1"})

    def append(self, path: Path, kind: str, payload: dict[str, Any]) -> None:
        self.write(path, {"timestamp": now(), "type": kind, "payload": payload})

    def write(self, path: Path, entry: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")

    def claude_call(self, message: dict[str, Any]) -> None:
        entry = {"type": "assistant", "uuid": f"u-{message['id']}", "sessionId": CLAUDE_SESSION, "timestamp": now()}
        self.write(self.claude, entry | {"requestId": f"req_{message['id']}", "message": message})

    def codex_call(self, usage: dict[str, Any]) -> None:
        last = dict.fromkeys(self.total, 0)
        last |= {"input_tokens": usage["input_tokens"], "output_tokens": usage["output_tokens"]}
        self.total = {name: count + last[name] for name, count in self.total.items()}
        info = {
            "total_token_usage": self.total | {"total_tokens": sum(self.total.values())},
            "last_token_usage": last | {"total_tokens": usage["total_tokens"]},
        }
        self.append(self.codex, "event_msg", {"type": "token_count", "info": info})


def test_each_call_counts_once_for_the_runtime_that_made_it(tmp_path: Path) -> None:
    with provider() as url, running_shim(tmp_path, {"OPENAI": url, "ANTHROPIC": url}) as shim:
        home = Home(tmp_path)

        def call(path: str, model: str, number: int) -> dict[str, Any]:
            body = {"model": model, "metadata": {"user_id": str(number)}}
            text = [{"role": "user", "content": f"call {number}"}]
            body |= {"input": text} if path.endswith("responses") else {"messages": text}
            agent = {"User-Agent": "corporate-proxy/1.0"}
            found: dict[str, Any] = httpx.post(f"{shim.url}/picoclaw/{path}", json=body, headers=agent).json()
            return found

        for number in range(3):
            home.claude_call(call("anthropic/v1/messages", "claude-sonnet-4-5", number))
            home.codex_call(call("openai/v1/responses", "gpt-5", number)["usage"])
            call("openai/v1/chat/completions", "gpt-5-mini", number)
        assert [line["runtime"] for line in shim.stop()] == ["picoclaw"] * 9

    for _ in range(2):  # a second look changes nothing
        collector(shim.environ, "ingest", "--log", str(shim.log), "--home", str(tmp_path))
        rows = {row["runtime"]: row for row in report(shim.environ, "runtime") if row["calls"]}
        counted = {name: (row["calls"], row["input_tokens"], row["output_tokens"]) for name, row in rows.items()}
        assert counted == {
            "claude_code": (3, 10 + 11 + 12, 20 + 21 + 22),
            "codex": (3, 1000 + 1001 + 1002, 200 + 201 + 202),
            "picoclaw": (3, 100 + 101 + 102, 30 + 31 + 32),
        }
    with running_collector(shim.environ, tmp_path) as api:
        rows = httpx.get(f"{api}/api/local/refused").json()["rows"]
        assert [(row["reason"], row["runtime"], row["count"]) for row in rows] == [("twin", "picoclaw", 6)]
