"""Counters, status, metrics and reload, as an operator sees them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shim.counters import KEPT, OTHER, SERIES_LIMIT, Counters, Tally
from shim.log import event_log
from shim.meter import Meter
from shim.metering import Metering, upkeep
from shim.metrics import exposition, status
from shim.notify import Notify
from shim.reload import Watched
from tests.shim.lines import CALL, LINE, Events


@pytest.fixture
def metering(tmp_path: Path):
    made = Metering(tmp_path / "usage.jsonl", tmp_path / "state", "vm-1", Events())
    yield made
    made.close()


def samples(metering: Metering) -> dict[str, float]:
    lines = exposition(metering).decode().splitlines()
    return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines if not x.startswith("#"))}


class TestTally:
    def test_labels_past_the_bound_count_as_other(self):
        tally = Tally()
        for n in range(SERIES_LIMIT + 10):
            tally.add(f"name-{n}")
        assert len(tally) == SERIES_LIMIT + 1
        assert tally[(OTHER,)] == 10
        assert tally.total == SERIES_LIMIT + 10

    @pytest.mark.interpreted
    def test_every_family_has_a_counter_and_a_metric_of_its_own(self):
        assert len({family.metric for family in KEPT}) == len(KEPT)
        assert set(Counters.__slots__) == {family.name for family in KEPT}

    def test_how_long_calls_took_is_a_histogram(self, metering: Metering):
        for milliseconds in (100, 101, 2_000, 400_000):
            metering.counters.took(milliseconds)
        shown = samples(metering)
        at = {
            bound: shown[f'usage_call_duration_seconds_bucket{{le="{bound}"}}']
            for bound in ("0.1", "0.25", "2.5", "+Inf")
        }
        assert at == {"0.1": 1, "0.25": 2, "2.5": 3, "+Inf": 4}
        assert (shown["usage_call_duration_seconds_count"], shown["usage_call_duration_seconds_sum"]) == (4, 402.201)


class TestStatus:
    def test_a_line_a_wait_and_a_loss_are_visible(self, metering: Metering):
        metering.counters.calls.add("picoclaw", "openai", "completed")
        metering.sink.append(LINE)
        shown = status(metering)
        assert (shown["lines_written"], shown["waiting"], shown["log_error"]) == (1, 0, None)
        assert shown["calls"] == [{"runtime": "picoclaw", "upstream": "openai", "outcome": "completed", "count": 1}]
        json.dumps(shown)

    def test_a_log_that_cannot_be_written_is_named_with_its_error(self, metering: Metering):
        metering.sink.path.mkdir()
        metering.sink.append(LINE)
        shown = status(metering)
        assert (shown["log_error"], shown["waiting"]) == ("EISDIR", 1)
        metering.sink.path.rmdir()

    def test_calls_in_flight_are_counted_and_waiting_lines_are_not(self, metering: Metering):
        metering.inflight.begin(*CALL)
        slot = metering.inflight.begin(*CALL)
        metering.sink.path.mkdir()
        metering.sink.append(LINE, slot)
        assert (status(metering)["in_flight"], status(metering)["waiting"]) == (1, 1)
        metering.sink.path.rmdir()

    def test_without_a_log_nothing_is_metered_and_no_file_is_made(self, tmp_path: Path):
        off = Metering(None, tmp_path / "state", "vm-1", Events())
        background = Meter(off, b"", fingerprint=True).background
        assert (status(off)["metering"], off.recover(background), off.close()) == (False, 0, 0)
        assert not (tmp_path / "state").exists()

    def test_two_workers_show_their_sum(self, tmp_path: Path):
        one, two = (Metering(tmp_path / "usage.jsonl", tmp_path / "state", "vm-1", Events(), shared=True) for _ in "ab")
        for each in (one, two):
            each.sink.append(LINE)
            each.counters.refused.add("self_reporting")
            each.tick()
        shown = status(one)
        assert (shown["workers"], shown["lines_written"]) == (2, 2)
        assert shown["refused"] == [{"reason": "self_reporting", "count": 2}]
        two.close()
        assert status(one)["workers"] == 1
        one.close()


class TestMetrics:
    def test_counters_and_gauges_are_exposed_under_their_names(self, metering: Metering):
        metering.counters.calls.add("picoclaw", "openai", "failed")
        metering.counters.lines_dropped.add("spool_full")
        metering.sink.append(LINE)
        found = samples(metering)
        assert found['usage_shim_calls_total{outcome="failed",runtime="picoclaw",upstream="openai"}'] == 1
        assert found['usage_shim_lines_dropped_total{reason="spool_full"}'] == 1
        assert found["usage_shim_lines_written_total"] == 1
        assert found["usage_shim_in_flight_calls"] == 0
        assert found["usage_shim_resident_memory_bytes"] > 2**20

    @pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
    def test_promtool_finds_nothing_to_mend(self, metering: Metering):
        metering.counters.refused.add("self_reporting")
        done = subprocess.run(["promtool", "check", "metrics"], input=exposition(metering), capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")

    def test_prometheus_is_not_imported_before_the_first_scrape(self):
        code = "import shim.metrics, sys; sys.exit('prometheus_client' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestReload:
    def watch(self, tmp_path: Path, counters: Counters, events: Events) -> Watched[int]:
        path = tmp_path / "number"
        path.write_text("1")
        return Watched("allowlist", path, lambda path: int(path.read_text()), counters, events)

    def test_a_changed_file_applies(self, tmp_path: Path):
        counters = Counters()
        watched = self.watch(tmp_path, counters, Events())
        watched.path.write_text("22")
        watched.poll()
        assert (watched.value, counters.reloads) == (22, {("allowlist", "applied"): 1})

    @pytest.mark.parametrize("damage", ["broken", "deleted"])
    def test_a_broken_file_keeps_the_old_value_and_is_said_once(self, tmp_path: Path, damage: str):
        counters, events = Counters(), Events()
        watched = self.watch(tmp_path, counters, events)
        watched.path.write_text("not a number") if damage == "broken" else watched.path.unlink()
        for _ in range(5):
            watched.poll()
        assert (watched.value, counters.reloads) == (1, {("allowlist", "kept_old"): 1})
        assert events.said == ["reload_refused"]
        assert watched.refused

    def test_a_mended_file_applies_again(self, tmp_path: Path):
        watched = self.watch(tmp_path, Counters(), Events())
        watched.path.write_text("broken")
        watched.poll()
        watched.path.write_text("3")
        watched.poll()
        assert (watched.value, watched.refused) == (3, None)

    def test_a_file_replaced_by_one_of_the_same_size_and_time_is_seen(self, tmp_path: Path):
        watched = self.watch(tmp_path, Counters(), Events())
        new = tmp_path / "new"
        new.write_text("2")
        os.utime(new, ns=(0, watched.path.stat().st_mtime_ns))
        new.replace(watched.path)
        watched.poll()
        assert watched.value == 2


class TestUpkeep:
    async def test_waiting_lines_are_written_without_a_new_call(self, metering: Metering):
        metering.sink.path.mkdir()
        for _ in range(500):
            metering.sink.append(LINE)
        metering.sink.path.rmdir()
        task = asyncio.create_task(upkeep(metering, [], Notify({})))
        async with asyncio.timeout(5):
            while metering.sink.waiting:
                await asyncio.sleep(0.01)
        task.cancel()
        assert metering.counters.lines_written.total == 500

    async def test_a_fault_in_a_tick_is_counted_and_the_next_tick_goes_on(self, metering, monkeypatch):
        monkeypatch.setattr("shim.metering.TICK_SECONDS", 0.01)
        monkeypatch.setattr(metering.boot, "_clock", lambda: 1 / 0, raising=False)
        task = asyncio.create_task(upkeep(metering, [], Notify({})))
        await asyncio.sleep(0.1)
        task.cancel()
        assert metering.counters.metering_errors[("upkeep",)] > 1
        assert metering.log.said == ["upkeep_failed"]

    async def test_a_clock_set_back_leaves_every_line_with_an_id_of_its_own(self, metering, monkeypatch):
        first = [metering.sink.append(LINE) for _ in range(3)]
        real = metering.boot._clock
        monkeypatch.setattr(metering.boot, "_clock", lambda: real() - 86_400)
        metering.tick()
        second = [metering.sink.append(LINE) for _ in range(3)]
        assert len({*first, *second}) == 6
        assert metering.log.said == ["boot_renewed"]


class TestLog:
    def test_an_event_is_one_json_object_with_its_keys(self, capsys):
        event_log("info", environ={}).warning("log_write_failed", error="ENOSPC", path=Path("/x"))
        event = json.loads(capsys.readouterr().err)
        assert event.pop("at").endswith("Z")
        assert event == {"event": "log_write_failed", "level": "warning", "error": "ENOSPC", "path": "/x"}

    def test_events_below_the_level_are_left_out_and_the_journal_keeps_its_own_time(self, capsys):
        log = event_log("warning", environ={"JOURNAL_STREAM": "8:1"})
        log.info("reload_applied")
        log.error("line_dropped")
        assert json.loads(capsys.readouterr().err) == {"event": "line_dropped", "level": "error"}


def test_a_full_disk_has_a_name_in_the_counters(metering: Metering):
    metering.sink._write = lambda fd, data: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))
    metering.sink.append(LINE)
    assert metering.counters.log_errors == {("ENOSPC",): 1}
