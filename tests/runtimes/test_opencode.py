"""opencode: forks, running calls, reverts, two storage forms, two meanings of output, zero that is and is not free."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.runtimes import SourceError
from collector.runtimes.opencode import READER
from tests.runtimes.databases import change
from tests.runtimes.transcripts import HERE, Read, read_home, total

START = 1_796_000_000_000
DDL = [
    line
    for line in (HERE / "opencode" / "schema.sql").read_text().splitlines()
    if line.startswith(("PRAGMA", "CREATE"))
]


def usage(fresh=100, output=20, reasoning=0, read=0, write=0, **more):
    return {"input": fresh, "output": output, "reasoning": reasoning, "cache": {"read": read, "write": write}, **more}


def message(at=0, tokens=None, cost=0.001, done=True, model="claude-sonnet-4-5", provider="anthropic", **more):
    """The JSON of an assistant message that began ``at`` ms after START."""
    time = {"created": START + at} | ({"completed": START + at + 500} if done else {})
    data = {"role": "assistant", "modelID": model, "providerID": provider, "agent": "build", "cost": cost}
    return data | {"tokens": tokens or usage(), "time": time} | more


class Store:
    """A home with an opencode database and JSON tree that a test writes as opencode would."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / ".local/share/opencode"
        self.root.mkdir(parents=True)
        self.database = self.root / "opencode.db"
        with closing(sqlite3.connect(self.database)) as connection:
            connection.executescript("\n".join(DDL))

    def session(self, name, at=0, version="1.18.33", parent=None, row=None, cost=0.0):
        row = row or usage(0, 0)
        numbers = (row["input"], row["output"], row["reasoning"], row["cache"]["read"], row["cache"]["write"])
        change(
            self.database,
            "INSERT OR REPLACE INTO session (id, project_id, parent_id, slug, directory, title, version, cost,"
            " tokens_input, tokens_output, tokens_reasoning, tokens_cache_read, tokens_cache_write, time_created,"
            " time_updated) VALUES (?,'p',?,'s','/d','t',?,?,?,?,?,?,?,?,?)",
            parameters=(name, parent, version, cost, *numbers, START + at, START + at + 9000),
        )

    def message(self, name, session, data):
        change(
            self.database,
            "INSERT OR REPLACE INTO message VALUES (?,?,0,0,?)",
            parameters=(name, session, data if isinstance(data, str) else json.dumps(data)),
        )

    def part(self, name, of, session, data):
        change(self.database, "INSERT INTO part VALUES (?,?,?,0,0,?)", parameters=(name, of, session, json.dumps(data)))

    def tree(self, session, version, **messages):
        folder = self.root / "storage/message" / session
        folder.mkdir(parents=True)
        head = self.root / "storage/session/p" / f"{session}.json"
        head.parent.mkdir(parents=True, exist_ok=True)
        head.write_text(
            json.dumps({"id": session, "version": version, "time": {"created": START, "updated": START + 1}})
        )
        for name, data in messages.items():
            (folder / f"{name}.json").write_text(json.dumps(data | {"id": name, "sessionID": session}))

    def config(self, text):
        path = self.home / ".config/opencode/opencode.jsonc"
        path.parent.mkdir(parents=True)
        path.write_text(text)

    def read(self, **how) -> Read:
        return read_home(READER, self.home, **how)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home")


@pytest.mark.parametrize("backwards", [False, True])
def test_a_fork_counts_only_what_it_added_even_where_it_is_read_first(store, backwards):
    store.session("b_source", at=0)
    store.session("a_fork", at=5000)
    store.message("m1", "b_source", message(at=10, tokens=usage(100)))
    store.message("m2", "a_fork", message(at=10, tokens=usage(100)))
    store.message("m3", "a_fork", message(at=6000, tokens=usage(7)))
    read = store.read(backwards=backwards)
    assert total(read.of("b_source"), "input_tokens") == 100
    assert total(read.of("a_fork"), "input_tokens") == 7


def test_a_fork_whose_source_is_gone_holds_the_copies(store):
    store.session("fork", at=5000)
    store.message("m2", "fork", message(at=10, tokens=usage(100)))
    assert total(store.read().of("fork"), "input_tokens") == 100


def test_parallel_calls_of_the_same_millisecond_are_two_calls(store):
    for number, name in enumerate(("child1", "child2")):
        store.session(name, at=number, parent="p")
        store.message(f"m{number}", name, message(at=50, tokens=usage(100 + number)))
    read = store.read()
    assert [total(read.of(name), "input_tokens") for name in ("child1", "child2")] == [100, 101]


def test_a_running_call_is_replaced_when_it_ends(store):
    store.session("s")
    read = Read()
    for tokens, done in ((usage(0, 0), False), (usage(0, 0, 5), False), (usage(100, 20, 9), True)):
        store.message("m", "s", message(tokens=tokens, done=done))
        (source,) = READER.sources(store.home, {})
        read.take(READER, source)
    (record,) = read.of("s")
    assert (record.tokens.input_tokens, record.tokens.output_tokens) == (100, 29)


def test_a_call_cut_off_before_its_message_was_written_counts_by_its_steps(store):
    store.session("s", row=usage(100, 20), cost=0.01)
    store.message("m", "s", message(tokens=usage(0, 0), cost=0, done=False))
    store.part("p", "m", "s", {"type": "step-finish", "cost": 0.01, "tokens": usage(100, 20)})
    (record,) = store.read().of("s")
    assert (record.tokens.input_tokens, record.vendor_pico, record.grain) == (100, 10**10, "call")


def test_what_the_session_row_has_beyond_its_messages_is_one_more_record(store):
    store.session("s", row=usage(150, 30, 4, 10, 2), cost=0.003)
    store.message("m", "s", message(tokens=usage(100, 20)))
    read = store.read()
    assert [total(read.of("s"), name) for name in ("input_tokens", "output_tokens", "cache_read_tokens")] == [
        150,
        34,
        10,
    ]
    rest = read.records["rest:s"]
    assert (rest.grain, rest.vendor_pico, rest.caveat) == ("session", 2 * 10**9, "cumulative_rest")
    store.message("n", "s", message(at=60, tokens=usage(50, 10, 4, 10, 2)))
    read.take(READER, next(iter(READER.sources(store.home, {}))))
    assert total(read.of("s"), "input_tokens") == 150
    assert "rest:s" not in read.records


def test_a_reverted_message_stays_counted(store):
    store.session("s", row=usage(200, 40), cost=0.002)
    store.message("m1", "s", message(at=10))
    store.message("m2", "s", message(at=20))
    read = store.read()
    change(store.database, "DELETE FROM message WHERE id = 'm2'")
    store.session("s", row=usage(100, 20), cost=0.001)
    read.take(READER, next(iter(READER.sources(store.home, {}))))
    assert total(read.of("s"), "input_tokens") == 200


@pytest.mark.parametrize(
    ("version", "tokens", "output"),
    [
        ("1.0.185", usage(10, 60, 9), 60),
        ("1.3.15", usage(10, 60, 9), 60),
        ("1.3.16", usage(10, 51, 9), 60),
        ("1.0.185", usage(10, 51, 9, total=70), 60),
        ("1.18.33", usage(10, 60, 9, total=70), 60),
        ("1.0.185", usage(10, 5, 9), 14),
        ("local", usage(10, 51, 9), 60),
    ],
)
def test_reasoning_is_inside_the_output_or_apart_by_version_and_total(store, version, tokens, output):
    store.session("s", version=version)
    store.message("m", "s", message(tokens=tokens))
    (record,) = store.read().of("s")
    assert (record.tokens.output_tokens, record.tokens.reasoning_tokens) == (output, 9)


def test_googles_thoughts_were_always_apart(store):
    store.session("s", version="1.0.185")
    store.message("m", "s", message(tokens=usage(10, 51, 9), provider="google", model="gemini-2.5-pro"))
    assert total(store.read().of("s"), "output_tokens") == 60


def test_a_price_that_charged_reasoning_twice_says_it_is_an_estimate(store):
    store.session("s", version="1.0.185")
    store.message("m", "s", message(tokens=usage(10, 60, 9)))
    store.message("n", "s", message(at=5, tokens=usage(10, 60, 0)))
    assert [record.caveat for record in store.read().of("s")] == ["vendor_estimate", None]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_message_in_both_forms_is_one_record_and_the_database_decides(store, backwards):
    store.session("s", version="1.18.33")
    store.message("m", "s", message(tokens=usage(100, 50, 9)))
    store.tree("s", "1.0.185", m=message(tokens=usage(100, 50, 9)), only_here=message(at=70, tokens=usage(30, 3)))
    read = store.read(backwards=backwards)
    assert (total(read.of("s"), "input_tokens"), total(read.of("s"), "output_tokens")) == (130, 62)
    assert read.sessions["s"].ended_ts == (START + 9000) / 1000


def test_the_steps_of_a_message_of_the_first_versions_are_summed(store):
    store.tree("s", "0.9.0", m=message(tokens=usage(30, 3), cost=0.02))
    folder = store.root / "storage/part/m"
    folder.mkdir(parents=True)
    for number in (70, 30):
        step = {"type": "step-finish", "cost": 0.01, "tokens": usage(number, 3)}
        (folder / f"p{number}.json").write_text(json.dumps(step))
    (folder / "text.json").write_text(json.dumps({"type": "text", "text": "x" * 9000}))
    (record,) = store.read().of("s")
    assert (record.tokens.input_tokens, record.tokens.output_tokens, record.vendor_pico) == (100, 6, 2 * 10**10)


CONFIG = """{ // where our models run
  "provider": { "box": {"options": {"baseURL": "http://127.0.0.1:8080/v1"}},
    "ollama": {"options": {"baseURL": "%s"}}, /* and a gateway */
    "anthropic": {"options": {"baseURL": "http://localhost:4141/anthropic"}}, },
}"""


@pytest.mark.parametrize(
    ("provider", "model", "url", "pico"),
    [
        ("ollama", "qwen3:8b", "http://localhost:11434/v1", 0),
        ("ollama", "qwen3:8b", "https://gpu.example.com/v1", None),
        ("ollama", "kimi-k2:1t-cloud", "http://localhost:11434/v1", None),
        ("lmstudio", "qwen3-8b", "http://localhost:11434/v1", 0),
        ("box", "qwen3-8b", "http://localhost:11434/v1", 0),
        ("box", "gpt-5", "http://localhost:11434/v1", None),
        ("box", "gpt-oss:20b", "http://localhost:11434/v1", 0),
        ("anthropic", "claude-sonnet-4-5", "http://localhost:11434/v1", None),
        ("elsewhere", "qwen3-8b", "http://localhost:11434/v1", None),
    ],
)
def test_a_zero_is_free_only_with_evidence_of_a_local_provider(store, provider, model, url, pico):
    store.config(CONFIG % url)
    store.session("s")
    store.message("m", "s", message(cost=0, provider=provider, model=model))
    (record,) = store.read().of("s")
    assert (record.vendor_pico, record.local) == (pico, pico == 0)


def test_failed_and_empty_messages_are_skipped_and_broken_ones_cost_only_themselves(store):
    store.session("s")
    store.message("m1", "s", message(tokens=usage(0, 0), error={"name": "APIError"}))
    store.message("m2", "s", "{half of a mess")
    store.message("m3", "s", message(at=5, tokens=usage(-4, 20)))
    store.message("m4", "nowhere", message())
    store.message("m5", "s", json.dumps({"role": "assistant", "tokens": "many", "time": [], "cost": {}}))
    read = store.read()
    assert total(read.records.values(), "output_tokens") == 20
    assert read.skipped == {"no_usage": 2, "bad_json": 1}


def test_a_class_that_is_not_reported_is_unknown_and_not_zero(store):
    store.session("s")
    store.message("m", "s", message(tokens={"input": 5, "output": 2}))
    (record,) = store.read().of("s")
    assert (record.tokens.cache_read_tokens, record.tokens.reasoning_tokens) == (None, None)
    assert (record.tokens.input_tokens, record.tokens.output_tokens) == (5, 2)


def test_a_database_of_a_release_before_the_totals_is_read(store):
    for column in ("cost", "tokens_input", "tokens_output", "tokens_reasoning", "tokens_cache_read", "model"):
        change(store.database, f"ALTER TABLE session DROP COLUMN {column}")
    change(store.database, "INSERT INTO session VALUES ('s','p',NULL,'s','/d','t','1.1.0',NULL,0,1,2,NULL,NULL)")
    store.message("m", "s", message())
    assert total(store.read().of("s"), "input_tokens") == 100


def test_a_database_that_is_being_made_is_a_source_error_and_the_tree_is_read_all_the_same(store):
    change(store.database, "DROP TABLE message")
    store.tree("old", "1.0.185", m=message())
    database, tree = READER.sources(store.home, {})
    with pytest.raises(SourceError, match="no sessions and messages"):
        list(READER.read(database, None))
    assert next(READER.read(tree, None)).records


def test_every_channel_has_its_database_and_a_variable_names_another(store):
    store.session("s")
    store.message("m", "s", message())
    store.database.rename(store.root / "opencode-dev.db")
    assert store.read().of("s")
    (store.root / "opencode-dev.db").rename(store.home / "mine.db")
    assert not store.read().records
    assert read_home(READER, store.home, {"OPENCODE_DB": str(store.home / "mine.db")}).of("s")


SECOND = """CREATE TABLE IF NOT EXISTS session_message (id TEXT PRIMARY KEY, session_id TEXT, type TEXT, seq INTEGER,
    time_created INTEGER, time_updated INTEGER, data TEXT)"""


def in_second(store, name, session, data, kind="assistant"):
    """A message as version 2 keeps it: its kind in a column, provider and model together."""
    content = {key: value for key, value in data.items() if key not in ("role", "modelID", "providerID")}
    content["model"] = {"id": data["modelID"], "providerID": data["providerID"]}
    change(store.database, SECOND)
    change(
        store.database,
        "INSERT OR REPLACE INTO session_message VALUES (?,?,?,0,?,0,?)",
        parameters=(name, session, kind, data["time"]["created"], json.dumps(content)),
    )


def test_messages_of_version_2_are_calls(store):
    store.session("s")
    in_second(store, "m1", "s", message(tokens=usage(100, 20, 5), cost=0.5))
    in_second(store, "m2", "s", message(at=9, tokens=usage(7, 3), model="gpt-5", provider="openai"))
    in_second(store, "u", "s", message(at=5, tokens=usage(999, 999)), kind="user")
    one, two = sorted(store.read().of("s"), key=lambda record: record.ts)
    assert (one.tokens.output_tokens, one.vendor_pico, one.provider, one.model) == (
        25,
        5 * 10**11,
        "anthropic",
        "claude-sonnet-4-5",
    )
    assert (two.tokens.input_tokens, two.model) == (7, "gpt-5")


def test_what_version_2_took_over_from_version_1_counts_once(store):
    store.session("s", row=usage(150, 30), cost=0.001)
    store.message("m", "s", message())
    in_second(store, "other-id", "s", message())
    read = store.read()
    assert total(read.of("s"), "input_tokens") == 150  # the message, and what the row has beyond it
    assert read.skipped["copy"] == 1
    in_second(store, "m2", "s", message(at=9, tokens=usage(50, 10)))
    assert total(store.read().of("s"), "input_tokens") == 150


def test_a_fork_of_version_2_names_its_source_and_sums_up_from_0(store):
    change(store.database, "ALTER TABLE session ADD COLUMN fork_session_id TEXT")
    store.session("s", row=usage(100, 20), cost=0.001)
    in_second(store, "m", "s", message())
    store.session("fork", at=5000, row=usage(70, 9), cost=0.002)
    change(store.database, "UPDATE session SET fork_session_id = 's' WHERE id = 'fork'")
    in_second(store, "evt_1", "fork", message())
    in_second(store, "own", "fork", message(at=6000, tokens=usage(40, 9)))
    read = store.read()
    assert (total(read.of("s"), "input_tokens"), total(read.of("fork"), "input_tokens")) == (100, 70)
    assert read.sessions["fork"].parent_session_id == "s"


def test_what_version_2_reverted_is_counted_once_though_the_session_row_keeps_it(store):
    store.session("s", row=usage(200, 40), cost=0.002)
    for name, at in (("m1", 10), ("m2", 20)):
        in_second(store, name, "s", message(at=at))
    read = store.read()

    def so_far(fresh):
        store.session("s", row=usage(fresh, fresh // 5), cost=fresh / 10**5)
        read.take(READER, next(iter(READER.sources(store.home, {}))))
        return total(read.of("s"), "input_tokens")

    change(store.database, "DELETE FROM session_message WHERE id = 'm2'")
    assert so_far(200) == 200
    in_second(store, "m3", "s", message(at=30))
    assert so_far(300) == 300
    assert so_far(350) == 350  # a summary, which only the row tells
    change(store.database, "DELETE FROM session_message")
    assert so_far(350) == 350
    assert total(store.read().of("s"), "input_tokens") == 350


def test_a_step_that_was_tried_again_under_its_message_counts_both_tries(store):
    store.session("s", row=usage(90, 9), cost=0.002)
    in_second(store, "m", "s", message(tokens=usage(90, 9)))
    read = store.read()
    in_second(
        store,
        "m",
        "s",
        message(tokens=usage(70, 20), cost=0.002) | {"time": {"created": START, "completed": START + 900}},
    )
    store.session("s", row=usage(160, 29), cost=0.003)
    read.take(READER, next(iter(READER.sources(store.home, {}))))
    assert [total(read.of("s"), name) for name in ("input_tokens", "output_tokens")] == [160, 29]


def test_output_of_version_2_excludes_reasoning_in_an_older_session_too(store):
    store.session("s", version="1.0.185")
    store.message("m", "s", message(tokens=usage(10, 60, 9)))
    for name, at in (("copy", 0), ("own", 7)):
        in_second(store, name, "s", message(at=at, tokens=usage(10, 60, 9)))
    assert [record.tokens.output_tokens for record in store.read().of("s")] == [60, 69]


def to_second(store):
    """Sessions as 2.0.3 keeps them: in a table of their own; the one of before stays as it was."""
    change(store.database, "CREATE TABLE session_v2 AS SELECT * FROM session")
    change(store.database, "ALTER TABLE session_v2 ADD COLUMN fork_session_id TEXT")


def test_sessions_of_version_2_have_a_table_of_their_own(store):
    store.session("old", row=usage(100, 20), cost=0.001)
    store.message("m", "old", message())
    to_second(store)
    in_second(store, "other-id", "old", message())
    in_second(store, "m2", "old", message(at=9, tokens=usage(50, 10)))
    change(store.database, "UPDATE session_v2 SET tokens_input = 150, tokens_output = 30")
    change(
        store.database,
        """INSERT INTO session_v2 (id, project_id, slug, directory, title, version, time_created, time_updated, cost,
        tokens_input, tokens_output, fork_session_id) SELECT 'new', project_id, slug, directory, title, '2.0.8',
        time_created + 5000, time_updated + 9000, 0.002, 70, 9, 'old' FROM session_v2""",
    )
    in_second(store, "copy", "new", message())
    in_second(store, "own", "new", message(at=6000, tokens=usage(70, 9)))
    read = store.read()
    assert (total(read.of("old"), "input_tokens"), total(read.of("new"), "input_tokens")) == (150, 70)
    assert set(read.sessions) == {"old", "new"}
    assert read.sessions["new"].parent_session_id == "old"


def test_a_database_that_version_2_made_is_read(store):
    store.session("s")
    to_second(store)
    in_second(store, "m", "s", message())
    for table in ("part", "message", "session"):
        change(store.database, f"DROP TABLE {table}")
    assert total(store.read().of("s"), "input_tokens") == 100


def test_a_database_with_messages_of_version_2_alone_is_read(store):
    store.session("s")
    in_second(store, "m", "s", message())
    change(store.database, "DROP TABLE part")
    change(store.database, "DROP TABLE message")
    in_second(store, "torn", "s", message(at=3))
    change(store.database, "UPDATE session_message SET data = '{' WHERE id = 'torn'")
    assert total(store.read().of("s"), "input_tokens") == 100


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_moments_of_reading_end_at_the_same_numbers(data, tmp_path_factory):
    """Messages of two sessions and a fork are written step by step; passes fall anywhere between."""
    store = Store(tmp_path_factory.mktemp("home") / "home")
    store.session("one", at=0)
    store.session("two", at=100)
    steps = []
    for number in range(data.draw(st.integers(1, 4))):
        session = data.draw(st.sampled_from(["one", "two"]))
        # Calls of the two sessions may begin in the same millisecond, calls of one session do not.
        at = 7 * number if session == "one" else 7 * (3 - number)
        final = usage(100 + number, 20 + number, number)
        for tokens, done in ((usage(0, 0), False), (usage(100 + number, 0, 1), False), (final, True)):
            steps.append((f"m{number}", session, message(at=at, tokens=tokens, done=done)))
    read = Read()
    (source,) = READER.sources(store.home, {})
    for name, session, content in steps:
        store.message(name, session, content)
        if data.draw(st.booleans()):
            read.take(READER, source)
    store.session("fork", at=200)
    for name, _, content in steps[2::3]:
        store.message(f"copy-{name}", "fork", content)
    read.take(READER, source)
    assert not read.of("fork")
    assert total(read.records.values(), "input_tokens") == sum(c["tokens"]["input"] for _, _, c in steps[2::3])
    assert read.facts() == read_home(READER, store.home).facts()
