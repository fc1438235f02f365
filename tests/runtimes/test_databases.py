"""Every session of the fixtures and real stores of runtimes that keep databases, in every field, in any order."""

import importlib
import random
import re
import shutil
from pathlib import Path

import pytest

from collector.honesty import CAVEATS
from collector.record import Record, Session
from collector.runtimes import Facts
from tests.runtimes.databases import RUNTIMES, STORES, build, change, expected, reader, snapshot
from tests.runtimes.test_transcripts import FIELDS, epoch, same
from tests.runtimes.transcripts import HERE, Read, dollars, total


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    return {runtime: build(runtime, tmp_path_factory.mktemp(runtime)) for runtime in RUNTIMES}


def read(runtime: str, homes: list[Path], order=lambda sources: sources) -> Read:
    sources = [source for home in homes for source in reader(runtime).sources(home, {})]
    found = Read()
    for source in order(sources):
        found.take(reader(runtime), source)
    return found


# Cursor's captured runs are usage lines, not stores.
CAPTURED = "dddd0000-0000-4000-8000-00000000000"


def cases() -> list:
    return [
        pytest.param(runtime, session.removeprefix("old:"), entry, id=f"{runtime}-{session}")
        for runtime in RUNTIMES
        for session, entry in expected(HERE / runtime).items()
        if not session.startswith(CAPTURED)
    ]


def told_by(record: Record) -> Session:
    """The session of a captured run, which nothing but its record tells of."""
    assert record.session_id.startswith("stream:")
    return Session("cline", record.session_id, record.ts, record.ended_ts, record.model, record.model_source)


@pytest.mark.parametrize(("runtime", "session", "entry"), cases())
def test_a_fixture_session_matches_in_every_field(homes, runtime, session, entry):
    found = read(runtime, homes[runtime])
    records = found.of(session)
    for field, name in FIELDS.items():
        if field in entry:
            assert same(total(records, name), entry[field]), field
    assert dollars(records) == entry["vendor_cost_usd"]
    listed = found.sessions.get(session) or told_by(records[0])
    assert listed.model == entry["model"]
    assert {record.model for record in records} <= {*entry.get("models", [entry["model"]])}
    assert {record.model_source for record in records} | {listed.model_source} == {entry["model_source"]}
    ended = epoch(entry["ended_at"])
    assert (listed.started_ts, listed.ended_ts) == (epoch(entry["started_at"]), ended)
    assert listed.parent_session_id == entry.get("parent_session_id")
    if "acu" in entry:
        assert sum(record.acu_micro or 0 for record in records) == round(entry["acu"] * 10**6)


@pytest.mark.parametrize(("runtime", "session", "entry"), cases())
def test_a_fixture_sessions_caveats_fit_its_status(homes, runtime, session, entry):
    records = read(runtime, homes[runtime]).of(session)
    caveats = {record.caveat for record in records}
    assert caveats - {None} <= set(CAVEATS)
    if entry["cost_status"] == "exact":
        assert caveats <= {None}
    if entry["cost_status"] == "estimated":
        assert None not in caveats


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_no_other_session_has_records_and_no_order_of_reading_matters(homes, runtime):
    facts = read(runtime, homes[runtime]).facts()
    known = {session.removeprefix("old:") for session in expected(HERE / runtime)}
    assert {fact[0] for fact in facts.values()} <= known
    for seed in range(4):
        shuffled = read(runtime, homes[runtime], lambda s, seed=seed: random.Random(seed).sample(s, len(s)))
        assert shuffled.facts() == facts


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_second_pass_with_or_without_its_state_changes_nothing(homes, runtime):
    found = read(runtime, homes[runtime])
    records, sessions = dict(found.records), dict(found.sessions)
    for source in [source for home in homes[runtime] for source in reader(runtime).sources(home, {})]:
        found.take(reader(runtime), source)
        found.states.pop(source.path, None)
        found.take(reader(runtime), source)
    assert found.records == records
    assert found.sessions.keys() == sessions.keys()


@pytest.mark.parametrize("runtime", ["opencode", "copilot", "goose", "devin"])
def test_a_pass_over_a_database_gives_only_sessions_that_changed(homes, runtime, tmp_path):
    home = Path(shutil.copytree(homes[runtime][0], tmp_path / "home"))
    found = read(runtime, [home])
    source = next(s for s in reader(runtime).sources(home, {}) if s.path.suffix == ".db")
    batches = list(reader(runtime).read(source, found.states[source.path]))
    assert not [batch for batch in batches if batch.records or batch.sessions]
    table, column = {
        "opencode": ("session", "time_updated"),
        "copilot": ("sessions", "updated_at"),
        "goose": ("sessions", "updated_at"),
        "devin": ("sessions", "last_activity_at"),
    }[runtime]
    last = f"(SELECT max(rowid) FROM {table} WHERE rowid < 3)"
    change(source.path, f"UPDATE {table} SET {column} = {column} || '1' WHERE rowid = {last}")
    (batch,) = reader(runtime).read(source, found.states[source.path])
    assert len(batch.sessions) == 1
    assert {record.session_id for record in batch.records} <= {batch.sessions[0].session_id, "ses_paid01", "ses_fork01"}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_reading_leaves_no_trace(homes, runtime):
    before = [snapshot(home) for home in homes[runtime]]
    read(runtime, homes[runtime])
    assert [snapshot(home) for home in homes[runtime]] == before


TRAPS = [
    ("cline", "cost", 0.135, lambda s: not s.startswith(("vscode:", "stream:"))),
    ("cline", "tokens", 25750, lambda s: s == "1786348800000_a1b2c"),
    (
        "opencode",
        "cost",
        0.05615,
        lambda s: s in ("ses_paid01", "ses_child01", "ses_fork01", "ses_local01", "ses_unk01"),
    ),
    ("copilot", "cost", 0.121884, lambda s: s.endswith("1")),
    ("copilot", "cost", 0.00747, lambda s: s.endswith("4")),
    ("exo", "cost", 0.02786, lambda s: True),
    ("devin", "acu", 50_000, lambda s: s == "steady-otter"),
]


@pytest.mark.parametrize(("runtime", "what", "right", "which"), TRAPS)
def test_the_wrong_totals_of_naive_readers_are_not_ours(homes, runtime, what, right, which):
    records = [r for r in read(runtime, homes[runtime]).records.values() if which(r.session_id)]
    if what == "cost":
        assert dollars(records) == right
    elif what == "acu":
        assert sum(record.acu_micro or 0 for record in records) == right
    else:
        assert sum(record.tokens.total for record in records) == right


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    return {runtime: Path(shutil.copytree(HERE / "stores" / runtime / "home", folder / runtime)) for runtime in STORES}


def store_cases() -> list:
    return [
        pytest.param(runtime, session, entry, id=f"{runtime}-{session}")
        for runtime in STORES
        for session, entry in expected(HERE / "stores" / runtime).items()
    ]


@pytest.mark.parametrize(("runtime", "session", "entry"), store_cases())
def test_a_session_that_a_real_program_wrote_matches_what_was_sent(stores, runtime, session, entry):
    found = read(runtime, [stores[runtime]])
    records = found.of(session)
    assert len(records) == entry["calls"]
    for field, name in (FIELDS | {"input_uncached": "input_tokens"}).items():
        # Lifetimes of cache writes, and some reasoning, were sent but are stored nowhere.
        if entry.get(field) is not None and entry["store_says"].get(field) is not None:
            assert same(total(records, name), entry[field]), field
    assert sorted({record.model for record in records}) == (entry["model"] or [])
    listed = found.sessions[session]
    assert listed.started_ts == pytest.approx(epoch(entry["started_at"]), abs=1)
    assert listed.ended_ts == pytest.approx(epoch(entry["ended_at"]), abs=1.5)
    # The dollars of a fork's row hold its source's too.
    if session != "ses_dd294f0e6ffeMjz3Zsc0Ls3v2R":
        assert dollars(records) == (entry["vendor_cost_usd"] and pytest.approx(entry["vendor_cost_usd"], abs=1e-12))


def test_an_opencode_fork_and_a_sub_agent_of_a_real_store_keep_their_own_numbers(stores):
    found = read("opencode", [stores["opencode"]])
    (call,) = found.of("ses_dd294f0e6ffeMjz3Zsc0Ls3v2R")
    assert (call.tokens.input_tokens, call.vendor_pico) == (1528, 3_174_250_000)
    child = found.sessions["ses_dd29277d9ffe8XBTD51eGTmHJ1"]
    assert child.parent_session_id == "ses_dd29299cfffeR4uKkffJcQRwsm"


@pytest.mark.parametrize("runtime", STORES)
def test_a_store_whose_rows_are_all_in_the_log_is_read_without_a_trace(stores, runtime):
    before = snapshot(stores[runtime])
    assert read(runtime, [stores[runtime]]).records
    assert snapshot(stores[runtime]) == before


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_no_text_of_a_fixture_reaches_a_record(homes, stores, runtime):
    found = [read(runtime, homes[runtime])]
    if runtime in STORES:
        found.append(read(runtime, [stores[runtime]]))
    said = repr([(one.records, one.sessions, one.states, one.skipped) for one in found])
    words = set()
    for path in [*HERE.joinpath(runtime).rglob("*"), *HERE.joinpath("stores", runtime).rglob("*")]:
        if path.suffix in (".json", ".jsonl", ".ndjson", ".sql") and path.name != "expected.json":
            pattern = (
                r'"(?:text|content|title|name|prompt|message|summary|system_prompt|cwd|directory)": ?"([^"\\]{5,})"'
            )
            words |= set(re.findall(pattern, path.read_text()))
            words |= set(re.findall(r"'([A-Z][a-z]+ [a-z ]{3,})'", path.read_text()))
    words |= {"/work/demo", "demo/demo", "READFILE", "Mock answer", "notes.txt"}
    models = {"GPT-5", "gpt-5", "default"}
    assert not [word for word in words - models if word not in ("docs", "devin") and word in said]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_runtime_says_what_the_support_table_shows(runtime):
    module = importlib.import_module(f"collector.runtimes.{runtime}")
    assert isinstance(module.FACTS, Facts)
    assert module.FACTS.runtime == module.READER.runtime == runtime
