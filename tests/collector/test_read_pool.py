"""Reading in several processes: the same batches in the same order, and a worker that dies costs nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector import ingest_store, read_pool
from collector.ingest import Ingest
from collector.ledger.sqlite import SqliteLedger
from collector.query import Query
from collector.read_pool import WORTH_WORKERS, Pool, Unread, processors, workers_for
from collector.rows import Page
from collector.runtimes import Batch, Source, SourceError
from collector.runtimes.table import READERS
from collector.settings import Settings
from tests.collector.worlds import ALLOWLIST, PRICER, ZONE

FIXTURES = Path(__file__).parent.parent / "runtimes"


def unread() -> list[Unread]:
    """Every source of every runtime's fixture home."""
    homes = [(reader, FIXTURES / reader.runtime / "home") for reader in READERS]
    return [Unread(reader, source, None, 1) for reader, home in homes for source in reader.sources(home, {})]


def read(pool: Pool) -> list[tuple[Path, list[Batch] | str]]:
    found: list[tuple[Path, list[Batch] | str]] = []
    for one, batches in pool:
        try:
            found.append((one.source.path, list(batches)))
        except SourceError as error:
            found.append((one.source.path, error.reason))
    return found


@pytest.fixture(scope="module")
def alone() -> list[tuple[Path, list[Batch] | str]]:
    with Pool(unread(), 0) as pool:
        return read(pool)


def test_workers_find_what_one_process_finds_in_the_same_order(alone):
    with Pool(unread(), 2) as pool:
        assert read(pool) == alone
        assert pool.lost_workers == 0
        processes = [worker.process for worker in pool._workers]
    assert [process.returncode for process in processes] == [0, 0]


def test_what_dead_workers_had_not_told_is_read_here(alone):
    with Pool(unread(), 2) as pool:
        found = []
        for number, (one, batches) in enumerate(pool):
            if number == 5:
                for worker in pool._workers:
                    worker.process.kill()
            found.append((one.source.path, list(batches)))
        assert found == alone
        assert pool.lost_workers  # one that had told everything before it died is not missed


def test_a_source_that_cannot_be_read_is_an_error_of_that_source_alone(tmp_path, alone):
    os.mkfifo(tmp_path / "s.jsonl")
    reader = next(reader for reader in READERS if reader.runtime == "claude_code")
    broken = Unread(reader, Source("claude_code", tmp_path / "s.jsonl"), None, 1)
    with Pool([broken, *unread()], 2) as pool:
        assert read(pool) == [(tmp_path / "s.jsonl", "not a regular file"), *alone]


def test_what_no_message_can_carry_is_read_here(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path / "-work") + b"-\xff")) / "s.jsonl"
    path.parent.mkdir()
    path.write_bytes(next((FIXTURES / "claude_code" / "home").rglob("*.jsonl")).read_bytes())
    reader = next(reader for reader in READERS if reader.runtime == "claude_code")
    with Pool([Unread(reader, Source("claude_code", path), None, 1)], 1) as pool:
        ((_, batches),) = read(pool)
    assert any(batch.records for batch in batches)


def test_an_ingest_ends_equal_with_and_without_workers(tmp_path, monkeypatch):
    found = []
    for workers in (0, 2):
        monkeypatch.setattr(ingest_store, "workers_for", lambda size, workers=workers: workers)
        with_ledger = tmp_path / str(workers)
        with_ledger.mkdir()
        settings = Settings.from_env({"HOME": str(with_ledger), "VM_USAGE_VM": "vm-1", "VM_USAGE_TZ": ZONE})
        ledger = SqliteLedger(with_ledger / "ledger.db", ZONE)
        homes = [FIXTURES / reader.runtime / "home" for reader in READERS]
        report = Ingest(ledger, settings, ALLOWLIST, PRICER, homes=homes).once()
        again = Ingest(ledger, settings, ALLOWLIST, PRICER, homes=homes).once()
        assert not again.changed
        rows = Query(ledger, ledger.calendar).sessions(page=Page(limit=1000)).rows
        found.append((rows, report.runtimes, report.errors))
        ledger.close()
    assert found[0] == found[1]


@pytest.mark.parametrize(("size", "usable", "workers"), [(WORTH_WORKERS - 1, 8, 0), (WORTH_WORKERS, 1, 0),
                                                         (WORTH_WORKERS, 2, 2), (10**12, 64, 4)])  # fmt: skip
def test_workers_only_where_there_is_much_to_read_and_more_than_one_processor(monkeypatch, size, usable, workers):
    monkeypatch.setattr(read_pool, "processors", lambda: usable)
    assert workers_for(size) == workers


@pytest.mark.parametrize(("quota", "share"), [("max 100000", 1.0), ("50000 100000", 0.0), ("100000 100000", 0.01)])
def test_a_control_groups_quota_limits_the_processors(tmp_path, monkeypatch, quota, share):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(100)))
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/usage-collector.service\n")
    group = tmp_path / "sys/fs/cgroup/system.slice/usage-collector.service"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text(quota + "\n")
    assert processors(tmp_path) == 100 * share
