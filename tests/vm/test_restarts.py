"""Restarts, crashes and stops with calls in flight: streams end, new calls wait, no call is lost without a word."""

from __future__ import annotations

from tests.vm.conftest import Begin, Call, eventually, lines, result
from tests.vm.machine import Machine


def last(machine: Machine) -> dict[str, object]:
    return lines(machine)[-1]


def test_a_restart_lets_a_stream_end_and_a_new_call_wait(metering: Machine, begin: Begin, call: Call) -> None:
    written = len(lines(metering))
    stream = begin("gpt-5-mini-slow-40")
    metering.run("systemctl", "restart", "--no-block", "usage-shim")
    waiting = call("gpt-5-mini-slow-1")
    assert result(stream) == {"status": 200, "whole": True, "words": 40, "usage": False}
    assert (waiting["status"], waiting["whole"]) == (200, True)
    eventually(lambda: len(lines(metering)) == written + 2)
    assert {line["outcome"] for line in lines(metering)[written:]} == {"completed"}


def test_a_killed_shim_comes_back_and_tells_of_the_call_it_lost(metering: Machine, begin: Begin, call: Call) -> None:
    written, restarts = len(lines(metering)), int(metering.show("usage-shim", "NRestarts"))
    stream = begin("gpt-5-mini-slow-80")
    metering.run("systemctl", "kill", "-s", "KILL", "usage-shim")
    assert result(stream).get("whole") is not True
    assert call()["status"] == 200  # waits in the socket meanwhile
    assert int(metering.show("usage-shim", "NRestarts")) == restarts + 1
    eventually(lambda: len(lines(metering)) == written + 2)
    assert sorted(str(line["outcome"]) for line in lines(metering)[written:]) == ["completed", "interrupted"]


def test_a_hung_shim_is_restarted_by_the_watchdog(metering: Machine, call: Call) -> None:
    pid = metering.show("usage-shim", "MainPID")
    metering.run("systemctl", "kill", "-s", "STOP", "usage-shim")
    eventually(lambda: metering.show("usage-shim", "MainPID") not in ("0", pid))
    assert call()["status"] == 200


def test_the_socket_outlives_a_stopped_shim(metering: Machine, call: Call) -> None:
    metering.run("systemctl", "stop", "usage-shim.service")
    assert call()["status"] == 200
    assert metering.out("systemctl", "is-active", "usage-shim.service") == "active"


def test_ids_have_no_gap_within_a_boot(metering: Machine) -> None:
    boots: dict[str, list[int]] = {}
    for line in lines(metering):
        boot, _, seq = str(line["id"]).partition("-")
        boots.setdefault(boot, []).append(int(seq))
    assert all(sorted(seqs) == list(range(1, len(seqs) + 1)) for seqs in boots.values())
