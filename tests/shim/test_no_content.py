"""Nothing the shim writes holds content: canaries everywhere a call has room for one, then a search of every trace.

All recorded wire cases go through one real process with debug logging on, whole, cut short and refused, with canaries
in prompts, system texts, answers, tools, file names, keys, cookies, URLs, queries, model names and error bodies. Then
the process is killed with a call in flight, crashes once with a stack dump, and starts anew.
"""

from __future__ import annotations

import base64
import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.programs import Shim, running_shim
from tests.fake_upstream import CLOSE, WAIT, FakeUpstream, Step, chunked, stream_head, whole
from tests.shim.raw import connect, eventually, exchange, request
from tests.wires.recorded import CASES, ENCODE, reads_of

CANARY = "Kanarienvogel7"
# With the space no value can pass for a model's name or an id, whose alphabets leave no room for prose.
SONG = f"{CANARY} sings "
MARK = CANARY.encode()
DISGUISES = {
    "plain": MARK.lower(),
    "hex": MARK.hex().encode(),
    "percent": "".join(f"%{byte:02x}" for byte in MARK).encode(),
    **{f"base64+{shift}": base64.b64encode(b"x" * shift + MARK)[4:-4].lower() for shift in range(3)},
}
CONTENT_KEYS = (
    "content|text|delta|arguments|message|reasoning_content|reasoning|thinking|partial_json|id|responseId|response_id"
    "|request_id|name|output_text|model|modelVersion|model_instance_id|provider|service_tier|finish_reason|stop_reason"
    "|error|code|type|object|response|refusal|system_fingerprint"
)
STRING_VALUE = re.compile(rf'("(?:{CONTENT_KEYS})"\s*:\s*")'.encode())
HEADERS = (
    f"Authorization: Bearer sk-{CANARY}",
    f"x-api-key: {CANARY}",
    f"Cookie: session={CANARY}",
    f"User-Agent: PicoClaw/{CANARY}",
    f"x-stainless-file: /home/{CANARY}/notes.txt",
    f"traceparent: {CANARY}",
)
TOOL = {"type": "function", "function": {"name": SONG, "description": SONG, "parameters": {"properties": {SONG: {}}}}}
PROMPT = {
    "model": SONG,
    "system": SONG,
    "instructions": SONG,
    "systemInstruction": {"parts": [{"text": SONG}]},
    "messages": [
        {"role": "system", "content": SONG},
        {"role": "user", "content": [{"type": "text", "text": SONG}, {"type": "file", "filename": f"{CANARY}.pdf"}]},
        {"role": "assistant", "tool_calls": [{"id": SONG, "function": {"name": SONG, "arguments": SONG}}]},
        {"role": "tool", "tool_call_id": SONG, "content": SONG},
    ],
    "contents": [{"role": "user", "parts": [{"text": SONG}]}],
    "input": [{"role": "user", "content": SONG}],
    "prompt": SONG,
    "tools": [TOOL],
    "metadata": {SONG: SONG},
}
IDENTITIES: list[dict[str, Any]] = [
    {},
    {"session_id": SONG},
    {"prompt_cache_key": CANARY},
    {"metadata": {"user_id": json.dumps({"session_id": CANARY})}},
    {"user": SONG, "previous_response_id": CANARY},
    {"conversation": {"id": CANARY}},
]


def soiled_body(case: dict[str, Any]) -> bytes:
    """The case's response with a canary at the start of every string that could be content; binary frames stay."""
    body = b"".join(reads_of(case))
    if case.get("response_chunks_encoding") != "base64":
        body = STRING_VALUE.sub(rb"\1" + SONG.encode(), body)
    return ENCODE[case["response_content_encoding"]](body) if "response_content_encoding" in case else body


def soiled_response(case: dict[str, Any], body: bytes, status: str = "200 OK") -> bytes:
    headers = [f"x-request-id: {CANARY}", f"Set-Cookie: {CANARY}", f"x-note: {SONG}"]
    if "response_content_encoding" in case and case.get("response_content_encoding_declared", True):
        headers.append(f"Content-Encoding: {case['response_content_encoding']}")
    return whole(body, status, *headers, content_type=case["response_content_type"])


def call(shim: Shim, path: str, body: bytes, *headers: str) -> bytes:
    target = f"/picoclaw/openai{path}{'&' if '?' in path else '?'}key={CANARY}&q={CANARY}%20{CANARY}"
    return exchange(shim.url, request(shim.url, body, *HEADERS, *headers, "Connection: close", path=target))


def sing_all_cases(shim: Shim, provider: FakeUpstream) -> None:
    """Every case whole, cut short and refused."""
    refusal = json.dumps({"error": {"message": SONG, "type": SONG, "code": SONG}}).encode()
    for number, case in enumerate(CASES.values()):
        asked = json.dumps({**case["request"], **PROMPT, **IDENTITIES[number % len(IDENTITIES)]}).encode()
        body = soiled_body(case)
        head, _, sent = soiled_response(case, body).partition(b"\r\n\r\n")
        turns: list[list[Step]] = [
            [head + b"\r\n\r\n" + sent],
            [head + b"\r\n\r\n" + sent[: len(sent) // 2], CLOSE],
            [whole(refusal, "400 Bad Request", f"x-note: {SONG}")],
        ]
        for steps in turns:
            provider.answers(*steps)
            answer = call(shim, case["request_path"], asked)
            assert MARK in answer  # the client got what the provider sent


def sing_odd_calls(shim: Shim, provider: FakeUpstream) -> None:
    """Requests that are broken, refused, signed, unroutable or unreachable, and answers that lie."""
    provider.answers(whole(SONG.encode(), content_type="application/json"))
    call(shim, "/v1/chat/completions", SONG.encode())
    call(shim, "/v1/chat/completions", b'{"model": "' + MARK, f"Content-Encoding: {CANARY}")
    call(shim, f"/v1/models/{CANARY}%20x:generateContent", b"{}")
    call(shim, f"/model/arn%3Aaws%3A{CANARY}%20x/converse", json.dumps(PROMPT).encode())
    call(shim, f"/{CANARY}/unknown/path", b"{}")
    call(shim, "/v1/chat/completions", b"{}", f"Origin: https://{CANARY}.example")
    call(shim, "/v1/messages", b"{}", f"Upgrade: {CANARY}")
    signed = f"Authorization: AWS4-HMAC-SHA256 Credential={CANARY}/20261130/us-east-1/bedrock, Signature={CANARY}"
    unroutable = (f"/{CANARY}/openai/v1/messages", f"/picoclaw/{CANARY}/v1/messages", f"/{CANARY}")
    for target in (*unroutable, "/picoclaw/dead/v1/messages"):
        exchange(shim.url, request(shim.url, json.dumps(PROMPT).encode(), signed, "Connection: close", path=target))
    bedrock = f"/picoclaw/bedrock/model/{CANARY}%20x/invoke?{CANARY}"
    exchange(shim.url, request(shim.url, b"{}", signed, "Connection: close", path=bedrock))
    exchange(shim.url, request(shim.url, b"{}", f"Host: {CANARY}", "Connection: close"))
    exchange(shim.url, f"{CANARY} {CANARY} {CANARY}\r\n\r\n".encode())
    exchange(shim.url, f"GET http://{CANARY}/ HTTP/1.1\r\nHost: {CANARY}\r\n\r\n".encode())
    provider.answers(f"HTTP/9.9 {CANARY}\r\n\r\n".encode(), CLOSE)
    call(shim, "/v1/messages", json.dumps(PROMPT).encode())
    provider.answers(whole(SONG.encode(), "200 OK", "Content-Encoding: gzip"))
    call(shim, "/v1/messages", json.dumps(PROMPT).encode())
    provider.answers(stream_head(), chunked(b"data: {" + MARK, b"\n\ndata: " + MARK * 9000 + b"\n\n"), CLOSE)
    call(shim, "/v1/chat/completions", json.dumps({**PROMPT, "stream": True}).encode())


def die_with_a_call_in_flight(shim: Shim, provider: FakeUpstream, number: int) -> None:
    """End the process by a signal while the provider has not answered yet."""
    provider.got.clear()
    provider.answers(WAIT)
    connection = connect(shim.url)
    connection.sendall(request(shim.url, json.dumps({**PROMPT, "session_id": SONG}).encode(), *HEADERS))
    eventually(lambda: provider.got)
    shim.stop(number)
    connection.close()


class Traces:
    """Everything a shim left: files under its folder by name, and what it answered of itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: dict[str, bytes] = {}
        self.calls = 0

    def ask(self, shim: Shim) -> None:
        for path in ("/-/metrics", "/-/status", "/-/healthz"):
            with urllib.request.urlopen(shim.url + path, timeout=10) as answer:
                self.answers[f"{path} {len(self.answers)}"] = answer.read()

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("canaries")


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeUpstream]:
    with FakeUpstream() as running:
        yield running


def debugging_shim(folder: Path, provider: FakeUpstream) -> Any:
    upstreams = {"OPENAI": provider.url, "BEDROCK": provider.url, "DEAD": "http://127.0.0.1:1"}
    more = {"VM_USAGE_LOG_LEVEL": "debug", "PYTHONFAULTHANDLER": "1", "PYTHONASYNCIODEBUG": "1"}
    return running_shim(folder, upstreams, **more)


@pytest.fixture(scope="module")
def traces(folder: Path, provider: FakeUpstream) -> Iterator[Traces]:
    """What is left after everything has been sung, a kill, a crash and a new start."""
    found = Traces(folder)
    with ExitStack() as stack:
        for end in (signal.SIGKILL, signal.SIGABRT):
            shim = stack.enter_context(debugging_shim(folder, provider))
            if end == signal.SIGKILL:
                sing_all_cases(shim, provider)
                sing_odd_calls(shim, provider)
            found.ask(shim)
            die_with_a_call_in_flight(shim, provider, end)
            found.answers[f"state at the end by {end}"] = b"".join(found.files().values())
        shim = stack.enter_context(debugging_shim(folder, provider))
        found.ask(shim)
        shim.stop()
        yield found


def found_in(data: bytes) -> list[str]:
    low = data.lower()
    return [name for name, disguise in DISGUISES.items() if disguise in low]


def test_the_search_would_find_a_canary_in_any_disguise() -> None:
    for shift in range(3):
        assert f"base64+{shift}" in found_in(base64.b64encode(b"x" * shift + MARK + b"tail"))
    assert found_in(MARK.hex().encode()) == ["hex"]
    assert "plain" in found_in(b"... " + MARK.upper())


def test_no_file_holds_a_canary(traces: Traces) -> None:
    files = traces.files()
    assert {"usage.jsonl", "shim.err"} <= set(files)
    assert any(name.endswith("reference.key") for name in files)
    named = {name: found_in(name.encode() + data) for name, data in files.items()}
    assert {name: disguises for name, disguises in named.items() if disguises} == {}


def test_no_answer_about_itself_holds_a_canary(traces: Traces) -> None:
    assert len(traces.answers) == 11
    assert {name: found_in(data) for name, data in traces.answers.items() if found_in(data)} == {}


def test_the_calls_were_metered_all_the_same(traces: Traces) -> None:
    lines = [json.loads(line) for line in (traces.folder / "usage.jsonl").read_bytes().splitlines()]
    assert len(lines) > 2 * len(CASES)
    assert {line["wire"] for line in lines} >= {case["wire"] for case in CASES.values()}
    assert {"completed", "rejected", "failed", "interrupted", "upstream_closed"} <= {line["outcome"] for line in lines}
    assert sum(line["usage"] == "reported" for line in lines) > 50
    assert {line["session_source"] for line in lines} >= {"body", "conversation"}


def test_the_crash_dumped_its_stack(traces: Traces) -> None:
    assert b"Fatal Python error: Aborted" in (traces.folder / "shim.err").read_bytes()


WORDS = st.just(SONG) | st.text(max_size=5)
NAMES = WORDS | st.sampled_from(sorted(PROMPT))
JSON = st.recursive(
    WORDS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)
ANSWERED = ("usage", "usageMetadata", "message", "response", "choices", "error", "model", "id", "type", "delta")
KEYS = st.sampled_from(ANSWERED)
PATHS = st.sampled_from(sorted({case["request_path"] for case in CASES.values()}))


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory, provider: FakeUpstream) -> Iterator[tuple[Shim, Traces]]:
    folder = tmp_path_factory.mktemp("property")
    with debugging_shim(folder, provider) as shim:
        yield shim, Traces(folder)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS, asked=st.dictionaries(WORDS | KEYS, JSON), answered=st.dictionaries(KEYS | WORDS, JSON))
def test_no_shape_of_content_leaves_a_trace(
    living: tuple[Shim, Traces], provider: FakeUpstream, path: str, asked: Any, answered: Any
) -> None:
    shim, traces = living
    body = json.dumps(answered).encode()
    provider.answers(whole(body if len(body) % 2 else b"data: " + body + b"\n\n"))
    call(shim, path, json.dumps({**asked, "user": SONG}).encode())
    assert {name for name, data in traces.files().items() if found_in(data)} == set()
