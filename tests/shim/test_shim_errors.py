"""Faults between the shim and an upstream: told in the shape of the wire, with the upstream's name and nothing else."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from shim import errors
from tests.e2e.programs import Shim, free_port, running_shim
from tests.shim.raw import eventually

KEY = "sk-test-key"


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shim]:
    """A shim whose upstreams are all down."""
    down = f"http://127.0.0.1:{free_port()}"
    names = ("OPENAI", "ANTHROPIC", "GEMINI", "OLLAMA", "COHERE", "DASHSCOPE", "BEDROCK")
    upstreams = dict.fromkeys(names, down) | {"UNRESOLVED": "http://nowhere.invalid"}
    with running_shim(tmp_path_factory.mktemp("down"), upstreams) as running:
        yield running


def message(answer: httpx.Response, *path: str) -> str:
    value = answer.json()
    for key in path:
        value = value[key]
    return str(value)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("openai/v1/chat/completions", ("error", "message")),
        ("openai/v1/responses", ("error", "message")),
        ("anthropic/v1/messages", ("error", "message")),
        ("gemini/v1beta/models/g:generateContent", ("error", "message")),
        ("ollama/api/chat", ("error",)),
        ("cohere/v2/chat", ("message",)),
        ("bedrock/model/m/converse", ("message",)),
        ("dashscope/api/v1/services/aigc/text-generation/generation", ("message",)),
    ],
)
def test_an_upstream_that_is_down_is_said_in_the_wires_shape(shim: Shim, path: str, where: tuple[str, ...]):
    headers = {"Authorization": f"Bearer {KEY}", "x-api-key": KEY}
    answer = httpx.post(f"{shim.url}/picoclaw/{path}?key={KEY}", json={"model": "m"}, headers=headers)
    assert answer.status_code == 502
    assert message(answer, *where) == f"The upstream {path.partition('/')[0]} refuses connections."
    assert KEY not in answer.text + str(answer.headers)


def test_a_line_says_that_it_was_unreachable(shim: Shim):
    before = len(shim.lines())
    httpx.post(f"{shim.url}/picoclaw/openai/v1/chat/completions", json={"model": "m", "stream": True})
    (line,) = eventually(lambda: shim.lines()[before:])
    assert (line["outcome"], line["http_status"], line["usage"], line["model"]) == ("unreachable", None, "missing", "m")


def test_a_name_that_does_not_resolve_is_a_502(shim: Shim):
    answer = httpx.post(f"{shim.url}/picoclaw/unresolved/v1/chat/completions", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_dns")


def test_every_fault_is_counted_by_reason(shim: Shim):
    httpx.post(f"{shim.url}/picoclaw/openai/v1/chat/completions", json={})
    rows = httpx.get(f"{shim.url}/-/status").json()["upstream_errors"]
    assert {"upstream": "openai", "reason": "refused"}.items() <= rows[0].items()


def test_nothing_of_a_call_is_in_the_log_of_events(tmp_path):
    down = f"http://127.0.0.1:{free_port()}"
    with running_shim(tmp_path, {"OPENAI": down}, VM_USAGE_LOG_LEVEL="debug") as shim:
        headers = {"Authorization": f"Bearer {KEY}"}
        httpx.post(f"{shim.url}/picoclaw/openai/v1/chat/completions?k={KEY}", json={"canary": 1}, headers=headers)
    events = (tmp_path / "shim.err").read_text()
    assert "upstream_unreachable" in events
    assert KEY not in events
    assert "canary" not in events


def test_an_upstream_that_does_not_speak_tls_is_a_502(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def answer_in_clear() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer_in_clear)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with running_shim(tmp_path, {"OPENAI": url}) as shim:
            answer = httpx.post(f"{shim.url}/picoclaw/openai/v1/chat/completions", json={}, timeout=20)
        thread.join()
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_tls")


@pytest.mark.parametrize("wire", [None, *errors.SHAPES, "openai-chat"])
def test_every_shape_is_json_with_the_message(wire: str | None):
    assert "said so" in json.dumps(json.loads(errors.body(wire, 502, "code", "said so")))


def test_head_gets_no_body():
    assert errors.response(404, b"{}", close=True, head_only=True).endswith(b"\r\n\r\n")
