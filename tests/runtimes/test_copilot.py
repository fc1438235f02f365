"""Copilot: the ledger's money and classes, and the events of sessions that the ledger does not have."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from collector.runtimes import SourceError
from collector.runtimes.copilot import READER
from tests.runtimes.databases import change
from tests.runtimes.transcripts import HERE, Read, dollars, read_home, total, write

SCHEMA = (HERE / "copilot" / "schema.sql").read_text()
DDL = [line for line in SCHEMA.splitlines() if line.startswith(("PRAGMA", "CREATE"))]
AT = "2026-08-13T08:00:05.000Z"


class Store:
    """A home with Copilot's ledger and events."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.database = home / ".copilot/session-store.db"
        self.database.parent.mkdir(parents=True)
        self.make()

    def make(self):
        with closing(sqlite3.connect(self.database)) as connection:
            connection.executescript("\n".join(DDL))

    def row(self, session, total_in=1000, output=10, read=0, write_=0, nano=None, details=None, at=AT):
        change(self.database, "INSERT OR IGNORE INTO sessions VALUES (?,0,0,0,0,0,?,?)", parameters=(session, AT, AT))
        text = None if details is None else json.dumps(details)
        change(
            self.database,
            "INSERT INTO assistant_usage_events (session_id, model, input_tokens, output_tokens, cache_read_tokens,"
            " cache_write_tokens, total_nano_aiu, token_details_json, created_at) VALUES (?,'m-1',?,?,?,?,?,?,?)",
            parameters=(session, total_in, output, read, write_, nano, text, at),
        )

    def events(self, session, *lines):
        return write(self.home / ".copilot/session-state" / session / "events.jsonl", *lines)

    def read(self, **how) -> Read:
        return read_home(READER, self.home, **how)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home")


def detail(kind, tokens, cost=10**9, batch=1000):
    return {"tokenType": kind, "tokenCount": tokens, "costPerBatch": cost, "batchSize": batch}


def test_dollars_are_nano_aiu_by_ten_to_the_eleventh(store):
    store.row("s", nano=747_000_000)
    (record,) = store.read().of("s")
    assert (record.vendor_pico, record.vendor_basis, record.caveat) == (7_470_000_000, "billed", None)


def test_a_zero_in_the_ledger_is_a_real_zero_and_none_is_unknown(store):
    store.row("s", nano=0)
    store.row("t", nano=None)
    read = store.read()
    assert dollars(read.of("s")) == 0
    assert (dollars(read.of("t")), read.of("t")[0].caveat) == (None, "other_basis")


def test_details_come_before_columns_and_free_entries_count_as_tokens(store):
    details = [detail("input", 3), detail("cache_write", 900, cost=0), detail("output", 7)]
    store.row("s", total_in=1000, output=10, read=97, nano=10_000_000, details=details)
    (record,) = store.read().of("s")
    tokens = record.tokens
    assert (tokens.input_tokens, tokens.cache_read_tokens, tokens.cache_write_tokens, tokens.output_tokens) == (
        3,
        97,
        900,
        7,
    )
    assert record.caveat is None


def test_details_that_do_not_sum_to_the_total_leave_the_columns_and_a_caveat(store):
    store.row("s", total_in=1000, read=100, nano=5, details=[detail("input", 3)])
    read = store.read()
    (record,) = read.of("s")
    assert (record.tokens.input_tokens, record.vendor_pico, record.caveat) == (900, 50, "cache_split_unknown")
    assert read.skipped == {"details_disagree": 1}


@pytest.mark.parametrize("details", ["{", "[]", '[{"tokenType": 1}]', '{"a": 1}', "null"])
def test_details_that_are_none_leave_the_columns(store, details):
    store.row("s", nano=10**9)
    change(store.database, "UPDATE assistant_usage_events SET token_details_json = ?", parameters=(details,))
    assert total(store.read().of("s"), "input_tokens") == 1000


def test_columns_of_older_builds_may_be_missing(store):
    for column in ("total_nano_aiu", "token_details_json", "initiator", "reasoning_tokens", "duration_ms"):
        change(store.database, f"ALTER TABLE assistant_usage_events DROP COLUMN {column}")
    change(
        store.database,
        "INSERT INTO assistant_usage_events (session_id, model, input_tokens, created_at)"
        " VALUES ('s', 'm', 5, '2026-08-13 08:00:05')",
    )
    (record,) = store.read().of("s")
    assert (record.tokens.input_tokens, record.vendor_pico, record.caveat) == (5, None, "other_basis")
    assert record.ts == 1786608005


def test_a_database_that_was_deleted_and_begun_again_does_not_hide_its_new_rows(store):
    store.row("s", total_in=100)
    read = store.read()
    for path in store.database.parent.glob("session-store.db*"):
        path.unlink()
    store.make()
    store.row("s", total_in=30, at="2026-08-14T08:00:05.000Z")
    read.take(READER, next(iter(READER.sources(store.home, {}))))
    assert total(read.of("s"), "input_tokens") == 130


def shutdown(at, total_in, nano=0, output=1, model="m-1"):
    usage = {"inputTokens": total_in, "outputTokens": output, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    data = {"modelMetrics": {model: {"usage": usage, "totalNanoAiu": nano}}}
    return {"type": "session.shutdown", "timestamp": f"2026-08-13T11:{at:02}:00.000Z", "data": data}


def call(at, total_in, identity, source="e", nano=None):
    usage = {"model": "m-1", "inputTokens": total_in, "outputTokens": 1, "apiCallId": identity}
    usage |= {"accounting": {"sourceSessionId": source, "usageId": identity}, "totalNanoAiu": nano}
    return {"type": "session.usage_record", "timestamp": f"2026-08-13T11:{at:02}:00.000Z", "data": {"usage": usage}}


def test_the_last_of_a_rising_series_of_shutdowns_counts(store):
    store.events("e", shutdown(0, 100, 10**9), shutdown(5, 250, 3 * 10**9))
    (record,) = store.read().of("e")
    assert (record.tokens.input_tokens, record.vendor_pico, record.grain) == (250, 3 * 10**10, "session")


def test_a_total_for_the_whole_session_is_that_of_its_one_model(store):
    one = shutdown(0, 100, nano=None)
    one["data"] |= {"totalNanoAiu": 10**9}
    store.events("e", one)
    two = shutdown(0, 100, nano=None)
    two["data"]["modelMetrics"] |= shutdown(0, 100, model="m-2", nano=None)["data"]["modelMetrics"]
    two["data"] |= {"totalNanoAiu": 10**9}
    store.events("f", two)
    read = store.read()
    assert (dollars(read.of("e")), dollars(read.of("f"))) == (0.01, None)


def test_a_total_that_fell_began_again(store):
    store.events("e", shutdown(0, 100, output=9), shutdown(5, 40, output=4), shutdown(6, 60, output=6))
    assert total(store.read().of("e"), "input_tokens") == 160


def said(at, output):
    data = {"content": "secret", "outputTokens": output}
    return {"type": "assistant.message", "timestamp": f"2026-08-13T11:{at:02}:00.000Z", "data": data}


@pytest.mark.parametrize(
    ("outputs", "fresh"), [((100, 180, 250), 40), ((100, 80, 70), 10 + 20 + 40)], ids=["cumulative", "each leg alone"]
)
def test_shutdowns_of_the_oldest_builds_are_of_one_leg_where_they_say_no_more_than_its_messages(store, outputs, fresh):
    lines = []
    for number, (spoken, output, total_in) in enumerate(zip((100, 80, 70), outputs, (10, 20, 40), strict=True)):
        lines += [said(2 * number, spoken), shutdown(2 * number + 1, total_in, output=output)]
    store.events("e", *lines)
    (record,) = store.read().of("e")
    assert (record.tokens.input_tokens, record.tokens.output_tokens) == (fresh, 250)


def test_nano_aiu_that_were_summed_as_floats_are_rounded(store):
    store.row("s", nano=747_000_000.25)
    store.events("e", shutdown(0, 100, 747_000_000.0000001))
    store.events("f", call(0, 10, "id-1", source="f", nano=0.6))
    read = store.read()
    assert dollars(read.of("s")) == dollars(read.of("e")) == pytest.approx(0.00747)
    assert [record.vendor_pico for record in read.of("f")] == [10]


def test_models_have_series_of_their_own(store):
    store.events("e", shutdown(0, 100), shutdown(1, 70, model="m-2"))
    assert {record.model: record.tokens.input_tokens for record in store.read().of("e")} == {"m-1": 100, "m-2": 70}


def test_calls_in_the_events_come_before_a_shutdown_and_a_zero_is_unknown(store):
    store.events("e", call(0, 10, "id-1"), call(1, 20, "id-2", nano=10**9), shutdown(2, 30))
    read = store.read()
    assert [(r.tokens.input_tokens, r.vendor_pico, r.grain) for r in read.of("e")] == [
        (10, None, "call"),
        (20, 10**10, "call"),
    ]
    assert read.of("e")[0].response_id == "id-1"


@pytest.mark.parametrize("backwards", [False, True])
def test_events_of_a_session_in_the_ledger_do_not_count(store, backwards):
    store.row("e", total_in=30, nano=10**9)
    store.events("e", call(0, 10, "id-1"), shutdown(2, 30, 10**9))
    read = store.read(backwards=backwards)
    assert (total(read.of("e"), "input_tokens"), read.skipped["in_ledger"]) == (30, 1)


def test_a_call_that_was_in_the_events_before_it_was_in_the_ledger_counts_once(store):
    store.events("e", call(0, 10, "id-1", nano=10**9))
    read = store.read()
    assert (total(read.of("e"), "input_tokens"), dollars(read.of("e"))) == (10, 0.01)
    store.row("e", total_in=10, nano=10**9)
    store.events("e", call(0, 10, "id-1", nano=10**9), said(1, 1))
    for _ in range(2):
        for source in READER.sources(store.home, {}):
            read.take(READER, source)
        assert (total(read.of("e"), "input_tokens"), dollars(read.of("e")), len(read.of("e"))) == (10, 0.01, 1)


def test_events_stay_out_once_the_ledger_had_the_session(store):
    store.row("e", total_in=30)
    path = store.events("e", shutdown(2, 30))
    read = store.read()
    change(store.database, "DELETE FROM assistant_usage_events")
    path.write_text(path.read_text() + "\n")
    for source in READER.sources(store.home, {}):
        read.take(READER, source)
    assert total(read.of("e"), "input_tokens") == 30


def test_a_forks_copies_of_calls_that_the_ledger_has_do_not_count(store):
    store.row("e", total_in=30)
    store.events("fork", call(0, 30, "id-1", source="e"), call(9, 7, "id-9", source="fork"))
    read = store.read()
    assert total(read.of("fork"), "input_tokens") == 7


def test_a_forks_copies_stay_with_the_ledger_that_had_them_when_that_is_deleted(store):
    store.row("e", total_in=30)
    store.events("fork", call(0, 30, "id-1", source="e"), call(9, 7, "id-9", source="fork"))
    read = store.read()
    for path in store.database.parent.glob("session-store.db*"):
        path.unlink()
    store.events("fork", *(call(0, 30, "id-1", source="e"), call(9, 7, "id-9", source="fork")), said(10, 1))
    for _ in range(2):
        for source in READER.sources(store.home, {}):
            read.take(READER, source)
        assert total(read.of("fork"), "input_tokens") == 7


def test_a_fork_that_has_nothing_but_copies_has_no_total_of_its_own(store):
    store.row("e", total_in=30)
    store.events("fork", call(0, 30, "id-1", source="e"), shutdown(2, 30))
    assert store.read().of("fork") == []


LATER = "2026-08-14T08:00:05.000Z"


@pytest.mark.parametrize("backwards", [False, True])
def test_what_a_session_spent_before_there_was_a_ledger_counts_beside_its_rows(store, backwards):
    """Builds without a ledger leave totals; a newer one goes on with the session, in rows and then in a total."""
    store.events("e", shutdown(0, 100, 10**9), shutdown(5, 250, 3 * 10**9))
    read = store.read()
    store.row("e", total_in=40, nano=10**9, at=LATER)
    late = shutdown(9, 290, 4 * 10**9) | {"timestamp": "2026-08-14T09:00:00.000Z"}
    store.events("e", shutdown(0, 100, 10**9), shutdown(5, 250, 3 * 10**9), late)
    for source in READER.sources(store.home, {}):
        read.take(READER, source)
    for seen in (read, store.read(backwards=backwards)):
        assert (total(seen.of("e"), "input_tokens"), dollars(seen.of("e"))) == (290, 0.04)


def test_a_total_of_a_session_is_taken_back_where_the_ledger_gets_its_calls(store):
    store.events("e", shutdown(5, 250))
    read = store.read()
    store.row("e", total_in=250, at="2026-08-13 11:04:00")
    store.events("e", shutdown(5, 250), said(6, 1))
    for _ in range(2):
        for source in READER.sources(store.home, {}):
            read.take(READER, source)
        assert total(read.of("e"), "input_tokens") == 250


def test_a_total_of_which_the_ledger_gets_the_later_part_is_left_with_the_earlier(store):
    late = shutdown(9, 290) | {"timestamp": "2026-08-14T09:00:00.000Z"}
    store.events("e", shutdown(5, 250), late)
    read = store.read()
    assert total(read.of("e"), "input_tokens") == 290
    store.row("e", total_in=40, at=LATER)
    store.events("e", shutdown(5, 250), late, said(10, 1))
    for _ in range(2):
        for source in READER.sources(store.home, {}):
            read.take(READER, source)
        assert total(read.of("e"), "input_tokens") == total(store.read().of("e"), "input_tokens") == 290


def test_calls_in_the_events_before_the_first_row_are_left_to_the_ledger(store):
    store.row("e", total_in=30, at=LATER)
    store.events("e", call(0, 10, "id-1"), shutdown(2, 10))
    assert total(store.read().of("e"), "input_tokens") == 30


def test_a_broken_ledger_is_an_error_of_its_own_and_events_count(store):
    store.events("e", shutdown(2, 30))
    for path in store.database.parent.glob("session-store.db*"):
        path.unlink()
    store.database.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    ledger, events = READER.sources(store.home, {})
    with pytest.raises(SourceError):
        list(READER.read(ledger, None))
    assert next(READER.read(events, None)).records


def test_a_session_of_before_each_had_a_folder_counts_once_when_it_is_given_one(store):
    """``session-state/<session>.jsonl`` until sessions got folders; one that is resumed moves into its folder."""
    flat = write(store.home / ".copilot/session-state/e.jsonl", shutdown(0, 100))
    write(store.home / ".copilot/session-state/in-ledger.jsonl", shutdown(0, 7))
    store.row("in-ledger", total_in=7)
    read = store.read()
    assert {name: total(read.of(name), "input_tokens") for name in read.sessions} == {"e": 100, "in-ledger": 7}
    store.events("e", shutdown(0, 100), shutdown(5, 250))
    for left in (True, False):
        flat.unlink(missing_ok=left)
        for source in READER.sources(store.home, {}):
            read.take(READER, source)
        assert total(read.of("e"), "input_tokens") == total(store.read().of("e"), "input_tokens") == 250
        if left:
            write(flat, shutdown(0, 100))


def test_a_damaged_line_costs_only_itself(store):
    path = store.events("e", call(0, 10, "id-1"), call(1, 20, "id-2"))
    first, second = path.read_bytes().splitlines()
    path.write_bytes(first[:-30] + b"\n" + second + b"\n" + first[:40])
    read = store.read()
    assert total(read.of("e"), "input_tokens") == 20
    assert read.skipped == {"bad_json": 1}
