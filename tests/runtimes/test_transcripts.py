"""Every session of every fixture and of every store that a real program wrote, in every field."""

import importlib
import json
from datetime import datetime
from pathlib import Path

import pytest

from tests.runtimes.transcripts import HERE, Read, dollars, read_home, total

RUNTIMES = (
    "claude_code",
    "codex",
    "gemini_cli",
    "qwen_code",
    "pi",
    "openclaw",
    "kimi_cli",
    "kimi_code",
    "aider",
    "picoclaw",
)
FIELDS = {
    "input": "input_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "cache_write_1h": "cache_write_1h_tokens",
    "output": "output_tokens",
    "reasoning": "reasoning_tokens",
}


def reader(runtime: str):
    return importlib.import_module(f"collector.runtimes.{runtime}").READER


def homes(runtime: str) -> list[Path]:
    """The folders of a fixture that stand for a home (aider's repository lies beside its log)."""
    folder = HERE / runtime
    return [folder] if runtime == "aider" else [f for f in (folder / "home", folder / "nocfg") if f.exists()]


def expected(folder: Path) -> dict:
    return {entry["session_id"]: entry for entry in json.loads((folder / "expected.json").read_text())["sessions"]}


def cases() -> list:
    found = []
    for runtime in RUNTIMES:
        for home in homes(runtime):
            for session, entry in expected(HERE / runtime).items():
                second = session.startswith("nocfg:")
                if second == (home.name == "nocfg"):
                    found.append(pytest.param(runtime, home, session.removeprefix("nocfg:"), entry, id=session))
    return found


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def same(got: int | None, want: int | None) -> bool:
    return got == want or (got is None and want == 0)


def epoch(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(("runtime", "home", "session", "entry"), cases())
def test_a_fixture_session_matches_in_every_field(runtime, home, session, entry):
    read = read_home(reader(runtime), home)
    records = read.of(session)
    for field, name in FIELDS.items():
        if field in entry:
            assert same(total(records, name), entry[field]), field
    assert dollars(records) == entry["vendor_cost_usd"]
    listed = read.sessions[session]
    assert {record.model for record in records} | {listed.model} >= {entry["model"]}
    assert {record.model for record in records} <= {*entry.get("models", [entry["model"]])}
    sources = {record.model_source for record in records} or {listed.model_source}
    assert sources == {entry["model_source"]}
    assert (listed.started_ts, listed.ended_ts) == (epoch(entry["started_at"]), epoch(entry["ended_at"]))
    if "parent_session_id" in entry:
        assert listed.parent_session_id == entry["parent_session_id"]
    if entry["cost_status"] == "estimated":
        assert all(record.caveat for record in records)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_home_holds_no_other_sessions_records_whatever_the_order(runtime, backwards):
    for home in homes(runtime):
        read = read_home(reader(runtime), home, backwards=backwards)
        assert read.facts() == read_home(reader(runtime), home).facts()
        known = {session.removeprefix("nocfg:") for session in expected(HERE / runtime)}
        assert {record.session_id for record in read.records.values()} <= known


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_second_pass_over_everything_changes_nothing(runtime):
    for home in homes(runtime):
        read = read_home(reader(runtime), home)
        before = read.facts()
        for source in reader(runtime).sources(home, {}):
            read.take(reader(runtime), source)
            for batch in reader(runtime).read(source, None):
                for record in batch.records:
                    read.keep(record)
        assert read.facts() == before


def test_the_wrong_totals_of_naive_readers_are_not_ours():
    codex, pi, kimi = (read_home(reader(name), homes(name)[0]) for name in ("codex", "pi", "kimi_cli"))
    whole = sum((r.tokens.input_tokens or 0) + (r.tokens.cache_read_tokens or 0) for r in codex.records.values())
    assert whole == 13500
    assert dollars(r for r in pi.records.values()) == 0.03111
    first = "aaaa0000-0000-4000-8000-000000000001"
    assert total(kimi.of(first) + kimi.of(f"{first}:a1b2c3d4"), "output_tokens") == 420


STORES = ("codex", "gemini_cli", "pi", "kimi_cli")
IN_STORES = FIELDS | {"input_uncached": "input_tokens"}


def store_cases() -> list:
    found = []
    for runtime in STORES:
        for session, entry in expected(HERE / "stores" / runtime).items():
            found.append(pytest.param(runtime, session, entry, id=f"{runtime}-{session}"))
    return found


@pytest.mark.parametrize(("runtime", "session", "entry"), store_cases())
def test_a_session_that_a_real_program_wrote_matches_what_was_sent(runtime, session, entry):
    read = read_home(reader(runtime), HERE / "stores" / runtime / "home")
    records = read.of(session)
    assert len(records) == entry["calls"]
    for field, name in IN_STORES.items():
        untold = field == "reasoning" and entry["store_says"]["reasoning"] is None
        if field in entry and not untold:
            assert same(total(records, name), entry[field]), field
    # Their dollars of a fork hold the parent's copies too.
    if entry["vendor_cost_usd"] is not None and not entry["store_says"].get("parent"):
        assert dollars(records) == pytest.approx(entry["vendor_cost_usd"], abs=1e-12)
    if runtime != "kimi_cli":
        assert sorted({record.model for record in records}) == entry["model"]
    assert read.sessions[session].started_ts == pytest.approx(epoch(entry["started_at"]), abs=0.001)


def test_aiders_log_counts_for_the_runs_that_the_history_has_too():
    read: Read = read_home(reader("aider"), HERE / "stores" / "aider" / "home")
    says = [entry["store_says"] for entry in expected(HERE / "stores" / "aider").values()]
    assert [total(read.of(s), "input_tokens") for s in sorted(read.sessions)] == [s["input_uncached"] for s in says]
    assert total(read.records.values(), "output_tokens") == sum(entry["output"] for entry in says)
    assert read.skipped["in_analytics_log"] == len(says)
