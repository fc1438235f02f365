"""What goes into the ledger and what does not, through the same code as ``usage-collector ingest``."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import orjson
import pytest

from collector.ingest import Ingest
from collector.ingest_store import stamp
from collector.ledger.sqlite import SqliteLedger
from collector.lines import LineReader
from collector.query import Query
from collector.record import Record, Session
from collector.rows import Filter, Page
from collector.runtimes import Batch, Source, SourceError
from collector.settings import Settings
from shim.identity import load_key, reference
from shim.line import LineError, Tokens, encode
from tests.collector.worlds import ALLOWLIST, BOOT, PRICED, PRICER, START, ZONE, line, record

COUNTS = Tokens(100, 20, 0, 0, 30, None)


class Shelf:
    """A reader whose sources are the files of a folder and whose batches are given."""

    def __init__(self, runtime="claude_code"):
        self.runtime = runtime
        self.batches: dict[str, list[Batch] | Exception] = {}
        self.opened: list[str] = []

    def sources(self, home, environ):
        for name in self.batches:
            yield Source(self.runtime, home / name)

    def read(self, source, state):
        self.opened.append(source.path.name)
        found = self.batches[source.path.name]
        if isinstance(found, Exception):
            raise found
        yield from found


class Machine:
    """One VM: a log, a home with stores, a ledger."""

    def __init__(self, folder: Path):
        self.log = folder / "usage.jsonl"
        self.shelf = Shelf()
        environ = {
            "HOME": str(folder), "VM_USAGE_VM": "vm-1", "VM_USAGE_STATE": str(folder / "state"),
            "VM_USAGE_LOG": str(self.log), "VM_USAGE_HOMES": str(folder), "VM_USAGE_TZ": ZONE,
        }  # fmt: skip
        self.settings = Settings.from_env(environ)
        self.key = load_key(self.settings.state)
        self.ledger = SqliteLedger(folder / "ledger.db", ZONE)
        self.query = Query(self.ledger, self.ledger.calendar, clock=lambda: START + 60)
        self.ingest = Ingest(self.ledger, self.settings, ALLOWLIST, PRICER, readers=[self.shelf])

    def write(self, *data: bytes):
        with self.log.open("ab") as file:
            file.write(b"".join(data))

    def read(self):
        for name in self.shelf.batches:
            if not (self.log.parent / name).exists():
                (self.log.parent / name).touch()
        return self.ingest.once()

    def sessions(self, **where):
        return {row.session_id: row for row in self.query.sessions(Filter(**where), Page(limit=100)).rows}

    def refused(self):
        found = Counter()
        for row in self.query.refused():
            found[row.reason] += row.count
        return dict(found)


@pytest.fixture
def machine(tmp_path):
    found = Machine(tmp_path)
    yield found
    found.ingest.close()
    found.ledger.close()


def usage(number, runtime="picoclaw", **changes):
    made = line(number, runtime, START + number, COUNTS, PRICED)
    return encode(replace(made, **changes))


def altered(number, **changes):
    return orjson.dumps(orjson.loads(usage(number)) | changes) + b"\n"


def test_bad_lines_go_to_quarantine_with_offset_and_reason_and_block_nothing(machine):
    bad = {
        usage(1)[:90] + b"\n": "torn",
        b"hello\n": "not_json",
        b"[1, 2]\n": "not_json",
        altered(2, v=2): "version",
        altered(3, output_tokens=-1): "field:output_tokens",
        altered(4, input_tokens=1.5): "field:input_tokens",
        altered(5, cache_read_tokens=True): "field:cache_read_tokens",
        altered(6, model="a b"): "field:model",
        altered(7, note="x" * 1100): "too_long",
        altered(8, v=True): "version",
    }
    for data in bad:
        machine.write(data, usage(100 + len(data)))
    report = machine.read()
    assert report.new_lines == len({100 + len(data) for data in bad})
    rows = machine.query.quarantine()
    text = machine.log.read_bytes()
    assert {(row.offset, row.reason) for row in rows} == {(text.index(data), reason) for data, reason in bad.items()}
    assert {row.path for row in rows} == {str(machine.log)}


def test_a_line_without_its_end_waits_and_unknown_keys_are_ignored(machine):
    data = altered(1, later_key="x")
    machine.write(data[:-10])
    assert machine.read().lines == 0
    machine.write(data[-10:])
    assert machine.read().new_lines == 1
    assert machine.query.quarantine() == []


def test_what_has_no_newline_for_a_mebibyte_is_thrown_away_up_to_the_next_line(machine):
    machine.write(usage(1), b"\0" * (3 << 20))
    machine.read()
    machine.write(b"\0\n", usage(2))
    assert machine.read().new_lines == 1
    assert [row.reason for row in machine.query.quarantine()] == ["too_long"]
    assert machine.query.total().calls == 2


def test_missing_numbers_are_reported_as_gaps(machine):
    machine.write(*(usage(number) for number in (3, 4, 7)))
    report = machine.read()
    assert [(gap.first_seq, gap.last_seq) for gap in machine.query.gaps()] == [(1, 2), (5, 6)]
    assert report.missing_lines == 4
    machine.write(usage(5), usage(1))
    machine.read()
    assert [(gap.boot, gap.first_seq, gap.last_seq) for gap in machine.query.gaps()] == [(BOOT, 2, 2), (BOOT, 6, 6)]


def test_a_line_of_a_self_reporting_runtime_is_refused_and_still_no_gap(machine):
    machine.write(usage(1), usage(2, "claude_code"), usage(3, "nobody"))
    machine.read()
    assert machine.refused() == {"not_token_blind": 2}
    assert machine.query.total().calls == 1
    assert machine.query.gaps() == []


def test_a_cloned_vms_log_counts_once_for_the_vm_that_the_line_names(machine, tmp_path):
    machine.write(usage(1, vm="vm-original"), usage(2))
    machine.read()
    clone = tmp_path / "clone.jsonl"
    clone.write_bytes(usage(9) + machine.log.read_bytes())
    Ingest(machine.ledger, machine.settings, ALLOWLIST, PRICER, logs=[clone], homes=[]).once()
    assert {row.vm: row.calls for row in machine.query.vms()} == {"vm-original": 1, "vm-1": 2}
    assert machine.refused()["duplicate_line"] == 2


def test_lines_that_a_user_wrote_count_only_for_wires_that_are_captured(machine):
    captured = machine.settings.state / "capture.jsonl"
    captured.write_bytes(usage(1) + usage(2, "cursor", wire="cursor-cli"))
    machine.read()
    assert {row.runtime: row.calls for row in machine.query.runtimes()} == {"cursor": 1}
    assert machine.refused() == {"not_captured": 1}


def test_an_unknown_model_has_tokens_and_no_cost_and_a_call_without_usage_has_neither(machine):
    lost = replace(line(2, "picoclaw", START, Tokens(), PRICED, "ref-2"), usage="missing", outcome="interrupted")
    refused = replace(line(3, "picoclaw", START, Tokens(), PRICED, "ref-3"), usage="missing", outcome="rejected")
    machine.write(usage(1, model="acme-9"), encode(lost), encode(refused))
    machine.read()
    rows = machine.sessions()
    assert (rows["ref-1"].cost_status, rows["ref-1"].cost_usd, rows["ref-1"].input_tokens) == ("tokens_only", None, 100)
    assert (rows["ref-2"].cost_status, rows["ref-2"].input_tokens, rows["ref-2"].unknown_calls) == (
        "unavailable",
        None,
        1,
    )
    assert (rows["ref-3"].calls, rows["ref-3"].unknown_calls, rows["ref-3"].cost_usd) == (1, 0, None)
    assert machine.query.total().unknown_calls == 2


def test_a_session_that_nobody_metered_is_listed_as_unknown_and_never_as_zero(machine):
    machine.shelf.runtime = "picoclaw"
    machine.shelf.batches["one"] = [
        Batch(sessions=[
            Session("picoclaw", "chat", START, START + 9, "home-model", turns=((START + 4, "home-model"),)),
            Session("picoclaw", "empty"),
        ])
    ]  # fmt: skip
    machine.read()
    for name, model in (("chat", "home-model"), ("empty", None)):
        row = machine.sessions()[name]
        assert (row.cost_status, row.cost_usd, row.input_tokens, row.unknown_calls) == ("unavailable", None, None, 1)
        assert row.model == model
    machine.write(encode(line(1, "picoclaw", START + 2, COUNTS, PRICED, duration=1500)))
    machine.read()
    row = machine.sessions()["chat"]
    assert (row.calls, row.unknown_calls, row.session_ref, row.input_tokens) == (1, 0, "ref-1", 100)
    assert "ref-1" not in machine.sessions()


def test_a_line_with_the_reference_of_a_listed_session_belongs_to_it(machine):
    machine.shelf.runtime = "cursor"
    machine.shelf.batches["one"] = [Batch(sessions=[Session("cursor", "dddd-1")])]
    machine.read()
    ref = reference(machine.key, "session", "dddd-1")
    machine.write(encode(line(1, "cursor", START, COUNTS, PRICED, session=ref)))
    machine.read()
    row = machine.sessions()["dddd-1"]
    assert (row.calls, row.unknown_calls, row.session_ref, row.source) == (1, 0, ref, "log")
    assert len(machine.sessions()) == 1


def test_a_token_blind_runtimes_own_counts_are_evidence_and_are_not_added(machine):
    machine.shelf.runtime = "cursor"
    machine.shelf.batches["one"] = [Batch(records=[record("k", START, COUNTS, PRICED, "s", runtime="cursor")])]
    report = machine.read()
    machine.ledger.select("UPDATE store SET stamp = ''")
    machine.read()
    assert report.runtimes["cursor"].evidence == 1
    assert machine.refused() == {"token_blind_record": 1}
    assert machine.query.total().calls == 0
    assert machine.ledger.select("SELECT session_id, output_tokens FROM evidence") == [("s", 30)]


def test_the_same_record_in_two_homes_counts_once_and_a_fork_for_the_session_that_paid(machine):
    paid = record("k", START, COUNTS, PRICED, "paid", owner=START)
    fork = msgspec.structs.replace(paid, session_id="fork", owner=START + 60)
    machine.shelf.batches = {"a": [Batch(records=[fork])], "b": [Batch(records=[paid])], "c": [Batch(records=[paid])]}
    machine.read()
    assert set(machine.sessions()) == {"paid"}
    assert machine.query.total().calls == 1
    assert machine.refused() == {"copy": 1}


def test_a_session_that_every_batch_of_a_source_lists_is_one_in_the_report(machine):
    batches = [Batch(records=[record(f"k{n}", START + n, COUNTS, PRICED, "s")], sessions=[Session("claude_code", "s")])
               for n in range(3)]  # fmt: skip
    machine.shelf.batches["one"] = batches
    report = machine.read().runtimes["claude_code"]
    assert (report.sessions, report.records) == (1, 3)


def test_a_record_that_its_store_takes_back_counts_nowhere_as_if_it_had_never_been(machine):
    first = record("event", START, COUNTS, PRICED, "early")
    same = record("row", START + 1, COUNTS, PRICED, "s")
    machine.shelf.batches["events"] = [Batch(records=[first])]
    machine.read()
    assert (set(machine.sessions()), machine.query.total().calls) == ({"early"}, 1)
    machine.shelf.batches = {"events": [Batch(records=[msgspec.structs.replace(first, revision=1, taken_back=True)])]}
    machine.shelf.batches["ledger"] = [Batch(records=[same])]
    for _ in range(2):
        machine.ledger.select("UPDATE store SET stamp = ''")
        machine.read()
        assert (set(machine.sessions()), machine.query.total().calls) == ({"s"}, 1)
        assert machine.refused() == {}
    machine.write(usage(1, response=None))
    machine.read()
    assert machine.refused() == {"twin": 1}


def test_a_clones_copy_of_a_session_is_listed_once_it_goes_on_there(machine):
    paid = record("k", START, COUNTS, PRICED, "s", owner=START)
    own = msgspec.structs.replace(paid, key="k2", ts=START + 40)
    listed = Session("claude_code", "s", START, START + 30)
    machine.shelf.batches = {"a": [Batch(records=[paid], sessions=[listed])]}
    machine.read()
    clone = Ingest(machine.ledger, replace(machine.settings, vm="vm-2"), ALLOWLIST, PRICER, readers=[machine.shelf])
    machine.shelf.batches = {"copy": [Batch(records=[paid], sessions=[listed])]}
    (machine.log.parent / "copy").touch()
    clone.once()
    assert set(machine.sessions()) == {"s"}
    assert set(machine.sessions(vm="vm-2")) == set()
    machine.shelf.batches = {"later": [Batch(records=[paid, own], sessions=[listed])]}
    (machine.log.parent / "later").touch()
    clone.once()
    assert [machine.sessions(vm=vm)["s"].calls for vm in ("vm-1", "vm-2")] == [1, 1]


def test_a_record_that_grows_is_replaced_and_one_that_vanishes_stays(machine):
    early = record("k", START, COUNTS._replace(output_tokens=1), PRICED, "s", revision=1)
    machine.shelf.batches["a"] = [Batch(records=[early])]
    machine.read()
    machine.shelf.batches["a"] = [Batch(records=[msgspec.structs.replace(early, tokens=COUNTS, revision=2)])]
    (machine.log.parent / "a").write_text("changed")
    machine.read()
    machine.shelf.batches["a"] = []
    (machine.log.parent / "a").write_text("reaped!")
    machine.read()
    assert machine.query.total().output_tokens == 30


def test_one_broken_store_hides_no_other_and_is_listed_with_its_reason(machine):
    good = [Batch(records=[record("k", START, COUNTS, PRICED, "s")])]
    machine.shelf.batches = {
        "a": SourceError(machine.log.parent / "a", "database is locked"), "b": KeyError("x"), "c": good,
    }  # fmt: skip
    report = machine.read()
    assert [Path(path).name for path, _ in report.errors] == ["a", "b"]
    sources = {Path(row.path).name: row for row in machine.query.sources()}
    assert (sources["a"].ok, sources["a"].error) == (False, "database is locked")
    assert sources["c"].ok
    assert machine.query.total().calls == 1
    machine.shelf.batches["a"] = good
    assert machine.read().errors == [(str(machine.log.parent / "b"), "cannot be read (KeyError)")]


def test_unchanged_stores_are_not_opened_and_ten_thousand_of_them_cost_little(machine):
    machine.shelf.batches = {f"store-{number}": [Batch()] for number in range(10_000)}
    now = int(time.time() * 1000)
    for name in machine.shelf.batches:
        (machine.log.parent / name).touch()
    with machine.ledger.transaction() as tx:
        for source in machine.shelf.sources(machine.log.parent, {}):
            row = (str(source.path), source.runtime, stamp(source), None, now, None)
            tx.db.execute("INSERT INTO store VALUES (?, ?, ?, ?, ?, ?)", row)
    began = time.process_time()
    report = machine.ingest.once()
    assert time.process_time() - began < 0.5
    assert machine.shelf.opened == []
    assert report.runtimes["claude_code"].unchanged == 10_000


def test_a_store_is_read_again_from_where_it_ended_when_it_changes(machine):
    states = []

    class Growing(Shelf):
        def read(self, source, state):
            states.append(state)
            yield Batch(records=[record(f"k{len(states)}", START, COUNTS, PRICED, "s")], state={"at": len(states)})

    machine.ingest._readers = [growing := Growing()]
    growing.batches["a"] = []
    machine.read()
    machine.read()
    (machine.log.parent / "a").write_text("more")
    machine.read()
    assert states == [None, {"at": 1}]
    assert machine.query.total().calls == 2


def test_money_beyond_sixty_four_bits_of_pico_usd_is_summed_exactly(machine):
    rich = [
        Record("claude_code", f"k{number}", "s", START, COUNTS, vendor_pico=9 * 10**17 + number, vendor_basis="billed")
        for number in range(20)
    ]  # fmt: skip
    machine.shelf.batches["a"] = [Batch(records=rich)]
    machine.read()
    assert machine.query.total().cost_pico == sum(one.vendor_pico or 0 for one in rich) > 2**63
    assert machine.sessions()["s"].cost_pico == machine.query.total().cost_pico


def test_a_log_that_is_no_file_is_an_error_of_its_own(machine):
    os.mkfifo(machine.log)
    assert machine.read().errors == [(str(machine.log), "not a regular file")]
    assert [row.error for row in machine.query.sources()] == ["not a regular file"]


def test_a_log_that_was_named_and_is_not_there_is_said(machine, tmp_path):
    named = Ingest(machine.ledger, machine.settings, ALLOWLIST, PRICER, logs=[tmp_path / "typo.jsonl"], homes=[])
    assert named.once().errors == [(str(tmp_path / "typo.jsonl"), "there is no such file")]
    assert machine.read().errors == []


def test_a_line_error_names_the_reason():
    with pytest.raises(LineError, match="field:ts"):
        LineReader().read(altered(1, ts=9e11).rstrip())
