"""The log's writer against what disks, rotation and operators do. Each fault is done to a real file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from shim.counters import Counters
from shim.ids import Boot
from shim.inflight import Inflight
from shim.line import Tokens
from shim.sink import FLUSH_LINES, Sink
from tests.shim.lines import CALL, LINE, Disk, Events, read_log


class Bench:
    """A sink with everything it needs, on a disk whose room a test sets."""

    def __init__(self, folder: Path, **bounds: float) -> None:
        self.path = folder / "log" / "usage.jsonl"
        self.disk = Disk()
        self.events = Events()
        self.counters = Counters()
        self.boot = Boot()
        self.inflight = Inflight(folder / "state", self.boot, self.counters)
        self.sink = Sink(
            self.path, self.boot, self.inflight, self.counters, self.events, write=self.disk.write, **bounds
        )

    def append(self, count: int = 1) -> list[str]:
        return [self.sink.append(LINE) for _ in range(count)]

    def ids(self, path: Path | None = None) -> list[str]:
        return [line.id for line in read_log((path or self.path).read_bytes())[0]]


@pytest.fixture
def bench(tmp_path: Path):
    made = Bench(tmp_path)
    yield made
    made.sink.close()
    made.inflight.close()


def test_a_line_is_in_the_log_under_its_id_when_append_returns(bench: Bench):
    written = bench.append(3)
    assert bench.ids() == written == [f"{bench.boot.name}-{n}" for n in (1, 2, 3)]


def test_the_log_is_made_with_mode_0640_whatever_the_umask(bench: Bench):
    old = os.umask(0o077)
    try:
        bench.append()
    finally:
        os.umask(old)
    assert stat.S_IMODE(bench.path.stat().st_mode) == 0o640


def test_after_a_rename_lines_go_to_a_new_file(bench: Bench):
    first = bench.append(2)
    rotated = bench.path.rename(bench.path.with_suffix(".1"))
    second = bench.append(2)
    assert (bench.ids(rotated), bench.ids()) == (first, second)


def test_after_a_delete_lines_go_to_a_new_file(bench: Bench):
    bench.append()
    bench.path.unlink()
    assert bench.append(2) == bench.ids()


def test_after_copytruncate_lines_start_at_the_beginning(bench: Bench):
    bench.append(5)
    os.truncate(bench.path, 0)
    written = bench.append()
    assert bench.ids() == written
    assert bench.path.read_bytes().startswith(b'{"v":1')


def test_a_folder_that_was_moved_away_is_made_again(bench: Bench, tmp_path: Path):
    first = bench.append()
    moved = bench.path.parent.rename(tmp_path / "elsewhere")
    second = bench.append()
    assert (bench.ids(moved / "usage.jsonl"), bench.ids()) == (first, second)


def test_a_log_moved_to_another_folder_by_symlink_is_followed(bench: Bench, tmp_path: Path):
    bench.append()
    bench.path.unlink()
    bench.path.symlink_to(tmp_path / "other.jsonl")
    (tmp_path / "other.jsonl").touch()
    assert bench.append() == bench.ids(tmp_path / "other.jsonl")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT])
def test_lines_wait_in_order_and_are_written_when_the_fault_is_gone(bench: Bench, code: int):
    bench.append()
    bench.disk.error = code
    bench.append(5)
    assert bench.sink.waiting == 5
    bench.disk.error = 0
    assert bench.sink.flush() == 0
    assert bench.ids() == [f"{bench.boot.name}-{n}" for n in range(1, 7)]


def test_trouble_is_said_once_and_its_end_too(bench: Bench):
    bench.disk.error = errno.ENOSPC
    bench.append(50)
    bench.disk.error = 0
    bench.append()
    assert bench.events.said == ["log_write_failed", "log_write_recovered"]
    assert bench.sink.trouble is None


def test_a_disk_that_is_full_now_and_then_is_not_said_each_time(bench: Bench):
    for _ in range(50):
        bench.disk.error = errno.ENOSPC
        bench.append()
        bench.disk.error = 0
        bench.append()
    assert bench.events.said == ["log_write_failed", "log_write_recovered"]
    assert bench.counters.log_errors == {("ENOSPC",): 50}


def test_a_missing_folder_that_cannot_be_made_keeps_lines_waiting(bench: Bench, tmp_path: Path):
    (tmp_path / "log").write_text("a file where the folder should be")
    bench.append(3)
    assert (bench.sink.waiting, bench.sink.trouble) == (3, "ENOTDIR")
    (tmp_path / "log").unlink()
    bench.sink.flush()
    assert len(bench.ids()) == 3


def test_a_log_that_is_a_fifo_never_blocks_and_is_written_when_it_is_a_file(bench: Bench):
    bench.path.parent.mkdir()
    os.mkfifo(bench.path)
    bench.append(2)
    assert bench.sink.waiting == 2
    bench.path.unlink()
    assert bench.sink.flush() == 0


@pytest.mark.parametrize("room", [1, 2, 100, 400])
def test_a_line_cut_short_is_completed_in_place(bench: Bench, room: int):
    first = bench.append()
    bench.disk.room = room
    second = bench.append(2)
    bench.disk.room = None
    bench.sink.flush()
    lines, refused = read_log(bench.path.read_bytes())
    assert [line.id for line in lines] == first + second
    assert refused == []


def test_a_line_cut_short_before_a_rotation_is_written_whole_to_the_new_file(bench: Bench):
    bench.disk.room = 100
    written = bench.append()
    bench.path.rename(bench.path.with_suffix(".1"))
    bench.disk.room = None
    bench.sink.flush()
    assert bench.ids() == written
    assert read_log(bench.path.with_suffix(".1").read_bytes()) == ([], ["torn"])


def test_a_line_cut_short_and_followed_by_another_writer_costs_only_itself(bench: Bench):
    bench.disk.room = 100
    written = bench.append()
    with bench.path.open("ab") as other:
        other.write(b'\n{"other":1}\n')
    bench.disk.room = None
    bench.sink.flush()
    lines, refused = read_log(bench.path.read_bytes())
    assert [line.id for line in lines] == written
    assert refused == ["torn", "version"]


def test_a_torn_end_left_by_a_power_cut_is_not_glued_to_the_next_line(bench: Bench):
    bench.path.parent.mkdir()
    bench.path.write_bytes(b'{"v":1,"id":"20260101T000000000Zab-7","ts":17')
    assert bench.append() == bench.ids()


def test_a_second_fault_while_a_line_is_mended_loses_nothing(bench: Bench):
    bench.disk.room = 100
    written = bench.append()
    bench.disk.error = errno.EIO
    bench.sink.flush()
    bench.disk.error, bench.disk.room = 0, 50
    bench.sink.flush()
    bench.disk.room = None
    bench.sink.flush()
    assert read_log(bench.path.read_bytes())[1] == []
    assert bench.ids() == written


def test_past_the_bound_the_newest_lines_are_lost_and_their_seq_is_missing(tmp_path: Path):
    bench = Bench(tmp_path, spool_lines=3)
    bench.disk.error = errno.ENOSPC
    bench.append(5)
    bench.disk.error = 0
    bench.append()
    assert bench.ids() == [f"{bench.boot.name}-{n}" for n in (1, 2, 3, 6)]
    assert bench.counters.lines_dropped == {("spool_full",): 2}
    assert bench.events.said == ["log_write_failed", "line_dropped", "log_write_recovered"]


def test_a_new_line_goes_behind_those_that_wait_even_when_the_disk_is_back(bench: Bench):
    bench.disk.error = errno.ENOSPC
    written = bench.append(2 * FLUSH_LINES)
    bench.disk.error = 0
    written += bench.append()
    assert bench.sink.waiting == FLUSH_LINES + 1
    while bench.sink.flush():
        pass
    assert bench.ids() == written


def test_the_spool_is_bounded_in_bytes(tmp_path: Path):
    bench = Bench(tmp_path, spool_bytes=2000)
    bench.disk.error = errno.ENOSPC
    bench.append(100)
    assert bench.sink.waiting * 400 < 2000
    assert bench.counters.lines_dropped.total == 100 - bench.sink.waiting


def test_a_line_that_cannot_be_encoded_is_counted_lost_and_not_raised(bench: Bench):
    import dataclasses

    bench.sink.append(dataclasses.replace(LINE, session="x" * 2000))
    bench.sink.append(dataclasses.replace(LINE, tokens=Tokens(input_tokens=2**70)))
    assert bench.counters.lines_dropped == {("too_long",): 1, ("encode",): 1}
    assert bench.append() == [f"{bench.boot.name}-3"]


def test_a_slot_is_given_back_once_its_line_is_in_the_log_and_not_before(bench: Bench):
    slot = bench.inflight.begin(*CALL)
    bench.disk.error = errno.ENOSPC
    bench.sink.append(LINE, slot)
    assert bench.inflight.used == 1
    bench.disk.error = 0
    bench.sink.flush()
    assert bench.inflight.used == 0


def test_close_writes_what_waits_and_says_what_it_could_not(bench: Bench):
    bench.disk.error = errno.ENOSPC
    bench.append(300)
    assert bench.sink.close() == 300
    bench.disk.error = 0
    assert bench.sink.close() == 0
    assert len(bench.ids()) == 300


def test_two_workers_on_one_log_keep_their_lines_apart(bench: Bench):
    boot, counters = Boot(), Counters()
    inflight = Inflight(None, boot, counters)
    other = Sink(bench.path, boot, inflight, counters, Events())
    written = [sink.append(LINE) for _ in range(20) for sink in (bench.sink, other)]
    assert bench.ids() == written
    other.close()
    inflight.close()


def test_a_worker_does_not_glue_its_line_to_the_torn_line_of_another(bench: Bench):
    boot, counters = Boot(), Counters()
    inflight = Inflight(None, boot, counters)
    other = Sink(bench.path, boot, inflight, counters, Events())
    other.append(LINE)
    bench.disk.room = 100
    bench.append()
    other.append(LINE)
    bench.disk.room = None
    bench.sink.flush()
    lines, refused = read_log(bench.path.read_bytes())
    assert sorted(line.id for line in lines) == sorted([f"{boot.name}-1", f"{boot.name}-2", f"{bench.boot.name}-1"])
    assert refused == ["torn"]
    other.close()
    inflight.close()


def test_while_a_look_holds_lines_follow_a_renamed_log_and_none_is_lost(tmp_path: Path):
    bench = Bench(tmp_path, look_seconds=3600.0)
    old = bench.path.with_suffix(".1")
    written = bench.append(2)
    bench.path.rename(old)
    written += bench.append(2)
    assert (bench.ids(old), bench.path.exists()) == (written, False)
    bench.sink._look_until = 0.0
    assert bench.append() == bench.ids()
    bench.sink.close()
    bench.inflight.close()


@pytest.mark.parametrize("torn", [b'{"v":1,"id":"x', b'{"other":1}\n'])
def test_while_a_look_holds_no_line_is_glued_to_what_another_wrote(tmp_path: Path, torn: bytes):
    bench = Bench(tmp_path, look_seconds=3600.0)
    written = bench.append()
    with bench.path.open("ab") as other:
        other.write(torn)
    written += bench.append(2)
    assert bench.ids() == written
    bench.sink.close()
    bench.inflight.close()
