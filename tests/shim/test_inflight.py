"""Slots outlive the process that took them, whatever kills it, and a start recovers each exactly once."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shim import background as background_module
from shim import inflight as inflight_module
from shim.background import KEPT_SECONDS, Background
from shim.counters import Counters
from shim.ids import Boot
from shim.inflight import FIRST_SLOTS, MAX_LINE, NO_SLOT, Inflight, boards
from shim.line import TOKEN_CLASSES, as_object
from shim.recovery import recover
from shim.session import Sessions
from shim.session_store import SessionStore
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
        self.sessions = Sessions(b"k" * 32, store=SessionStore(folder / "sessions.map"))
        self.background = Background(self.sessions, self.inflight, self.sink.append_object)

    def recover(self) -> int:
        return recover(self.folder, self.sink, "vm-1", self.counters, self.events, self.background)

    def pend(self, name: str, ts: float = LINE.ts) -> None:
        """A call is answered with a response that is still to be made."""
        self.background.keep(name, answered(name, ts), self.inflight.begin(*CALL))

    def lines(self):
        return read_log(self.sink.path.read_bytes() if self.sink.path.exists() else b"")[0]

    def stop(self) -> None:
        self.background.close()
        self.sink.close()
        self.inflight.close()

    def die(self) -> None:
        """What is left when a process is killed: its descriptors are closed and nothing is tidied."""
        self.sink._close_file()
        self.inflight._map.close()
        os.close(self.inflight._fd)


def answered(response: str, ts: float = LINE.ts):
    """The line's object of a call whose response is still pending."""
    tokens = dict.fromkeys(TOKEN_CLASSES)
    return as_object(LINE) | tokens | {"ts": ts, "response": response, "usage": "missing", "wire": "openai-responses"}


def read(response: str):
    """The line's object of a read that saw the end of a response."""
    return as_object(LINE) | {"response": response, "ts": LINE.ts + 60, "session": "of-the-read"}


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


@pytest.mark.interpreted
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


@pytest.mark.interpreted
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


class TestBackground:
    """A response that is pending when the process ends is the next one's to wait for."""

    @pytest.fixture(params=["stop", "die"])
    def ended(self, request, start):
        """A start that ended with one response pending."""
        one = start()
        one.pend("resp-1")
        getattr(one, request.param)()
        return one

    def test_the_next_start_completes_it_with_the_session_and_time_of_the_call(self, ended, start):
        alive = start()
        assert (alive.recover(), alive.lines()) == (0, [])
        alive.background.polled("resp-1", read("resp-1"))
        (line,) = alive.lines()
        assert (line.id, line.usage, line.tokens) == (f"{alive.boot.name}-1", "reported", LINE.tokens)
        assert (line.ts, line.session) == (LINE.ts, LINE.session)
        assert (alive.inflight.used, list(alive.folder.iterdir())) == (0, [alive.inflight.path])

    def test_it_is_handed_on_by_any_number_of_starts(self, ended, start):
        for _ in range(3):
            again = start()
            again.recover()
            again.die()
        alive = start()
        alive.recover()
        alive.background.polled("resp-1", read("resp-1"))
        assert [line.usage for line in alive.lines()] == ["reported"]

    def test_it_is_written_as_it_stands_once_its_time_is_over_and_a_read_adds_nothing(self, ended, start):
        alive = start()
        alive.recover()
        alive.background.expire(LINE.ts + KEPT_SECONDS - 1)
        assert alive.lines() == []
        for _ in range(2):
            alive.background.expire(LINE.ts + KEPT_SECONDS)
            alive.background.polled("resp-1", read("resp-1"))
        assert [(line.usage, line.tokens.known) for line in alive.lines()] == [("missing", False)]

    def test_killed_between_taking_it_over_and_removing_the_file_it_is_kept_once(self, ended, start):
        left = self.file_of(ended).read_bytes()
        between = start()
        between.recover()
        between.die()
        self.file_of(ended).write_bytes(left)
        alive = start()
        alive.recover()
        assert (len(alive.background), alive.inflight.used) == (1, 1)
        alive.background.polled("resp-1", read("resp-1"))
        assert len(alive.lines()) == 1

    @staticmethod
    def file_of(one: Start) -> Path:
        return one.folder / f"{one.boot.name}.slots"

    def test_a_line_that_is_in_the_log_is_not_waited_for(self, ended, start):
        """Another worker saw the end and was killed before it said so."""
        start().sink.append_object(read("resp-1"))
        alive = start()
        alive.recover()
        alive.background.polled("resp-1", read("resp-1"))
        alive.background.expire(LINE.ts + KEPT_SECONDS)
        assert len(alive.lines()) == 1

    def test_a_claim_of_a_worker_that_was_killed_before_it_wrote_counts_for_nothing(self, ended, start):
        assert start().sessions.claim("resp-1")
        alive = start()
        alive.recover()
        alive.background.polled("resp-1", read("resp-1"))
        assert [line.usage for line in alive.lines()] == ["reported"]

    def test_another_workers_line_that_waited_for_disk_space_is_the_one_line(self, ended, start):
        other = start()
        other.disk.error = errno.ENOSPC
        other.sink.append_object(read("resp-1"))
        other.die()
        alive = start()
        assert alive.recover() == 1
        alive.background.polled("resp-1", read("resp-1"))
        assert (len(alive.lines()), len(alive.background)) == (1, 0)

    def test_where_slots_cannot_be_kept_the_old_file_stays(self, ended, start, monkeypatch):
        def full(*args: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", full)
            plain = start()
        plain.recover()
        assert (plain.inflight.durable, len(plain.background)) == (False, 1)
        assert self.file_of(ended).exists()
        assert start().recover() == 0
        plain.stop()
        assert [line.usage for line in plain.lines()] == ["missing"]

    def test_without_durable_slots_it_is_written_at_a_stop(self, start, tmp_path: Path):
        (tmp_path / "inflight").write_text("a file where the folder should be")
        one = start()
        one.pend("resp-1")
        one.stop()
        assert [line.usage for line in one.lines()] == ["missing"]

    def test_a_read_by_another_worker_is_the_one_line(self, start):
        one, other = start(), start()
        one.pend("resp-1")
        other.background.polled("resp-1", read("resp-1"))
        one.background.expire(LINE.ts + KEPT_SECONDS)
        assert ([line.usage for line in one.lines()], one.inflight.used) == (["reported"], 0)

    def test_past_the_bound_the_one_kept_longest_is_written(self, start, monkeypatch):
        monkeypatch.setattr(background_module, "BACKGROUND_KEPT", 2)
        one = start()
        for n in range(4):
            one.pend(f"resp-{n}", LINE.ts + n)
        assert [line.response for line in one.lines()] == ["resp-0", "resp-1"]
        assert len(one.background) == 2

    def test_pending_responses_are_no_calls_in_flight(self, start):
        one = start()
        one.pend("resp-1")
        call = one.inflight.begin(*CALL)
        assert (one.inflight.calls, one.inflight.used) == (1, 2)
        one.inflight.end(call)
        one.background.polled("resp-1", read("resp-1"))
        assert (one.inflight.calls, one.inflight.used) == (0, 0)

    def test_a_slot_that_was_being_stored_costs_only_itself(self, start):
        dead = start()
        for n in range(3):
            dead.pend(f"resp-{n}")
        at = inflight_module.SLOTS_AT + inflight_module.SLOT_SIZE
        dead.inflight._map[at + 16 : at + 1040] = b"\xff" * 1024
        dead.die()
        alive = start()
        alive.recover()
        assert len(alive.background) == 2


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.interpreted
@pytest.mark.parametrize("point", range(12))
@pytest.mark.parametrize("spooled", [False, True], ids=["free_disk", "full_disk"])
def test_killed_at_any_store_while_a_read_completes_it_there_is_one_line(start, point: int, spooled: bool):
    """Every store to the slots, the shared table and the log is a point at which the process may be killed."""
    one = start()
    one.pend("resp-1")
    one.disk.error = errno.ENOSPC if spooled else 0
    left = point

    def dies(real):
        def store(*args: object) -> object:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return real(*args)

        return store

    for owner, name in (
        (one.inflight, "_keep"),
        (one.inflight, "issue"),
        (one.inflight, "end"),
        (one.sessions._fates, "put"),
        (one.sink, "_write"),
    ):
        setattr(owner, name, dies(getattr(owner, name)))
    with contextlib.suppress(Killed):
        one.background.polled("resp-1", read("resp-1"))
    one.die()
    alive = start()
    alive.recover()
    alive.background.polled("resp-1", read("resp-1"))
    assert [(line.usage, line.tokens) for line in alive.lines()] == [("reported", LINE.tokens)]
    assert alive.inflight.used == 0


@pytest.mark.parametrize("record", [200, 600, 790, 1000])
def test_what_is_in_a_slot_is_replaced_by_one_store_where_both_fit(start, record: int):
    """Before the switch the slot says the old, byte for byte; after it the new."""
    one = start()
    slot = one.inflight.begin(*CALL)
    before = one.inflight._map[:]
    one.inflight.pend(slot, b"x" * record)
    after = one.inflight._map[:]
    at = inflight_module.SLOTS_AT + slot * inflight_module.SLOT_SIZE
    torn = after[:at] + before[at : at + 16] + after[at + 16 :]
    payloads = [inflight_module.left_in(data)[2][0].payload for data in (before, torn, after)]
    assert payloads[2] == b"x" * record
    assert (payloads[1] == payloads[0]) == (len(payloads[0]) + record <= MAX_LINE)
