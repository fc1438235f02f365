"""Either side gone at any moment: one line says who, and a client that left stops what it would be billed for."""

from __future__ import annotations

import socket

from tests.e2e.programs import Shim, free_port, running_shim
from tests.faults.client import Call
from tests.faults.upstream import Upstream
from tests.faults.watch import eventually, outcomes, post


def only_line(shim: Shim) -> dict[str, object]:
    (line,) = eventually(shim.lines)
    return line


def test_a_client_that_leaves_before_the_first_byte_stops_the_call(shim: Shim, upstream: Upstream):
    call = Call(shim, "hang", "m-1")
    eventually(lambda: upstream.calls["m-1"])
    call.hang_up()
    line = only_line(shim)
    assert (line["model"], line["outcome"], line["usage"]) == ("m-1", "client_closed", "missing")
    eventually(lambda: "m-1" in upstream.hung_up)


def test_a_client_that_leaves_during_a_stream_stops_the_upstream(shim: Shim, upstream: Upstream):
    call = Call(shim, "drip", "m-1")
    call.read_until(b"word 3")
    call.hang_up()
    line = only_line(shim)
    assert (line["model"], line["outcome"], line["input_tokens"]) == ("m-1", "client_closed", None)
    eventually(lambda: "m-1" in upstream.hung_up)


def test_a_client_that_leaves_after_the_last_byte_has_a_completed_call(shim: Shim):
    call = Call(shim, "stream", "m-5")
    call.read_until(b"[DONE]")
    call.hang_up()
    line = only_line(shim)
    assert (line["outcome"], line["usage"], line["input_tokens"]) == ("completed", "reported", 5)


def test_a_client_that_leaves_in_the_middle_of_its_request_reaches_no_upstream(shim: Shim, upstream: Upstream):
    call = Call(shim, "plain", "m-1", stream=False)
    assert call.status() == 200
    half = socket.create_connection(call.socket.getpeername())
    half.sendall(call.head("/picoclaw/openai/plain/v1/chat/completions", 5000) + b'{"model": "m-2"')
    half.close()
    assert post(shim, "m-3").status_code == 200
    found = outcomes(eventually(lambda: len(shim.lines()) >= 2 and shim.lines()))
    assert upstream.calls["m-2"] == 0
    assert {found.pop("m-1"), found.pop("m-3")} == {"completed"}
    assert set(found.values()) <= {"client_closed"}


def test_an_upstream_that_cuts_a_stream_is_cut_for_the_client_too(shim: Shim):
    call = Call(shim, "cut", "m-1")
    assert b"[DONE]" not in call.rest()
    line = only_line(shim)
    assert (line["outcome"], line["input_tokens"], line["http_status"]) == ("upstream_closed", None, 200)


def test_an_upstream_that_closes_before_any_byte_is_a_502_that_names_it(shim: Shim):
    answer = post(shim, "m-1", "refuse")
    assert answer.status_code == 502
    assert "openai" in answer.text
    assert "sk-test" not in answer.text
    assert only_line(shim)["outcome"] in ("unreachable", "upstream_closed")


def test_an_upstream_that_is_down_is_a_502_and_a_line(tmp_path):
    with running_shim(tmp_path, {"OPENAI": f"http://127.0.0.1:{free_port()}"}) as shim:
        assert post(shim, "m-1").status_code == 502
        assert only_line(shim)["outcome"] == "unreachable"


def test_an_upstream_error_passes_as_it_is_and_is_a_rejected_line(shim: Shim):
    answer = post(shim, "m-1", "error")
    assert (answer.status_code, answer.json()["error"]["message"]) == (500, "on purpose")
    line = only_line(shim)
    assert (line["outcome"], line["http_status"], line["usage"]) == ("rejected", 500, "missing")


def test_many_clients_that_leave_at_once_are_each_one_line(shim: Shim, upstream: Upstream):
    calls = [Call(shim, "drip", f"m-{n}") for n in range(1, 61)]
    for call in calls:
        call.read_until(b"word 0")
    for call in calls:
        call.hang_up()
    lines = eventually(lambda: len(shim.lines()) == 60 and shim.lines())
    assert set(outcomes(lines).values()) == {"client_closed"}
    eventually(lambda: len(upstream.hung_up) == 60)
