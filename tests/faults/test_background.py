"""Background responses across stops and kills: asked for before, read to their end after, one line."""

from __future__ import annotations

import os
import signal
from typing import Any

import httpx
import pytest

from shim.inflight import CALL, left_in
from tests.e2e.programs import Shim, collector
from tests.faults.conftest import Start
from tests.faults.shapes import OUTPUT_TOKENS, number
from tests.faults.test_signals import workers_of
from tests.faults.watch import eventually, status

PATH = "v1/responses"
ENDS = pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])


def ask(shim: Shim, marker: str, what: str = "pending") -> None:
    """A response is to be made in the background; until the shim is done with the answer, which is there before."""
    body = {"model": marker, "input": "hello", "background": True}
    assert httpx.post(f"{shim.url}/picoclaw/openai/{what}/{PATH}", json=body, timeout=20).status_code == 200
    eventually(lambda: not calls_in_slots(shim))


def calls_in_slots(shim: Shim) -> int:
    """Calls in flight as the files of all workers say it."""
    files = (shim.log.parent / "state").rglob("*.slots")
    return sum(left.state == CALL for path in files for left in left_in(path.read_bytes())[2])


def read(shim: Shim, marker: str, what: str = "plain") -> None:
    """It is asked for; done, unless ``what`` says otherwise. Any worker may get it: the connection is its own."""
    url = f"{shim.url}/picoclaw/openai/{what}/{PATH}/{marker}"
    assert httpx.get(url, headers={"connection": "close"}, timeout=20).status_code == 200


def tokens_of(lines: list[dict[str, Any]]) -> dict[str, tuple[str, str, int | None, int | None]]:
    found = {
        line["model"]: (line["usage"], line["outcome"], line["input_tokens"], line["output_tokens"]) for line in lines
    }
    assert len(found) == len(lines), "a call was written twice"
    return found


def done(*markers: str) -> dict[str, tuple[str, str, int, int]]:
    return {marker: ("reported", "completed", number(marker), OUTPUT_TOKENS) for marker in markers}


def without_findings(shim: Shim) -> None:
    assert "No findings" in collector(shim.environ, "audit", str(shim.log))


def end_all(shim: Shim, end: signal.Signals) -> None:
    """Signal the shim and, where it is to be killed, its workers."""
    workers = workers_of(shim)
    shim.stop(end)
    for pid in workers if end == signal.SIGKILL else ():
        os.kill(pid, signal.SIGKILL)


def workers_shown(shim: Shim) -> int:
    try:
        return int(status(shim)["workers"])
    except httpx.TransportError:
        return 0


@ENDS
def test_a_response_that_is_pending_at_the_end_is_completed_after_the_restart(start: Start, end: signal.Signals):
    with start() as shim:
        ask(shim, "m-1")
        read(shim, "m-1", "pending")
        ask(shim, "m-2", "plain")
        eventually(shim.lines)
        shim.stop(end)
    with start() as shim:
        assert status(shim)["in_flight"] == 0
        read(shim, "m-1", "pending")
        for _ in range(3):
            read(shim, "m-1")
        ask(shim, "m-3", "plain")
        lines = eventually(lambda: len(shim.lines()) == 3 and shim.lines())
        assert shim.stop() == lines
    assert tokens_of(lines) == done("m-1", "m-2", "m-3")
    without_findings(shim)


def test_one_that_nobody_reads_outlives_many_ends_and_is_not_written(start: Start):
    for place, end in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)):
        with start() as shim:
            if not place:
                ask(shim, "m-1")
            shim.stop(end)
    with start() as shim:
        assert shim.lines() == []
        read(shim, "m-1")
        assert tokens_of(eventually(shim.lines)) == done("m-1")


@ENDS
@pytest.mark.parametrize(("before", "after"), [("2", "2"), ("1", "3"), ("3", "1")])
def test_any_worker_may_be_asked_before_and_after(start: Start, end: signal.Signals, before: str, after: str):
    markers = [f"m-{n}" for n in range(1, 13)]
    with start(VM_USAGE_WORKERS=before) as shim:
        for marker in markers:
            ask(shim, marker)
        for marker in markers[:4]:
            read(shim, marker)
        assert tokens_of(shim.wait_for_lines(4)) == done(*markers[:4])
        end_all(shim, end)
    with start(VM_USAGE_WORKERS=after) as shim:
        for marker in markers:
            for _ in range(3):
                read(shim, marker)
        shim.wait_for_lines(12)
        lines = shim.stop()
    assert tokens_of(lines) == done(*markers)
    assert len({line["id"] for line in lines}) == 12
    with start() as shim:
        read(shim, markers[-1])
        assert shim.stop() == lines
    without_findings(shim)


def test_a_worker_that_is_killed_leaves_its_responses_to_the_one_after_it(start: Start):
    markers = [f"m-{n}" for n in range(1, 7)]
    with start(VM_USAGE_WORKERS="2") as shim:
        for marker in markers:
            ask(shim, marker)
        for pid in workers_of(shim):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: workers_shown(shim) == 2)
        for marker in markers:
            read(shim, marker)
        shim.wait_for_lines(6)
        assert tokens_of(shim.stop()) == done(*markers)


def test_a_stream_of_a_background_response_that_was_killed_is_completed_by_a_read(start: Start):
    with start() as shim:
        url = f"{shim.url}/picoclaw/openai/drip/{PATH}"
        body = {"model": "m-1", "input": "hello", "background": True, "stream": True}
        with httpx.stream("POST", url, json=body, timeout=20) as stream:
            texts = stream.iter_text()
            while "word 1" not in next(texts):
                pass
            shim.stop(signal.SIGKILL)
    with start() as shim:
        assert shim.lines() == []
        read(shim, "m-1")
        assert tokens_of(eventually(shim.lines)) == done("m-1")


def test_an_answer_that_was_passed_on_in_part_is_known_after_a_kill(start: Start):
    """The id goes to the client before the answer is whole."""
    with start() as shim:
        url = f"{shim.url}/picoclaw/openai/short/{PATH}"
        with httpx.stream("POST", url, json={"model": "m-1", "input": "hello", "background": True}) as answer:
            assert '"id"' in next(answer.iter_text())
            shim.stop(signal.SIGKILL)
    with start() as shim:
        assert shim.lines() == []
        read(shim, "m-1")
        assert tokens_of(eventually(shim.lines)) == done("m-1")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_response_that_was_written_as_it_ended_may_be_read_again(start: Start, workers: str):
    """A provider keeps what it made, unless it was told not to."""
    body = {"model": "m-1", "input": "hello"}
    with start(VM_USAGE_WORKERS=workers) as shim:
        assert httpx.post(f"{shim.url}/picoclaw/openai/plain/{PATH}", json=body, timeout=20).status_code == 200
        lines = eventually(shim.lines)
        for _ in range(8):
            read(shim, "m-1")
        eventually(lambda: {"reason": "unknown_response", "count": 8} in status(shim)["refused"])
        assert shim.stop() == lines
    with start() as shim:
        read(shim, "m-1")
        assert shim.stop() == lines
    assert tokens_of(lines) == done("m-1")
    without_findings(shim)


def test_a_stream_that_was_killed_is_one_line_though_its_response_is_read_later(start: Start):
    with start() as shim:
        body = {"model": "m-1", "input": "hello", "stream": True}
        with httpx.stream("POST", f"{shim.url}/picoclaw/openai/drip/{PATH}", json=body, timeout=20) as stream:
            texts = stream.iter_text()
            while "response.created" not in next(texts):
                pass
            shim.stop(signal.SIGKILL)
    with start() as shim:
        lines = eventually(shim.lines)
        read(shim, "m-1")
        assert shim.stop() == lines
    assert tokens_of(lines) == {"m-1": ("missing", "interrupted", None, None)}


def test_a_kill_while_responses_are_taken_over_keeps_each_once(start: Start):
    with start() as shim:
        for n in range(1, 6):
            ask(shim, f"m-{n}")
        shim.stop(signal.SIGKILL)
    (left,) = (shim.log.parent / "state").rglob("*.slots")
    data = left.read_bytes()
    with start() as shim:
        shim.stop(signal.SIGKILL)
    left.write_bytes(data)
    with start() as shim:
        for n in range(1, 6):
            read(shim, f"m-{n}")
        shim.wait_for_lines(5)
        assert tokens_of(shim.stop()) == done(*(f"m-{n}" for n in range(1, 6)))
    assert list((shim.log.parent / "state").rglob("*.slots")) == []


def test_one_that_waited_a_day_is_written_as_it_stands_and_a_read_adds_nothing(start: Start):
    with start() as shim:
        ask(shim, "m-1")
        shim.stop()
    (left,) = (shim.log.parent / "state").rglob("*.slots")
    data = left.read_bytes()
    began = b'"ts":17'
    assert began in data
    left.write_bytes(data.replace(began, b'"ts":16'))
    with start() as shim:
        lines = eventually(shim.lines)
        assert tokens_of(lines) == {"m-1": ("missing", "completed", None, None)}
        read(shim, "m-1")
        assert shim.stop() == lines
    with start() as shim:
        read(shim, "m-1")
        assert shim.stop() == lines
    without_findings(shim)


@ENDS
def test_where_state_cannot_be_kept_it_is_one_line_at_the_stop_and_none_after_a_kill(start: Start, end: signal.Signals):
    """Nothing outlives a kill then, and that was said at the start."""
    with start() as shim:
        shim.stop()
    blocked = next((shim.log.parent / "state").rglob("inflight"))
    blocked.rmdir()
    blocked.write_text("a file where the folder was")
    with start() as shim:
        ask(shim, "m-1")
        assert not status(shim)["inflight_durable"]
        lines = shim.stop(end)
    assert [line["usage"] for line in lines] == (["missing"] if end == signal.SIGTERM else [])


def test_without_a_log_reads_go_through(start: Start):
    with start(VM_USAGE_LOG="") as shim:
        ask(shim, "m-1")
        read(shim, "m-1")
        shim.stop()
        assert shim.process.returncode == 0
