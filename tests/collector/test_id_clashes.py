"""Two calls with one id, as a VM restored from a snapshot makes them: each counts once, in any order, however often."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.audit.review import Reviewer
from collector.ledger.clash import boot_of
from collector.ledger.sqlite import SqliteLedger
from collector.query import ALL_RECORDS
from shim.line import ID, MAX_LINE, Tokens, encode
from tests.collector.worlds import BOOT, PRICED, START, ZONE, Vm, line


def usage(number: int, moment: int, size: int, runtime: str = "picoclaw", boot: str = BOOT, **more) -> bytes:
    made = line(number, runtime, START + moment, Tokens(size, 0, 0, 0, 1, None), PRICED)
    return encode(replace(made, id=f"{boot}-{number}", **more))


@contextmanager
def machine(*logs: bytes):
    with tempfile.TemporaryDirectory() as folder:
        found = Vm(Path(folder))
        for log in logs:
            found.take(log)
        yield found
        found.ledger.close()


def told(vm: Vm):
    """Everything that does not say which of two calls came first."""
    total = vm.query.total()
    records = Counter((entry.id, entry.ts_ms, entry.tokens, entry.cost_pico) for entry in vm.ledger.scan(ALL_RECORDS))
    return total, vm.query.aggregates(), vm.query.models(), records, vm.query.gaps(), refused(vm).get("id_clash", 0)


def refused(vm: Vm) -> dict[str, int]:
    return {row.reason: row.count for row in vm.query.refused()}


FEW = settings(max_examples=60, deadline=None)
# Few ids, moments and sizes, so that lines with one id and other content, and the same line again, are common.
LINES = st.builds(usage, st.integers(1, 3), st.integers(0, 2), st.integers(1, 2))


@st.composite
def log_files(draw, lines=LINES):
    """Logs, each with a first line of its own: a log is recognised by that and by the last lines that were read."""
    logs = draw(st.lists(st.lists(lines, max_size=6), min_size=1, max_size=4))
    return [usage(1, 0, 1, boot=f"start-{place}") + b"".join(lines) for place, lines in enumerate(logs)]


LOGS = log_files()


@FEW
@given(LOGS, st.randoms(use_true_random=False))
def test_each_call_counts_once_in_any_order_however_often(logs, random):
    calls = {data for log in logs for data in log.splitlines()}
    with machine(*logs) as vm:
        facts = told(vm)
        assert facts[0].calls == len(calls)
        assert (facts[0].input_tokens or 0) == sum(orjson.loads(data)["input_tokens"] for data in calls)
        assert facts[-1] == len(calls) - len({orjson.loads(data)["id"] for data in calls})
        for log in logs:
            vm.take(log)
        assert told(vm) == facts
    random.shuffle(logs)
    with machine(*logs) as vm:
        assert told(vm) == facts


@FEW
@given(LOGS)
def test_the_audit_counts_the_same_calls(logs):
    calls = {data for log in logs for data in log.splitlines()}
    with machine(*logs) as vm, tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.jsonl" for number in range(len(logs))]
        for path, log in zip(paths, logs, strict=True):
            path.write_bytes(log)
        audit = Reviewer(vm.ledger.calendar).review(paths)
        assert sum(total.calls for total in audit.totals.values()) == len(calls)
        assert audit.clashes == refused(vm).get("id_clash", 0)
        assert audit.duplicates == sum(len(log.splitlines()) for log in logs) - len(calls)


# Calls that say something else are of another moment, as a hub tells them apart.
APART = st.builds(lambda seq, moment: usage(seq, moment, moment + 1), st.integers(1, 3), st.integers(0, 3))


@FEW
@given(log_files(APART), st.randoms(use_true_random=False))
def test_a_hub_has_each_call_once_whatever_its_vms_saw_first(logs, random):
    """A VM and its copy read the same logs in any order, and tell a hub in between what they make of them."""
    lines = {data for log in logs for data in log.splitlines()}
    calls = Counter(int(orjson.loads(data)["ts"] * 1000) for data in lines)
    with machine() as one, machine() as two, tempfile.TemporaryDirectory() as folder:
        hub = SqliteLedger(Path(folder) / "hub.db", ZONE)
        waiting = {vm: random.sample(logs, len(logs)) for vm in (one, two)}
        told = dict.fromkeys((one, two), 0)
        while any(waiting.values()):
            vm = random.choice([vm for vm in (one, two) if waiting[vm]])
            vm.take(waiting[vm].pop())
            for teller in (one, two) if not any(waiting.values()) else random.sample((one, two), random.randint(0, 2)):
                told[teller], entries = teller.ledger.changes(told[teller], 100)
                hub.append(entries)
        assert Counter(entry.ts_ms for entry in hub.scan(ALL_RECORDS)) == calls
        held = [{(e.id, e.ts_ms) for e in ledger.scan(ALL_RECORDS)} for ledger in (one.ledger, two.ledger, hub)]
        assert held[0] == held[1] == held[2]
        hub.close()


def test_a_hub_has_the_calls_of_a_vm_and_of_its_copy(tmp_path: Path):
    with machine(usage(1, 0, 5)) as one, machine(usage(1, 1, 7)) as copy:
        (mine,), (other,) = (list(vm.ledger.scan(ALL_RECORDS)) for vm in (one, copy))
    assert mine.id == other.id
    hub = SqliteLedger(tmp_path / "hub.db", ZONE)
    moved = [replace(entry, session_id="told-later") for entry in (other, mine)]
    assert [hub.append(entries) for entries in ([mine], [other], [other, mine], moved, moved)] == [1, 1, 0, 2, 0]
    found = sorted((entry.tokens.input_tokens, entry.session_id) for entry in hub.scan(ALL_RECORDS))
    assert found == [(5, "told-later"), (7, "told-later")]
    hub.close()


def test_a_line_is_the_same_whatever_bytes_say_it():
    first = usage(1, 0, 5)
    other = orjson.dumps(dict(reversed(orjson.loads(first).items())) | {"later_key": 1}) + b"\n"
    with machine(first, other) as vm:
        assert vm.query.total().calls == 1
        assert refused(vm) == {"duplicate_line": 1}


def test_a_call_with_anothers_id_leaves_no_gap_and_keeps_its_session():
    with machine(usage(1, 0, 5), usage(2, 1, 5), usage(2, 2, 7, session="ref-2")) as vm:
        assert vm.query.gaps() == []
        assert {row.session_id: row.input_tokens for row in vm.query.sessions().rows} == {"ref-1": 10, "ref-2": 7}
        (row,) = (row for row in vm.query.refused() if row.reason == "id_clash")
        assert row.examples == [f"{BOOT}-2"] or tuple(row.examples) == (f"{BOOT}-2",)


def test_a_captured_line_cannot_take_the_place_of_a_shims():
    """A user writes the log of captured lines himself, ids and all."""
    captured = usage(1, 3, 9, "cursor", wire="cursor-cli")
    with machine(captured, usage(1, 0, 5)) as vm:
        assert {row.runtime: row.input_tokens for row in vm.query.runtimes()} == {"cursor": 9, "picoclaw": 5}


@pytest.mark.parametrize("boot", [BOOT, "20261130T200501123Z5d0c6f2a91be", "b" * 64])
def test_the_derived_id_is_an_id(boot: str):
    made = f"{boot_of(boot, 2**40 - 1, (1, None))}-1"
    assert ID.fullmatch(made)
    assert len(made) < MAX_LINE
    assert made != f"{boot_of(boot, 2**40 - 1, (2, None))}-1"
