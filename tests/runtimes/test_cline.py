"""Cline: crashes, forks, teammates, the index, deleted requests, runs that are both captured and stored."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.runtimes.cline import EXTENSION, READER
from collector.stores import stores
from tests.runtimes.transcripts import Read, dollars, read_home, total, write

START = 1_796_000_000_000
MODEL = {"id": "acme-1", "provider": "acme"}


def iso(at: int) -> str:
    seconds, ms = divmod(START + at, 1000)
    with closing(sqlite3.connect(":memory:")) as connection:
        return (
            connection.execute(f"SELECT strftime('%Y-%m-%dT%H:%M:%S', {seconds}, 'unixepoch')").fetchone()[0]
            + f".{ms:03}Z"
        )


def counts(fresh=100, output=20, read=0, write=0, **more):
    return {"inputTokens": fresh, "outputTokens": output, "cacheReadTokens": read, "cacheWriteTokens": write} | more


def message(name, at, metrics=None, model=MODEL):
    return {"id": name, "role": "assistant", "ts": START + at, "modelInfo": model, "metrics": metrics or counts()}


class Store:
    """A home with Cline's stores that a test writes as Cline would: documents, whole."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data = home / ".cline/data"

    def session(self, name, messages=None, at=0, usage=None, fork=None, file=None, **more):
        folder = self.data / "sessions" / name
        folder.mkdir(parents=True, exist_ok=True)
        metadata = {"usage": usage, "totalCost": 0} if usage else {}
        metadata |= {"fork": {"forkedFromSessionId": fork}} if fork else {}
        manifest = {
            "session_id": name,
            "started_at": iso(at),
            "model": "acme-1",
            "provider": "acme",
            "metadata": metadata,
        }
        (folder / f"{name}.json").write_text(json.dumps(manifest | more))
        if messages is not None:
            self.messages(name, messages)

    def messages(self, name, messages, file=None, owner=None):
        document = {"version": 1, "sessionId": owner or name, "messages": messages}
        (self.data / "sessions" / name / f"{file or name}.messages.json").write_text(json.dumps(document))

    def index(self, *rows):
        path = self.data / "db/sessions.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS sessions (session_id TEXT PRIMARY KEY, started_at TEXT, ended_at TEXT,"
                " model TEXT, provider TEXT, parent_session_id TEXT, metadata_json TEXT)"
            )
            for name, parent, metadata in rows:
                connection.execute(
                    "INSERT OR REPLACE INTO sessions VALUES (?,?,?,'acme-1','acme',?,?)",
                    (name, iso(0), iso(9), parent, json.dumps(metadata)),
                )

    def task(self, name, *entries):
        path = self.home / ".config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks" / name / "ui_messages.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps(
                [{"ts": START + at, "type": "say", "say": say, "text": json.dumps(text)} for at, say, text in entries]
            )
        )

    def read(self, **how) -> Read:
        return read_home(READER, self.home, **how)

    def again(self, read: Read) -> None:
        for source in READER.sources(self.home, {}):
            read.take(READER, source)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home")


def test_input_includes_reads_and_writes_and_they_come_off_once(store):
    store.session("s", [message("m", 1, counts(1000, 20, 600, 300))])
    (record,) = store.read().of("s")
    assert (record.tokens.input_tokens, record.tokens.cache_read_tokens, record.tokens.cache_write_tokens) == (
        100,
        600,
        300,
    )
    assert record.tokens.reasoning_tokens is None


def test_a_crash_that_lost_the_total_leaves_the_messages(store):
    store.session("s", [message("m", 1), message("n", 2)], usage=counts(100, 20))
    assert total(store.read().of("s"), "input_tokens") == 200


def test_a_crash_that_lost_messages_leaves_the_total(store):
    store.session("s", [message("m", 1, counts(100, 20, cost=0.01))], usage=counts(250, 50, 50, totalCost=0.03))
    read = store.read()
    assert (total(read.of("s"), "input_tokens"), total(read.of("s"), "output_tokens")) == (200, 50)
    assert dollars(read.of("s")) == 0.03
    assert read.records["rest:s"].caveat == "cumulative_rest"
    store.messages("s", [message("m", 1, counts(100, 20, cost=0.01)), message("n", 2, counts(150, 30, 50, cost=0.02))])
    store.again(read)
    assert (total(read.of("s"), "input_tokens"), dollars(read.of("s"))) == (200, 0.03)


def test_a_session_without_messages_is_its_total(store):
    store.session("s", usage=counts(250, 50, totalCost=0.03))
    (record,) = store.read().of("s")
    assert (record.tokens.input_tokens, record.vendor_pico, record.caveat) == (250, 3 * 10**10, None)


def test_messages_that_vanish_stay_counted_once(store):
    store.session("s", [message("m", 1), message("n", 2)], usage=counts(200, 40))
    read = store.read()
    store.session("s", [message("n", 2), message("o", 3)], usage=counts(300, 60))
    store.again(read)
    assert total(read.of("s"), "input_tokens") == 300


@pytest.mark.parametrize("backwards", [False, True])
def test_a_fork_counts_what_it_added_and_never_its_seeded_total(store, backwards):
    store.session("2_source", [message("m", 1), message("n", 2)], usage=counts(200, 40))
    store.session("1_fork", [message("m", 1), message("o", 9)], at=5, usage=counts(300, 60), fork="2_source")
    read = store.read(backwards=backwards)
    assert total(read.of("2_source"), "input_tokens") == 200
    assert total(read.of("1_fork"), "input_tokens") == 100


@pytest.mark.parametrize("backwards", [False, True])
def test_a_fork_whose_manifest_is_its_sources_or_missing_is_later_by_its_id(store, backwards):
    first, fork, bare = (f"{START + at}_abcde" for at in (0, 5000, 6000))
    copied = [message("msg_1", 100)]
    store.session(first, copied)
    store.session(fork, [*copied, message("msg_2", 5100, counts(7))], fork=first)  # with the start of its source
    store.session(bare, [*copied, message("msg_3", 6100, counts(9))])
    (store.data / "sessions" / bare / f"{bare}.json").unlink()
    read = read_home(READER, store.home, backwards=backwards)
    assert [total(read.of(name), "input_tokens") for name in (first, fork, bare)] == [100, 7, 9]


def test_a_document_that_is_being_written_costs_nothing_but_this_pass(store):
    store.session("s", [message("m", 1)], usage=counts(100, 20))
    torn = store.data / "sessions/s/s.messages.json"
    whole = torn.read_text()
    torn.write_text(whole[:-9])
    read = store.read()
    assert not read.records
    assert read.skipped == {"bad_json": 1}
    torn.write_text(whole)
    store.again(read)
    assert total(read.of("s"), "input_tokens") == 100


def test_a_teammate_counts_with_the_lead_unless_it_has_a_session_of_its_own(store):
    store.session("lead", [message("m", 1)])
    store.messages("lead", [message("t", 2, counts(5, 1))], file="docs")
    assert total(store.read().of("lead"), "input_tokens") == 105
    store.session("child", [message("t", 2, counts(5, 1))], at=1)
    store.messages("lead", [message("t", 2, counts(5, 1))], file="docs", owner="child")
    read = store.read()
    assert (total(read.of("lead"), "input_tokens"), total(read.of("child"), "input_tokens")) == (100, 5)


def test_the_index_tells_parents_and_totals_of_sessions_without_a_folder(store):
    store.session("here", [message("m", 1)])
    store.index(
        ("here", None, {"usage": counts(100, 20)}),
        ("gone", "here", {"usage": counts(70, 7, totalCost=0.5)}),
        ("fork", None, {"usage": counts(900, 9), "fork": {"forkedFromSessionId": "gone"}}),
        ("empty", None, {"usage": counts(0, 0)}),
    )
    read = store.read()
    assert {record.session_id: record.tokens.input_tokens for record in read.records.values()} == {
        "here": 100,
        "gone": 70,
    }
    assert read.sessions["gone"].parent_session_id == "here"
    assert read.skipped["fork_without_messages"] == 1


def test_a_total_of_the_index_is_taken_back_once_the_folder_of_its_session_is_seen(store):
    usage = counts(1000, 20) | {"totalCost": 0.5}
    store.index(("s", None, {"usage": usage}))
    read = store.read()
    assert total(read.of("s"), "input_tokens") == 1000
    store.session("s", [message("m", 1, counts(1000, 20))], usage=usage)
    for _ in range(2):
        store.again(read)
        assert read.facts() == store.read().facts()
        assert [record.grain for record in read.of("s")] == ["call"]


@pytest.mark.parametrize("seen", [False, True])
def test_a_total_of_the_index_that_was_counted_as_its_folders_rest_is_taken_back(store, seen):
    usage = counts(1000, 20)
    store.index(("s", None, {"usage": usage}))
    (index,) = READER.sources(store.home, {})
    read = store.read()
    before = msgspec.structs.replace(read.latest.pop("index:s"), key="rest:s", revision=1020)
    read.keep(before)
    read.states = {index.path: {"folders": []}}
    if seen:
        store.session("s", [message("m", 1, counts(1000, 20))], usage=usage)
    for _ in range(2):
        store.again(read)
        assert total(read.of("s"), "input_tokens") == 1000


def test_a_session_whose_folder_was_removed_is_not_counted_again_from_the_index(store):
    store.session("s", [message("m", 1)])
    store.index(("s", None, {"usage": counts(100, 20)}))
    read = store.read()
    for path in (store.data / "sessions/s").iterdir():
        path.unlink()
    (store.data / "sessions/s").rmdir()
    store.again(read)
    assert total(read.of("s"), "input_tokens") == 100


@pytest.mark.parametrize(
    ("provider", "model", "cost", "pico", "basis", "local"),
    [
        ("openrouter", "a/b", 0.5, 5 * 10**11, "billed", False),
        ("openrouter", "a/b:free", 0, 0, "billed", False),
        ("anthropic", "claude-sonnet-4-5", 0.5, 5 * 10**11, "runtime_price", False),
        ("acme", "acme-1", 0, None, None, False),
        ("ollama", "qwen3:8b", 0, 0, "runtime_price", True),
        ("ollama", "qwen3:8b", None, None, None, True),
        ("box", "qwen3:8b", None, None, None, True),
        ("box", "gpt-5", None, None, None, False),
    ],
)
def test_a_zero_or_missing_cost_is_free_only_with_evidence(store, provider, model, cost, pico, basis, local):
    settings_file = store.data / "settings/providers.json"
    settings_file.parent.mkdir(parents=True)
    settings_file.write_text(json.dumps({"providers": {"box": {"settings": {"baseUrl": "http://localhost:1234/v1"}}}}))
    metrics = counts() if cost is None else counts(cost=cost)
    store.session("s", [message("m", 1, metrics, {"id": model, "provider": provider})])
    (record,) = store.read().of("s")
    assert (record.vendor_pico, record.vendor_basis, record.local) == (pico, basis, local)


def test_an_answer_whose_usage_the_provider_did_not_send_is_missing(store):
    """Cline 3.0 writes zeros for it."""
    store.session("s", [message("m", 1, counts(0, 0, cost=0)), message("n", 2)])
    assert [record.usage for record in store.read().of("s")] == ["missing", "reported"]


def request(fresh, output=2, cost=0.1):
    return {"tokensIn": fresh, "tokensOut": output, "cacheWrites": 3, "cacheReads": 4, "cost": cost}


def test_a_request_in_flight_gets_its_numbers_later(store):
    store.task("7", (1, "api_req_started", {"request": "x"}))
    read = store.read()
    assert not read.records
    store.task("7", (1, "api_req_started", request(10)))
    store.again(read)
    (record,) = read.of("vscode:7")
    assert (record.tokens.input_tokens, record.tokens.cache_read_tokens, record.tokens.cache_write_tokens) == (10, 4, 3)
    assert record.vendor_basis == "runtime_price"


@pytest.mark.parametrize(
    "editor", [".config/Cursor", ".cursor-server/data", ".config/Windsurf", ".local/share/code-server"]
)
def test_the_extension_counts_in_every_editor_that_takes_it(store, editor):
    store.task("7", (1, "api_req_started", request(10)))
    moved = store.home / editor
    moved.parent.mkdir(parents=True, exist_ok=True)
    (store.home / ".config/Code").rename(moved)
    assert total(store.read().records.values(), "input_tokens") == 10
    assert str((moved / EXTENSION).relative_to(store.home)) in {one.folder for one in stores(store.home, ["cline"])}


def test_half_a_character_in_one_message_does_not_hide_the_task(store):
    store.task("7", (1, "api_req_started", request(10)), (2, "text", "HALF"))
    (path,) = store.home.rglob("ui_messages.json")
    path.write_text(path.read_text().replace("HALF", r"\ud83d"))
    assert total(store.read().of("vscode:7"), "input_tokens") == 10


CLASSIC = str(START)


def resumed(store, identity, model, at=None):
    """A task of the extension that its newer generation went on with, as a session of the same name.

    The last answer of the task carries the sum of all of it, of a model of provider "unknown", if of any.
    """
    carried = {"id": identity, "role": "assistant", "metrics": counts(150, 10, 50, cost=0.5)}
    carried |= {"modelInfo": {"id": model, "provider": "unknown"}} if model else {}
    carried |= {"ts": START + at} if at else {}
    store.session(CLASSIC, [carried, message("m", 9, counts(1000, 20))], at=7, usage=counts(1150, 30, 50))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("model", ["acme-0", None])
def test_what_a_resumed_task_had_spent_before_stays_with_the_task(store, model, backwards):
    store.task(CLASSIC, (1, "api_req_started", {"tokensIn": 100, "tokensOut": 10, "cacheReads": 50, "cost": 0.5}))
    resumed(store, "n1", model)
    read = store.read(backwards=backwards)
    resumed(store, "n2", model, at=8)
    store.again(read)
    for seen in (read, store.read(backwards=backwards)):
        assert [total(seen.of(name), "input_tokens") for name in (f"vscode:{CLASSIC}", CLASSIC)] == [100, 1000]
        assert total(seen.of(CLASSIC), "output_tokens") == 20
    next(store.home.rglob("ui_messages.json")).unlink()
    resumed(store, "n3", model, at=8)
    store.again(read)
    assert total(read.records.values(), "input_tokens") == 1100


def test_what_a_resumed_task_had_spent_counts_for_the_session_where_the_task_is_not_seen(store):
    resumed(store, "n1", "acme-0")
    read = store.read()
    resumed(store, "n2", "acme-0", at=8)
    store.again(read)
    assert (total(read.of(CLASSIC), "input_tokens"), len(read.of(CLASSIC))) == (1100, 2)
    store.task(CLASSIC, (1, "api_req_started", {"tokensIn": 100, "tokensOut": 10, "cacheReads": 50, "cost": 0.5}))
    for _ in range(2):
        store.again(read)
        assert total(read.records.values(), "input_tokens") == 1100
        assert read.facts() == store.read().facts()


def test_deleted_requests_that_were_counted_are_not_counted_again(store):
    store.task("7", (1, "api_req_started", request(10)), (2, "api_req_started", request(20)))
    read = store.read()
    store.task("7", (1, "api_req_started", request(10)), (3, "deleted_api_reqs", request(20)))
    store.again(read)
    assert (total(read.of("vscode:7"), "input_tokens"), dollars(read.of("vscode:7"))) == (30, 0.2)


def test_deleted_requests_that_were_never_seen_count_by_their_sum(store):
    store.task("7", (1, "deleted_api_reqs", request(20)), (2, "subagent_usage", request(5)), (3, "text", "hello"))
    assert total(store.read().of("vscode:7"), "input_tokens") == 25


def stream(home: Path, *lines, name="run.ndjson"):
    return write(home / name, *lines)


def event(at, total_in):
    return {
        "ts": iso(at),
        "type": "agent_event",
        "event": {
            "type": "usage",
            "inputTokens": 1,
            "totalInputTokens": total_in,
            "totalOutputTokens": 5,
            "totalCost": 0,
        },
    }


def result(at, usage, **more):
    return {"ts": iso(at), "type": "run_result", "usage": usage, "model": MODEL, "text": "secret"} | more


def test_the_last_result_with_usage_is_the_run(store):
    aggregate = counts(100, 20, 30, totalCost=0.2)
    lines = event(1, 10), result(3, counts(60, 9)), result(5, counts(70, 9), aggregateUsage=aggregate), result(6, None)
    stream(store.home, *lines)
    (record,) = store.read().of("stream:run.ndjson")
    assert (record.tokens.input_tokens, record.tokens.output_tokens, record.vendor_pico) == (70, 20, 2 * 10**11)


def test_a_run_that_was_killed_counts_by_its_running_totals_until_its_result_comes(store):
    stream(store.home, event(1, 10), event(2, 40))
    read = store.read()
    (record,) = read.of("stream:run.ndjson")
    assert (record.tokens.input_tokens, record.usage, record.vendor_pico) == (40, "partial", None)
    stream(store.home, event(1, 10), event(2, 40), result(3, counts(40, 5)))
    store.again(read)
    (record,) = read.of("stream:run.ndjson")
    assert (record.usage, record.model) == ("reported", "acme-1")


@pytest.mark.parametrize("backwards", [False, True])
def test_a_captured_run_that_is_also_stored_counts_once(store, backwards):
    store.session("s", [message("m", 1000)], usage=counts(100, 20))
    stream(store.home, event(500, 100), result(1500, counts(100, 20)))
    stream(store.home, event(900_000, 100), result(901_500, counts(7, 1)), name="elsewhere.ndjson")
    read = store.read(backwards=backwards)
    assert total(read.records.values(), "input_tokens") == 107
    assert read.skipped["copy"] == 1


def test_a_captured_run_stays_with_the_store_when_its_session_is_deleted_there(store):
    store.session("s", [message("m", 1000)], usage=counts(100, 20))
    stream(store.home, event(500, 100), result(1500, counts(100, 20)))
    read = store.read()
    shutil.rmtree(store.data / "sessions/s")
    store.again(read)
    assert total(read.records.values(), "input_tokens") == 100
    stream(store.home, event(900_000, 100), result(901_500, counts(7, 1)))
    store.again(read)
    assert total(read.records.values(), "input_tokens") == 107


@pytest.mark.parametrize("backwards", [False, True])
def test_a_run_that_was_killed_and_is_stored_counts_once_by_the_counts_of_its_turns(store, backwards):
    store.session("s", [message("m", 1000, counts(100, 20, 60, 5))])
    turn = {**event(1001, 9000), "event": {**event(1001, 9000)["event"], **counts(100, 20, 60, 5)}}
    stream(store.home, event(500, 8000), turn)
    stream(store.home, event(900, 7), name="another.ndjson")
    read = store.read(backwards=backwards)
    assert total(read.records.values(), "input_tokens") == 100 - 60 - 5 + 7
    assert read.skipped["copy"] == 1


def test_a_run_that_was_counted_before_its_message_was_stored_is_taken_back(store):
    turn = {**event(1001, 100), "event": {**event(1001, 100)["event"], **counts(100, 5), "totalCost": 0.5}}
    stream(store.home, event(500, 0), turn)
    store.session("s", [])
    read = store.read()
    assert (total(read.of("stream:run.ndjson"), "input_tokens"), dollars(read.records.values())) == (100, 0.5)
    store.session("s", [message("m", 1000, counts(100, 5, cost=0.5))], usage=counts(100, 5, totalCost=0.5))
    stream(store.home, event(500, 0), turn, result(1600, counts(100, 5, totalCost=0.5)))
    for _ in range(2):
        store.again(read)
        assert (total(read.records.values(), "input_tokens"), dollars(read.records.values())) == (100, 0.5)
        assert (read.of("stream:run.ndjson"), "stream:run.ndjson" in read.sessions) == ([], False)


def test_a_run_that_was_killed_has_the_model_that_it_began_with(store):
    start = {"ts": iso(0), "type": "run_start", "providerId": "openrouter", "modelId": "acme/large"}
    stream(store.home, start, event(1, 10))
    (record,) = store.read().of("stream:run.ndjson")
    assert (record.model, record.provider, record.usage) == ("acme/large", "openrouter", "partial")


def test_the_file_of_another_program_is_no_run(store):
    stream(store.home, {"type": "result", "usage": counts()}, ["list"], "text", name="other.ndjson")
    assert not store.read().records


def test_folders_that_variables_name_are_read(tmp_path):
    elsewhere = Store(tmp_path / "a")
    elsewhere.session("s", [message("m", 1)])
    for variable, path in (
        ("CLINE_DIR", ".cline"),
        ("CLINE_DATA_DIR", ".cline/data"),
        ("CLINE_SESSION_DATA_DIR", ".cline/data/sessions"),
    ):
        assert read_home(READER, tmp_path / "b", {variable: str(tmp_path / "a" / path)}).of("s")
    assert not read_home(READER, tmp_path / "b").records


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_moments_of_reading_end_at_the_same_numbers(data, tmp_path_factory):
    """A session and its fork grow call by call; their totals are written after the messages or not at all."""
    store = Store(tmp_path_factory.mktemp("home") / "home")
    read, written, spent = Read(), {"source": [], "fork": []}, 0
    for number in range(data.draw(st.integers(1, 6))):
        name = data.draw(st.sampled_from(["source", "fork"]))
        if name == "fork" and not written["fork"]:
            written["fork"] = list(written["source"])
        written[name].append(message(f"msg_{number}", 10 + number, counts(100 + number, 5)))
        spent += 100 + number
        usage = counts(sum(m["metrics"]["inputTokens"] for m in written[name]), 5 * len(written[name]))
        behind = data.draw(st.booleans())
        store.session(
            name,
            written[name],
            at=name == "fork",
            usage=None if behind else usage,
            fork="source" if name == "fork" else None,
        )
        if data.draw(st.booleans()):
            store.again(read)
    store.again(read)
    assert total(read.records.values(), "input_tokens") == spent
    assert read.facts() == store.read(backwards=True).facts()


def test_a_class_that_is_not_reported_is_unknown_and_not_zero(store):
    store.session("s", [message("m", 1, {"inputTokens": 10, "outputTokens": 2})])
    store.task("7", (1, "api_req_started", {"tokensIn": 5, "tokensOut": 1}))
    for session in ("s", "vscode:7"):
        (record,) = store.read().of(session)
        assert (record.tokens.cache_read_tokens, record.tokens.cache_write_tokens) == (None, None)
