"""Slots outlive the process that took them, whatever kills it, and a start recovers each exactly once."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shim import inflight as inflight_module
from shim.counters import Counters
from shim.ids import Boot
from shim.inflight import FIRST_SLOTS, NO_SLOT, Inflight, boards
from shim.recovery import recover
from shim.sink import Sink
from tests.shim.lines import CALL, LINE, Disk, Events, read_log


class Start:
    """One start of the shim's durable half in ``folder``, with a disk of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "inflight"
        self.boot = Boot()
        self.counters = Counters()
        self.disk = Disk()
        self.events = Events()
        self.inflight = Inflight(self.folder, self.boot, self.counters)
        self.sink = Sink(
            folder / "usage.jsonl", self.boot, self.inflight, self.counters, self.events, write=self.disk.write
        )

    def recover(self) -> int:
        return recover(self.folder, self.sink, "vm-1", self.counters, self.events)

    def lines(self):
        return read_log(self.sink.path.read_bytes())[0]

    def stop(self) -> None:
        self.sink.close()
        self.inflight.close()

    def die(self) -> None:
        """What is left when a process is killed: its descriptors are closed and nothing is tidied."""
        self.sink._close_file()
        self.inflight._map.close()
        os.close(self.inflight._fd)


@pytest.fixture
def start(tmp_path: Path):
    running: list[Start] = []

    def begin() -> Start:
        running.append(Start(tmp_path))
        return running[-1]

    yield begin
    for one in running:
        if not one.inflight._map.closed:
            one.stop()


def test_each_call_in_flight_at_a_kill_is_one_interrupted_line(start):
    dead = start()
    for _ in range(3):
        dead.inflight.begin(*CALL)
    dead.die()
    alive = start()
    assert alive.recover() == 3
    line = alive.lines()[0]
    assert (line.runtime, line.upstream, line.wire, line.model, line.ts) == CALL[:5]
    assert (line.session, line.session_source, line.stream) == CALL[5:]
    assert (line.outcome, line.usage, line.tokens.known) == ("interrupted", "missing", False)


def test_recovered_lines_go_on_with_the_seq_of_the_boot_that_died(start):
    dead = start()
    slots = [dead.inflight.begin(*CALL) for _ in range(4)]
    dead.sink.append(LINE, slots[1])
    dead.die()
    alive = start()
    alive.recover()
    assert [line.id for line in alive.lines()] == [f"{dead.boot.name}-{n}" for n in (1, 2, 3, 4)]


def test_a_recovered_file_is_gone(start):
    dead = start()
    dead.inflight.begin(*CALL)
    dead.die()
    alive = start()
    alive.recover()
    assert list(alive.folder.iterdir()) == [alive.inflight.path]


def test_blocks_are_reserved_so_that_a_full_disk_cannot_fault_a_store(start):
    one = start()
    for _ in range(FIRST_SLOTS + 1):
        one.inflight.begin(*CALL)
    found = one.inflight.path.stat()
    assert found.st_blocks * 512 >= found.st_size > 2 * FIRST_SLOTS * inflight_module.SLOT_SIZE


def test_recovering_again_after_a_crash_in_between_adds_nothing(start):
    dead = start()
    dead.inflight.begin(*CALL)
    dead.die()
    left = dead.inflight.path.read_bytes()
    start().recover()
    dead.inflight.path.write_bytes(left)
    alive = start()
    assert alive.recover() == 0
    assert len(alive.lines()) == 1


def test_a_line_written_before_its_slot_was_freed_is_not_written_again(start):
    dead = start()
    slot = dead.inflight.begin(*CALL)
    dead.inflight.end = lambda slot: None
    dead.sink.append(LINE, slot)
    dead.die()
    alive = start()
    assert alive.recover() == 0
    assert [line.outcome for line in alive.lines()] == ["completed"]


def test_lines_that_waited_for_disk_space_survive_the_kill_with_their_tokens(start):
    dead = start()
    dead.disk.error = errno.ENOSPC
    for _ in range(3):
        dead.sink.append(LINE, dead.inflight.begin(*CALL))
    dead.sink.append(LINE)
    dead.die()
    alive = start()
    assert alive.recover() == 4
    assert [(line.seq, line.tokens) for line in alive.lines()] == [(n, LINE.tokens) for n in (1, 2, 3, 4)]
    assert alive.counters.recovered == {("waiting",): 4}


def test_lines_left_at_a_clean_stop_with_a_full_disk_come_with_the_next_start(start):
    stopped = start()
    stopped.disk.error = errno.ENOSPC
    stopped.sink.append(LINE, stopped.inflight.begin(*CALL))
    stopped.stop()
    alive = start()
    assert alive.recover() == 1
    assert alive.lines()[0].tokens == LINE.tokens


def test_recovery_with_a_full_disk_keeps_what_it_owes(start):
    dead = start()
    dead.inflight.begin(*CALL)
    dead.die()
    again = start()
    again.disk.error = errno.ENOSPC
    again.recover()
    again.die()
    alive = start()
    assert alive.recover() == 1
    assert [line.id for line in alive.lines()] == [f"{dead.boot.name}-1"]


def test_the_slots_of_a_live_process_are_left_alone(start):
    alive = start()
    alive.inflight.begin(*CALL)
    assert start().recover() == 0
    assert alive.inflight.path.exists()


def test_a_clean_stop_leaves_no_file(start):
    one = start()
    one.inflight.end(one.inflight.begin(*CALL))
    one.stop()
    assert list(one.folder.iterdir()) == []


def test_slots_grow_and_all_are_recovered(start):
    dead = start()
    count = FIRST_SLOTS * 3
    assert NO_SLOT not in [dead.inflight.begin(*CALL) for _ in range(count)]
    dead.die()
    assert start().recover() == count


def test_past_the_bound_calls_go_on_without_a_slot_and_are_counted(start, monkeypatch):
    monkeypatch.setattr(inflight_module, "MAX_SLOTS", FIRST_SLOTS)
    one = start()
    slots = [one.inflight.begin(*CALL) for _ in range(FIRST_SLOTS + 2)]
    assert slots[-2:] == [NO_SLOT, NO_SLOT]
    assert one.counters.untracked.total == 2
    one.sink.append(LINE, NO_SLOT)
    assert len(one.lines()) == 1


def test_a_slot_ended_twice_is_free_once(start):
    one = start()
    slot = one.inflight.begin(*CALL)
    one.inflight.end(slot)
    one.inflight.end(slot)
    assert one.inflight.begin(*CALL) != one.inflight.begin(*CALL)
    assert one.inflight.used == 2


def test_without_a_usable_folder_slots_are_plain_memory(tmp_path: Path):
    (tmp_path / "inflight").write_text("a file where the folder should be")
    one = Inflight(tmp_path / "inflight", Boot(), Counters())
    taken = [one.begin(*CALL) for _ in range(FIRST_SLOTS * 2)]
    assert (one.durable, one.trouble, one.calls) == (False, "EEXIST", len(set(taken)))
    one.close()


def test_slots_become_durable_when_their_folder_can_be_had(start, tmp_path: Path):
    (tmp_path / "inflight").write_text("a file where the folder should be")
    one = start()
    before, over = one.inflight.begin(*CALL), one.inflight.begin(*CALL)
    assert not one.inflight.make_durable()
    (tmp_path / "inflight").unlink()
    assert one.inflight.make_durable()
    assert (one.inflight.durable, one.inflight.trouble) == (True, None)
    one.sink.append(LINE, over)
    after = one.inflight.begin(*CALL)
    one.die()
    assert before != after
    assert start().recover() == 2


@pytest.mark.parametrize("garbage", [b"", b"vmuslot1", os.urandom(100_000)])
def test_a_file_that_is_not_ours_is_put_aside(start, garbage: bytes):
    alive = start()
    (alive.folder / "20260101T000000000Zff.slots").write_bytes(garbage)
    assert alive.recover() == 0
    assert (alive.folder / "20260101T000000000Zff.unreadable").read_bytes() == garbage


def test_a_slot_that_was_being_stored_costs_only_itself(start):
    dead = start()
    torn, whole = dead.inflight.begin(*CALL), dead.inflight.begin(*CALL)
    at = inflight_module.SLOTS_AT + torn * inflight_module.SLOT_SIZE
    dead.inflight._map[at + 16 : at + 40] = b"\xff" * 24
    dead.die()
    assert whole != torn
    assert start().recover() == 1


def test_the_file_is_for_its_user_alone(start):
    assert start().inflight.path.stat().st_mode & 0o777 == 0o600


def test_a_board_is_seen_by_live_siblings_only(start):
    one, two, dead = start(), start(), start()
    for each in (one, two, dead):
        each.inflight.post(each.boot.name.encode())
    dead.die()
    assert list(boards(one.folder, one.inflight.path)) == [two.boot.name.encode()]


def test_sigkill_of_a_real_process_leaves_its_calls(start, tmp_path: Path):
    code = (
        "import sys, time; from pathlib import Path; from tests.shim.test_inflight import Start, CALL\n"
        "one = Start(Path(sys.argv[1]))\n"
        "for _ in range(20): one.inflight.begin(*CALL)\n"
        "print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert start().recover() == 0
        process.send_signal(signal.SIGKILL)
    assert start().recover() == 20
