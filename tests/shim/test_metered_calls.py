"""What is written for a call and what is not: lines of real calls, and each refusal by its reason."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

from tests.e2e.programs import Shim, running_shim
from tests.fake_upstream import CLOSE, WAIT, FakeUpstream, chunked, stream_head, whole
from tests.shim.raw import connect, eventually, exchange, read_until, request

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
ANSWER = {"id": "chatcmpl-1", "model": "served-1", "choices": [{"message": {"content": "canary"}}], "usage": USAGE}
CHAT = {"model": "asked-1", "messages": [{"role": "user", "content": "canary"}]}


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def sse(*values: Any) -> bytes:
    return stream_head() + chunked(*(event(value) for value in values), b"data: [DONE]\n\n") + b"0\r\n\r\n"


DELTA = {"id": "chatcmpl-1", "model": "served-1", "choices": [{"index": 0, "delta": {"content": "canary"}}]}
FINISH = {"id": "chatcmpl-1", "model": "served-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
LAST = {"id": "chatcmpl-1", "model": "served-1", "choices": [], "usage": USAGE}


def post(shim: Shim, body: Any = CHAT, path: str = "/picoclaw/openai/v1/chat/completions", **headers: str):
    return httpx.post(shim.url + path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})


class Log:
    """The lines that one test made."""

    def __init__(self, shim: Shim) -> None:
        self._shim = shim
        httpx.get(f"{shim.url}/-/healthz")  # what is served before this has written its line
        self._before = len(shim.lines())

    def lines(self) -> list[dict[str, Any]]:
        return self._shim.lines()[self._before :]

    def one(self) -> dict[str, Any]:
        (line,) = eventually(self.lines)
        return line


@pytest.fixture
def log(shim: Shim) -> Log:
    return Log(shim)


def test_a_plain_call_is_one_line(shim: Shim, provider: FakeUpstream, log: Log):
    provider.answers(whole(json.dumps(ANSWER).encode()))
    assert post(shim).json() == ANSWER
    line = log.one()
    expected = {
        "v": 1,
        "vm": "vm-test",
        "runtime": "picoclaw",
        "upstream": "openai",
        "wire": "openai-chat",
        "model": "served-1",
        "session_source": "conversation",
        "input_tokens": 5,
        "output_tokens": 2,
        "usage": "reported",
        "outcome": "completed",
        "http_status": 200,
        "stream": False,
    }
    assert {key: line[key] for key in expected} == expected
    assert "chatcmpl-1" not in json.dumps(line)
    assert "canary" not in json.dumps(line)
    assert 0 <= line["ttft_ms"] <= line["duration_ms"] < 5000


REJECTION = whole(b'{"error":{"message":"Unknown parameter: stream_options"}}', "400 Bad Request")


def test_a_stream_without_the_option_gets_it_and_its_event_is_taken_out(shim: Shim, provider: FakeUpstream, log: Log):
    provider.answers(sse(DELTA, FINISH, LAST))
    answer = post(shim, {**CHAT, "stream": True}, Accept_Encoding="gzip")
    assert answer.content == event(DELTA) + event(FINISH) + b"data: [DONE]\n\n"
    (got,) = provider.got
    assert json.loads(got.body) == {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    assert b"accept-encoding" not in got.head.lower()
    assert (log.one()["input_tokens"], log.one()["stream"], log.one()["usage"]) == (5, True, "reported")


def test_half_an_emoji_in_a_prompt_as_javascript_writes_it_loses_no_usage(shim: Shim, provider: FakeUpstream, log: Log):
    provider.answers(sse(DELTA, FINISH, LAST))
    asked = {"model": "asked-1", "stream": True, "messages": [{"role": "user", "content": "canary \ud83d"}]}
    body = json.dumps(asked).encode()
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url, body))
        read_until(connection, b"0\r\n\r\n")
    assert provider.got[0].body == body.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)
    line = log.one()
    assert (line["input_tokens"], line["usage"], line["session_source"]) == (5, "reported", "conversation")


def test_a_stream_with_the_option_passes_untouched(shim: Shim, provider: FakeUpstream, log: Log):
    provider.answers(sse(DELTA, FINISH, LAST))
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    sent = request(shim.url, json.dumps(body).encode())
    with connect(shim.url) as connection:
        connection.sendall(sent)
        assert read_until(connection, b"0\r\n\r\n") == sse(DELTA, FINISH, LAST)
    assert provider.got[0].body == json.dumps(body).encode()
    assert log.one()["input_tokens"] == 5


def test_usage_on_the_finish_event_stays_the_clients(shim: Shim, provider: FakeUpstream, log: Log):
    provider.answers(sse(DELTA, {**FINISH, "usage": USAGE}))
    answer = post(shim, {**CHAT, "stream": True})
    assert answer.content == event(DELTA) + event({**FINISH, "usage": USAGE}) + b"data: [DONE]\n\n"
    assert log.one()["output_tokens"] == 2


def test_an_upstream_that_does_not_know_the_option_is_asked_without_it(shim: Shim, provider: FakeUpstream, log: Log):
    provider.answers_in_turn([REJECTION], [sse(DELTA, FINISH)])
    body = {**CHAT, "model": "refuses-1", "stream": True}
    answer = post(shim, body)
    assert answer.content == event(DELTA) + event(FINISH) + b"data: [DONE]\n\n"
    assert json.loads(provider.got[1].body) == body
    assert (log.one()["usage"], log.one()["http_status"]) == ("missing", 200)


def test_an_upstream_that_does_not_know_the_option_is_asked_once_from_then_on(
    shim: Shim, provider: FakeUpstream, log: Log
):
    body = {**CHAT, "model": "refuses-2", "stream": True}
    provider.answers_in_turn([REJECTION], *[[sse(DELTA, FINISH)]] * 3)
    for _ in range(3):
        assert post(shim, body).content == event(DELTA) + event(FINISH) + b"data: [DONE]\n\n"
    assert [json.loads(got.body) for got in provider.got[1:]] == [body] * 3
    lines = eventually(lambda: len(log.lines()) == 3 and log.lines())
    assert {line["usage"] for line in lines} == {"missing"}
    counted = httpx.get(shim.url + "/-/status").json()["usage_option"]
    assert {"upstream": "openai", "result": "left_out", "count": 2} in counted
    provider.answers(sse(DELTA, FINISH, LAST))
    post(shim, {**body, "model": "knows-it"})
    assert b"include_usage" in provider.got[-1].body


def test_another_rejection_of_an_injected_call_is_passed_on(shim: Shim, provider: FakeUpstream, log: Log):
    provider.answers(whole(b'{"error":{"message":"No such model"}}', "400 Bad Request", "X-Id: 1"))
    answer = post(shim, {**CHAT, "stream": True})
    assert (answer.status_code, answer.headers["x-id"]) == (400, "1")
    assert answer.content == b'{"error":{"message":"No such model"}}'
    assert (log.one()["outcome"], log.one()["http_status"], len(provider.got)) == ("rejected", 400, 1)


def test_an_injected_call_that_ends_by_close_is_still_filtered(shim: Shim, provider: FakeUpstream, log: Log):
    events = event(DELTA) + event(FINISH) + event(LAST) + b"data: [DONE]\n\n"
    provider.answers(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + events, CLOSE)
    answer = post(shim, {**CHAT, "stream": True})
    assert answer.content == event(DELTA) + event(FINISH) + b"data: [DONE]\n\n"
    assert log.one()["usage"] == "reported"


def test_a_body_that_is_not_json_is_forwarded_as_it_is(shim: Shim, provider: FakeUpstream, log: Log):
    exchange(shim.url, request(shim.url, b'{"stream":true,', "Connection: close"))
    assert provider.got[0].body == b'{"stream":true,'
    assert log.one()["model"] is None


def test_anthropic_messages(shim: Shim, provider: FakeUpstream, log: Log):
    start = {"type": "message_start", "message": {"id": "msg_1", "model": "claude-x", "usage": {"input_tokens": 9}}}
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}
    stop = {"type": "message_stop"}
    body = b"".join(b"event: %b\n%b" % (v["type"].encode(), event(v)) for v in (start, delta, stop))
    provider.answers(stream_head() + chunked(body) + b"0\r\n\r\n")
    assert post(shim, {**CHAT, "stream": True}, "/picoclaw/anthropic/v1/messages").content == body
    line = log.one()
    assert (line["wire"], line["model"], line["input_tokens"], line["output_tokens"], line["outcome"]) == (
        "anthropic-messages",
        "claude-x",
        9,
        4,
        "completed",
    )


def test_a_compressed_answer_is_read_from_a_copy(shim: Shim, provider: FakeUpstream, log: Log):
    packed = gzip.compress(json.dumps(ANSWER).encode())
    provider.answers(whole(packed, "200 OK", "Content-Encoding: gzip"))
    assert exchange(shim.url, request(shim.url, b"{}", "Connection: close")).endswith(packed)
    assert log.one()["input_tokens"] == 5


def test_a_hung_up_stream_keeps_what_was_seen(shim: Shim, provider: FakeUpstream, log: Log):
    provider.answers(stream_head() + chunked(event(DELTA)), WAIT)
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url, json.dumps({**CHAT, "stream": True}).encode()))
        read_until(connection, b"canary")
    line = log.one()
    assert (line["outcome"], line["model"], line["input_tokens"], line["http_status"]) == (
        "client_closed",
        "served-1",
        None,
        200,
    )


def test_a_client_that_leaves_before_its_body_is_over_made_no_call(shim: Shim, provider: FakeUpstream, log: Log):
    with connect(shim.url) as connection:
        connection.sendall(request(shim.url, b"x" * 100)[:-50])
    post(shim)
    assert log.one()["outcome"] == "completed"
    assert len(provider.got) == 1


def test_a_background_response_is_one_line(shim: Shim, provider: FakeUpstream, log: Log):
    def response(status: str, usage: object = None) -> bytes:
        value = {"id": "resp_bg1", "object": "response", "status": status, "model": "served-1", "usage": usage}
        return whole(json.dumps(value).encode())

    done = {"input_tokens": 6, "output_tokens": 3, "total_tokens": 9}
    provider.answers_in_turn(
        [response("queued")], [response("in_progress")], [response("completed", done)], [response("completed", done)]
    )
    post(shim, {"model": "asked-1", "input": "x", "background": True}, "/picoclaw/openai/v1/responses")
    for _ in range(3):
        httpx.get(f"{shim.url}/picoclaw/openai/v1/responses/resp_bg1")
    line = log.one()
    assert (line["input_tokens"], line["output_tokens"], line["outcome"]) == (6, 3, "completed")


@pytest.mark.parametrize(
    ("status", "usage", "last", "expected"),
    [
        ("completed", {"input_tokens": 6, "output_tokens": 3, "total_tokens": 9}, "", ("completed", "reported", 6)),
        ("cancelled", None, "/cancel", ("completed", "missing", None)),
        ("failed", None, "", ("failed", "missing", None)),
    ],
)
def test_a_background_response_that_ends_is_written_once(
    shim: Shim, provider: FakeUpstream, log: Log, status: str, usage: object, last: str, expected: tuple[object, ...]
):
    def response(status: str, usage: object = None) -> bytes:
        value = {"id": f"resp_{expected[0]}{last}", "object": "response", "status": status, "usage": usage}
        return whole(json.dumps(value).encode())

    provider.answers_in_turn([response("queued")], *[[response(status, usage)]] * 3)
    post(shim, {"model": "asked-1", "input": "x", "background": True}, "/picoclaw/openai/v1/responses")
    path = "/picoclaw/openai/v1/responses/resp_1"
    if last:
        post(shim, {}, path + last)
    for _ in range(2):
        httpx.get(shim.url + path)
    post(shim, {}, path + "/cancel")
    line = log.one()
    assert (line["outcome"], line["usage"], line["input_tokens"]) == expected


def background(status: str) -> bytes:
    usage = {"input_tokens": 6, "output_tokens": 3, "total_tokens": 9} if status == "completed" else None
    return whole(json.dumps({"id": "resp_bg2", "object": "response", "status": status, "usage": usage}).encode())


def test_a_background_response_is_one_line_for_all_workers_and_starts(shim_process, upstream: FakeUpstream):
    path = "/picoclaw/openai/v1/responses"
    upstream.answers_in_turn([background("queued")], *[[background("completed")]] * 20)
    shim = shim_process(VM_USAGE_WORKERS="2")
    post(shim, {"model": "asked-1", "input": "x", "background": True}, path)
    for _ in range(10):
        httpx.get(f"{shim.url}{path}/resp_bg2", headers={"Connection": "close"})
    shim.stop()
    shim = shim_process()
    httpx.get(f"{shim.url}{path}/resp_bg2")
    (line,) = shim.stop()
    assert (line["usage"], line["input_tokens"]) == ("reported", 6)


def test_reading_a_background_response_leaves_it_in_its_session(shim: Shim, provider: FakeUpstream, log: Log):
    path = "/picoclaw/openai/v1/responses"
    provider.answers_in_turn([background("queued")], *[[background("completed")]] * 3)
    post(shim, {"model": "asked-1", "input": "x", "background": True, "session_id": "s1"}, path)
    httpx.get(f"{shim.url}{path}/resp_bg2")
    post(shim, {"model": "asked-1", "input": "y", "previous_response_id": "resp_bg2"}, path)
    assert len({line["session"] for line in eventually(lambda: len(log.lines()) > 1 and log.lines())}) == 1


@pytest.mark.parametrize(
    ("served", "model"), [("served-1", "served-1"), ("", "asked-1"), (None, "asked-1"), ("what it said", None)]
)
def test_a_served_model_that_no_line_can_hold_is_null(
    shim: Shim, provider: FakeUpstream, log: Log, served: object, model: str | None
):
    provider.answers(whole(json.dumps({"id": "c", "model": served, "usage": USAGE}).encode()))
    post(shim, {**CHAT, "model": "asked-1"})
    assert log.one()["model"] == model


def test_the_model_of_the_url_comes_before_the_requests(shim: Shim, provider: FakeUpstream, log: Log):
    provider.answers(whole(b"{}"))
    post(shim, {"contents": []}, "/picoclaw/gemini/v1beta/models/gemini-x:streamGenerateContent?alt=sse&key=sk")
    line = log.one()
    assert (line["model"], line["wire"], line["stream"]) == ("gemini-x", "gemini", True)


@pytest.mark.parametrize(
    ("path", "headers", "reason"),
    [
        ("/codex/openai/v1/chat/completions", {}, "self_reporting_runtime"),
        ("/picoclaw/openai/v1/chat/completions", {"User-Agent": "claude-cli/2.0 (x)"}, "self_reporting_agent"),
        ("/unheard-of/openai/v1/chat/completions", {}, "not_allowlisted"),
        ("/openai/v1/chat/completions", {}, "no_runtime"),
        ("/v1/chat/completions", {}, "no_runtime"),
        ("/picoclaw/openai/v1/files", {}, "unknown_wire"),
        ("/picoclaw/anthropic/v1/messages/count_tokens", {}, "counting_endpoint"),
        ("/picoclaw/openai/v1/responses/input_tokens", {}, "counting_endpoint"),
        ("/picoclaw/gemini/v1beta/models/g:countTokens", {}, "counting_endpoint"),
    ],
)
def test_what_is_not_metered_is_forwarded_and_counted(shim_process, upstream: FakeUpstream, path, headers, reason):
    shim = shim_process(VM_USAGE_UPSTREAM_GEMINI=upstream.url)
    upstream.answers(whole(json.dumps(ANSWER).encode()))
    assert httpx.post(shim.url + path, json={**CHAT, "stream": True}, headers=headers).json() == ANSWER
    assert json.loads(upstream.got[0].body) == {**CHAT, "stream": True}
    status = httpx.get(f"{shim.url}/-/status").json()
    assert status["refused"] == [{"reason": reason, "count": 1}]
    assert f'usage_shim_refused_total{{reason="{reason}"}} 1.0' in httpx.get(f"{shim.url}/-/metrics").text
    assert shim.stop() == []


def test_without_a_log_nothing_is_metered(tmp_path, upstream: FakeUpstream):
    with running_shim(tmp_path, {"OPENAI": upstream.url}, VM_USAGE_LOG="") as shim:
        assert post(shim).status_code == 200
        status = httpx.get(f"{shim.url}/-/status").json()
    assert status["refused"] == [{"reason": "metering_off", "count": 1}]
    assert not (tmp_path / "usage.jsonl").exists()


def test_the_urls_runtime_comes_before_the_configured_one(shim_process, upstream: FakeUpstream):
    upstream.answers(whole(json.dumps(ANSWER).encode()))
    shim = shim_process(runtime="picoclaw")
    for path in ("/cursor/openai/v1/chat/completions", "/openai/v1/chat/completions", "/v1/chat/completions"):
        post(shim, path=path)
    assert [line["runtime"] for line in shim.stop()] == ["cursor", "picoclaw", "picoclaw"]
