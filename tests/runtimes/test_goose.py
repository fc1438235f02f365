"""Goose: running totals and ledger are alternatives, through every upgrade; only a reported charge is one."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.runtimes import SourceError
from collector.runtimes.goose import READER
from tests.runtimes.databases import change
from tests.runtimes.transcripts import HERE, Read, dollars, read_home, total, write

DDL = [
    line for line in (HERE / "goose" / "schema.sql").read_text().splitlines() if line.startswith(("PRAGMA", "CREATE"))
]


class Store:
    """A home with Goose's database."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.database = home / ".local/share/goose/sessions/sessions.db"
        self.database.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.database)) as connection:
            connection.executescript("\n".join(DDL))

    def session(
        self, name="20260815_1", fresh=None, output=None, read=0, cost=None, provider="acme", at="2026-08-15 08:00:00"
    ):
        change(
            self.database,
            "INSERT OR REPLACE INTO sessions (id, working_dir, created_at, updated_at, provider_name,"
            " model_config_json, accumulated_input_tokens, accumulated_output_tokens, accumulated_cache_read_tokens,"
            " accumulated_cost)"
            " VALUES (?,'/d',?,?,?,'{\"model_name\":\"m-1\"}',?,?,?,?)",
            parameters=(name, at, at, provider, fresh, output, read, cost),
        )

    def call(
        self, fresh=100, output=10, read=0, cost=0.01, source="estimated", name="20260815_1", at=1786780820, model="m-1"
    ):
        change(
            self.database,
            "INSERT INTO usage_ledger (session_id, created_timestamp, model, input_tokens, output_tokens,"
            " cache_read_tokens, cost, cost_source) VALUES (?,?,?,?,?,?,?,?)",
            parameters=(name, at, model, fresh, output, read, cost, source),
        )

    def read(self) -> Read:
        return read_home(READER, self.home)

    def again(self, read: Read) -> None:
        read.take(READER, next(iter(READER.sources(self.home, {}))))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home")


def test_an_upgrade_that_carries_forward_counts_the_old_part_once(store):
    store.session(fresh=1000, output=100, cost=0.5)
    read = store.read()
    assert total(read.records.values(), "input_tokens") == 1000
    store.call(1000, 100, cost=0.5, source="carried_forward", model=None)
    store.call(200, 20, cost=0.1)
    store.session(fresh=1200, output=120, cost=0.6)
    store.again(read)
    assert (total(read.records.values(), "input_tokens"), dollars(read.records.values())) == (1200, pytest.approx(0.6))
    assert read.records.keys() == store.read().records.keys()


def test_the_larger_of_total_and_ledger_counts(store):
    store.session(fresh=150, output=15)
    store.call()
    assert total(store.read().records.values(), "input_tokens") == 150
    store.session(fresh=70, output=7)
    assert total(store.read().records.values(), "input_tokens") == 100


def test_a_ledger_that_catches_up_takes_the_rest_back(store):
    store.session(fresh=150, output=15)
    store.call()
    read = store.read()
    store.call(50, 5)
    store.again(read)
    assert total(read.records.values(), "input_tokens") == 150


@pytest.mark.parametrize(
    ("source", "cost", "pico", "basis", "caveat"),
    [
        ("provider_reported", 0.25, 25 * 10**10, "billed", None),
        ("provider_reported", 0, 0, "billed", None),
        ("estimated", 0.25, 25 * 10**10, "runtime_price", "vendor_estimate"),
        ("estimated", 0, None, None, None),
        (None, None, None, None, None),
    ],
)
def test_only_a_reported_charge_was_billed_and_only_it_can_be_zero(store, source, cost, pico, basis, caveat):
    store.session(fresh=100, output=10)
    store.call(cost=cost, source=source)
    (record,) = store.read().records.values()
    assert (record.vendor_pico, record.vendor_basis, record.caveat) == (pico, basis, caveat)


@pytest.mark.parametrize(
    ("host", "local"), [(None, True), ("localhost:11434", True), ("http://gpu.example.com", False)]
)
def test_ollama_is_free_where_it_runs_here(store, host, local):
    if host:
        config = store.home / ".config/goose/config.yaml"
        config.parent.mkdir(parents=True)
        config.write_text(f"GOOSE_PROVIDER: ollama\nOLLAMA_HOST: {host}\n")
    store.session(fresh=100, output=10, provider="ollama")
    store.call(cost=None, source=None)
    (record,) = store.read().records.values()
    assert (record.local, record.vendor_pico) == (local, None)


def test_input_includes_the_cache_and_times_are_utc_seconds_or_milliseconds(store):
    store.session(fresh=200, output=20, read=150)
    store.call(read=80, at=1786780820)
    store.call(read=70, at=1786780821500)
    first, second = store.read().records.values()
    assert (first.tokens.input_tokens, first.tokens.cache_read_tokens) == (20, 80)
    assert (first.ts, second.ts, first.owner) == (1786780820, 1786780821.5, 1786780800)


def test_the_same_session_id_on_another_day_is_another_session(store, tmp_path):
    store.session(fresh=100, output=10)
    other = Store(tmp_path / "other")
    other.session(fresh=100, output=10, at="2026-08-15 09:00:00")
    assert store.read().records.keys().isdisjoint(other.read().records)


def test_a_path_root_is_read_only_if_it_is_absolute(store):
    store.session(fresh=100, output=10)
    assert not read_home(READER, store.home, {"GOOSE_PATH_ROOT": "/nowhere"}).records
    assert read_home(READER, store.home, {"GOOSE_PATH_ROOT": "relative"}).records


def test_a_database_without_sessions_is_a_source_error(store):
    change(store.database, "DROP TABLE sessions")
    with pytest.raises(SourceError, match="no sessions"):
        store.read()


def test_an_imported_session_counts_what_it_used_itself(store):
    def said(name, at):
        change(
            store.database,
            "INSERT INTO messages (session_id, role, content_json, created_timestamp) VALUES (?,'user','[]',?)",
            parameters=(name, at),
        )

    store.session("20260815_1", 100, 10, cost=0.01)
    store.call(name="20260815_1", at=1786780820)
    said("20260815_1", 1786780810)
    # Imported an hour later: an export of the first, and a transcript of another runtime; the first of them goes on.
    store.session("20260815_2", 103, 12, cost=0.02, at="2026-08-15 09:00:00")
    said("20260815_2", 1786780810)
    store.call(100, 10, cost=0.01, source="carried_forward", name="20260815_2", at=1786784500, model=None)
    store.call(3, 2, name="20260815_2", at=1786784500)
    store.session("20260815_3", 5000, 700, provider=None, at="2026-08-15 09:00:00")
    said("20260815_3", 1786700000)
    read = store.read()
    sums = [total(read.of(f"20260815_{number}"), "input_tokens") for number in (1, 2, 3)]
    assert sums == [100, 3, None]
    assert read.skipped["copy"] == 2


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_upgrade_at_any_moment_ends_at_the_same_numbers(data, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("home") / "home")
    read, spent, upgraded = Read(), 0, False
    for number in range(data.draw(st.integers(1, 6))):
        if not upgraded and spent and data.draw(st.booleans()):
            upgraded = True
            store.call(spent, number, source="carried_forward", model=None, cost=None)
        spent += 100 + number
        if upgraded or not number:
            upgraded = True
            store.call(100 + number, 1, at=1786780820 + number)
        store.session(fresh=spent, output=number + 1)
        if data.draw(st.booleans()):
            store.again(read)
    store.again(read)
    assert total(read.records.values(), "input_tokens") == spent
    assert read.facts() == store.read().facts()


def legacy(home, session, fresh, output=7, **more):
    """A session as 1.9 and older versions keep it."""
    totals = {"description": "d", "message_count": 2, "accumulated_input_tokens": fresh} | more
    messages = [{"role": "user", "created": 1_750_000_000}, {"role": "assistant", "created": 1_750_000_060}]
    path = home / ".local/share/goose/sessions" / f"{session}.jsonl"
    return write(path, totals | {"accumulated_output_tokens": output}, *messages)


def test_a_session_of_before_the_database_counts_by_its_totals_until_the_database_has_it(tmp_path):
    legacy(tmp_path, "20250615_150640", 1000)
    legacy(tmp_path, "unused", None, None)
    read = read_home(READER, tmp_path)
    legacy(tmp_path, "20250615_150640", 3000)
    for source in READER.sources(tmp_path, {}):
        read.take(READER, source)
    (record,) = read.of("20250615_150640")
    assert (record.tokens.input_tokens, record.tokens.output_tokens, record.model) == (3000, 7, None)
    assert (record.ts, record.owner) == (1_750_000_060, 1_750_000_000)
    store = Store(tmp_path)
    store.session("20250615_150640", fresh=3000, output=7, at="2025-06-15 15:06:40")
    for _ in range(2):
        for source in READER.sources(tmp_path, {}):
            read.take(READER, source)
        assert read.facts() == read_home(READER, tmp_path).facts()
        assert total(read.records.values(), "input_tokens") == 3000


@pytest.mark.parametrize("text", ["", "{}\n", "[]\n{}\n", '{"message_count": 1}\n', '{"role": "user", "created": 1}\n'])
def test_a_file_beside_the_sessions_that_is_none_gives_nothing(tmp_path, text):
    path = legacy(tmp_path, "x", 5)
    path.write_text(text)
    assert read_home(READER, tmp_path).records == {}


@pytest.mark.parametrize("session", ["x" * 255, "20250615_150640"])
def test_a_file_of_an_older_session_that_cannot_be_read_does_not_hide_the_database(tmp_path, session):
    if len(session) < 255:
        legacy(tmp_path, "other", 1000).with_name(f"{session}.jsonl").symlink_to("other.jsonl")
    store = Store(tmp_path)
    store.session(session, fresh=3000, output=7)
    read = Read()
    read.take(READER, next(iter(READER.sources(tmp_path, {}))))
    assert total(read.of(session), "input_tokens") == 3000
