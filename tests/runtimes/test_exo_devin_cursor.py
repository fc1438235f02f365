"""Exo's forks and families, Devin's forest and transcripts, Cursor's sessions without a single token."""

import json
import sqlite3
from contextlib import closing

import pytest

from collector.runtimes import SourceError, cursor, devin, exo
from tests.runtimes.databases import build, change
from tests.runtimes.transcripts import Read, read_home, total


def event(folder, number, data, conversation="c", at=0, **more):
    path = folder / ".exo/exoharness/agents/a/conversations" / conversation / "events" / f"019f-{number:04}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    created = f"2026-08-14T08:{at:02}:{number:02}.000Z"
    path.write_text(
        json.dumps({"id": path.stem, "session_id": "s", "turn_id": "t", "created_at": created, "data": data} | more)
    )


def answer(fresh, model="openai/gpt-5", response="r", cached=0, created=None, cost=None):
    usage = {"model": model, "prompt_tokens": fresh, "completion_tokens": 5, "prompt_cached_tokens": cached}
    usage |= {"prompt_cache_creation_tokens": created, "cost_usd": cost}
    return {"type": "messages", "messages": [{"content": "secret"}], "response_id": response, "usage": usage}


@pytest.mark.parametrize(
    ("model", "fresh"),
    [
        ("anthropic/claude-sonnet-4-5", 1000),
        ("claude-sonnet-4-5", 1000),
        ("us.anthropic.claude-sonnet-4-5-v1:0", 1000),
        ("openai/gpt-5", 300),
        ("google/gemini-2.5-pro", 300),
        ("acme/not-claude", 300),
    ],
)
def test_exos_input_includes_the_cache_except_for_anthropics_models(tmp_path, model, fresh):
    event(tmp_path, 1, answer(1000, model, cached=600, created=100))
    (record,) = read_home(exo.READER, tmp_path).records.values()
    tokens = record.tokens
    assert (tokens.input_tokens, tokens.cache_read_tokens, tokens.cache_write_tokens) == (fresh, 600, 100)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("response", ["r", None])
def test_an_exo_fork_counts_what_follows_its_mark(tmp_path, backwards, response):
    for conversation, at in (("source", 0), ("fork", 10)):
        for number in (1, 2):
            named = response and f"{response}{number}"
            event(tmp_path, number, answer(10 * number, response=named), conversation, at)
    event(tmp_path, 3, {"type": "thread_forked", "source_thread_id": "source"}, "fork", 10)
    event(tmp_path, 4, answer(7, response=response and "r4"), "fork", 11, turn_id="t2")
    read = read_home(exo.READER, tmp_path, backwards=backwards)
    assert (total(read.of("source"), "input_tokens"), total(read.of("fork"), "input_tokens")) == (30, 7)
    assert read.sessions["fork"].started_ts == 1786695003


@pytest.mark.parametrize("backwards", [False, True])
def test_response_ids_of_a_local_server_that_repeat_hide_no_call(tmp_path, backwards):
    for number, turn in ((1, "t"), (2, "t"), (3, "u")):
        event(tmp_path, number, answer(10 * number, "ollama/qwen3:8b", "chatcmpl-417"), "c", turn_id=turn)
        event(tmp_path, number, answer(10 * number, "ollama/qwen3:8b", "chatcmpl-417"), "copy", 10, turn_id=turn)
    event(tmp_path, 4, {"type": "thread_forked", "source_thread_id": "c"}, "copy", 10)
    event(tmp_path, 1, answer(7, "ollama/qwen3:8b", "chatcmpl-417"), "other", session_id="s2")
    read = read_home(exo.READER, tmp_path, backwards=backwards)
    assert [total(read.of(name), "input_tokens") for name in ("c", "copy", "other")] == [60, None, 7]


def test_calls_without_turn_and_id_are_told_apart_by_their_figures(tmp_path):
    for number, name in ((1, "c"), (2, "d")):
        event(tmp_path, number, answer(number, response=None), name, session_id=None, turn_id=None)
    event(tmp_path, 1, answer(1, response=None), "copy", 10, session_id=None, turn_id=None)
    event(tmp_path, 2, {"type": "thread_forked", "source_thread_id": "c"}, "copy", 10)
    read = read_home(exo.READER, tmp_path)
    assert [total(read.of(name), "input_tokens") for name in ("c", "d", "copy")] == [1, 2, None]


@pytest.mark.parametrize(
    ("response", "model", "cost", "pico", "basis"),
    [
        ("gen-1", "a/b", 0.5, 5 * 10**11, "billed"),
        ("gen-1", "a/b:free", 0, 0, "billed"),
        ("resp_1", "openai/gpt-5", 0.5, 5 * 10**11, "runtime_price"),
        ("resp_1", "openai/gpt-5", 0, None, None),
        ("resp_1", "ollama/qwen3:8b", 0, 0, "runtime_price"),
        ("resp_1", "openai/gpt-5", None, None, None),
    ],
)
def test_exos_dollars_were_billed_where_openrouter_answered(tmp_path, response, model, cost, pico, basis):
    event(tmp_path, 1, answer(1, model, response, cost=cost))
    (record,) = read_home(exo.READER, tmp_path).records.values()
    assert (record.vendor_pico, record.vendor_basis) == (pico, basis)


def test_exo_workspaces_are_found_below_the_home_and_not_through_links(tmp_path):
    event(tmp_path / "home/projects/deep/er", 1, answer(1), "found")
    event(tmp_path / "outside", 1, answer(1), "outside")
    (tmp_path / "home/link").symlink_to(tmp_path / "outside")
    event(tmp_path / "home/node_modules/x", 1, answer(1), "module")
    assert set(read_home(exo.READER, tmp_path / "home").sessions) == {"found"}


def test_a_broken_exo_event_costs_only_itself(tmp_path):
    event(tmp_path, 1, answer(1))
    event(tmp_path, 2, answer(2, response="r2"))
    event(tmp_path, 3, {"type": "messages"})
    path = next(tmp_path.rglob("019f-0001.json"))
    path.write_text(path.read_text()[:-5])
    read = read_home(exo.READER, tmp_path)
    assert total(read.records.values(), "input_tokens") == 2
    assert read.skipped == {"bad_json": 1, "no_usage": 1}


@pytest.fixture
def devins(tmp_path):
    (home,) = build("devin", tmp_path / "devin")
    return home


def devin_database(home):
    return home / ".local/share/devin/cli/sessions.db"


def test_a_commitment_that_arrives_later_replaces_its_absence(devins):
    read = read_home(devin.READER, devins)
    assert sum(record.acu_micro or 0 for record in read.of("plain-heron")) == 10_000
    change(
        devin_database(devins),
        "UPDATE message_nodes SET chat_message = json_set(chat_message, '$.metadata.committed_acu_cost', 0)"
        " WHERE session_id = 'plain-heron' AND node_id = 3",
    )
    for source in devin.READER.sources(devins, {}):
        read.take(devin.READER, source)
    assert sorted(record.acu_micro for record in read.of("plain-heron")) == [0, 10_000]


def test_a_transcript_counts_once_its_database_is_gone_and_not_before(devins):
    assert "steady-otter" not in {
        r.session_id for r in read_home(devin.READER, devins).records.values() if ":step" in r.key
    }
    for path in devin_database(devins).parent.glob("sessions.db*"):
        path.unlink()
    read = read_home(devin.READER, devins)
    (record,) = read.of("steady-otter")
    assert (record.tokens.input_tokens, record.acu_micro) == (2700, 20_000)


def test_a_transcript_that_stayed_behind_when_its_database_moved_is_not_counted_again(devins):
    data = devin_database(devins).parents[2]
    left = data / "cognition/cli/transcripts"
    left.mkdir(parents=True)
    (data / "devin/cli/transcripts/steady-otter.json").rename(left / "steady-otter.json")
    read = read_home(devin.READER, devins)
    assert sum(record.acu_micro for record in read.of("steady-otter")) == 50_000
    assert read.skipped["in_database"] == 1


def away(home):
    """Move Devin's database out of sight; where it was and is now."""
    paths = [(path, home / path.name) for path in devin_database(home).parent.glob("sessions.db*")]
    for path, hidden in paths:
        path.rename(hidden)
    return paths


def test_what_a_transcript_told_while_its_database_was_away_is_taken_back_once_that_has_the_session(devins):
    want = read_home(devin.READER, devins).facts()
    moved = away(devins)
    read = read_home(devin.READER, devins)
    assert len(read.of("steady-otter")) == 1
    for path, hidden in moved:
        hidden.rename(path)
    for _ in range(2):
        for source in devin.READER.sources(devins, {}):
            read.take(devin.READER, source)
        assert read.facts() == want


def test_a_transcript_is_not_counted_once_the_database_that_had_its_session_is_deleted(devins):
    read = read_home(devin.READER, devins)
    want = read.facts()
    away(devins)
    for source in devin.READER.sources(devins, {}):
        read.take(devin.READER, source)
    assert read.facts() == want


def test_a_transcripts_total_gives_way_to_its_steps(tmp_path):
    path = tmp_path / ".local/share/devin/cli/transcripts/one.json"
    path.parent.mkdir(parents=True)
    step = {"step_id": 1, "source": "agent", "timestamp": "2026-08-16T11:00:09Z"}
    document = {"session_id": "one", "steps": [step], "final_metrics": {"total_prompt_tokens": 1000}}
    path.write_text(json.dumps(document))
    read = read_home(devin.READER, tmp_path)
    step["metrics"] = {"prompt_tokens": 1000, "completion_tokens": 5}
    path.write_text(json.dumps(document))
    for source in devin.READER.sources(tmp_path, {}):
        read.take(devin.READER, source)
    assert read.facts() == read_home(devin.READER, tmp_path).facts()


def test_a_transcripts_prompt_includes_reads_and_writes(tmp_path):
    path = tmp_path / ".local/share/devin/cli/transcripts/one.json"
    path.parent.mkdir(parents=True)
    metrics = {
        "prompt_tokens": 1000,
        "completion_tokens": 5,
        "cached_tokens": 600,
        "extra": {"cache_creation_input_tokens": 300},
    }
    step = {
        "step_id": 1,
        "source": "agent",
        "metrics": metrics,
        "metadata": {"committed_acu_cost": 0.5, "generation_model": "swe-2"},
    }
    path.write_text(json.dumps({"session_id": "one", "steps": [step, "junk", {"source": "agent"}]}))
    (record,) = read_home(devin.READER, tmp_path).records.values()
    assert (record.tokens.input_tokens, record.tokens.cache_write_tokens, record.acu_micro) == (100, 300, 500_000)
    assert record.model == "swe-2"
    path.write_text('{"session_id": "one"')
    with pytest.raises(SourceError, match="not complete JSON"):
        read_home(devin.READER, tmp_path)


def test_a_transcript_whose_steps_have_no_numbers_counts_by_its_total(tmp_path):
    path = tmp_path / ".local/share/devin/cli/transcripts/one.json"
    path.parent.mkdir(parents=True)
    final = {"total_prompt_tokens": 1000, "total_completion_tokens": 5, "total_cached_tokens": 600}
    steps = [{"source": "agent", "timestamp": "2026-08-16T11:00:09Z"}]
    path.write_text(json.dumps({"session_id": "one", "steps": steps, "final_metrics": final}))
    (record,) = read_home(devin.READER, tmp_path).records.values()
    assert (record.tokens.input_tokens, record.tokens.cache_read_tokens, record.grain) == (400, 600, "session")


def test_credits_are_never_money(devins):
    assert all(record.vendor_pico is None for record in read_home(devin.READER, devins).records.values())


@pytest.fixture
def cursors(tmp_path):
    (home,) = build("cursor", tmp_path / "cursor")
    return home


def test_cursor_yields_sessions_and_no_record_even_where_counts_were_left(cursors):
    read = read_home(cursor.READER, cursors)
    assert not read.records
    assert len(read.sessions) == 3


def test_a_second_pass_reads_only_chats_that_changed(cursors):
    state = cursors / ".config/Cursor/User/globalStorage/state.vscdb"
    read = read_home(cursor.READER, cursors)
    source = next(source for source in cursor.READER.sources(cursors, {}) if source.path == state)
    assert next(cursor.READER.read(source, read.states[state])).sessions == []
    key = "bubbleId:cccc0000-0000-4000-8000-000000000001:b-9"
    bubble = json.dumps({"type": 2, "createdAt": "2026-08-19T08:05:00.000Z", "modelInfo": {"modelName": "gpt-5"}})
    change(state, "INSERT INTO cursorDiskKV VALUES (?, ?)", parameters=(key, bubble))
    (session,) = next(cursor.READER.read(source, read.states[state])).sessions
    assert session.turns == ((1787126409.0, "default"), (1787126700.0, "gpt-5"))


def test_an_empty_draft_is_no_session_and_broken_json_no_obstacle(cursors):
    state = cursors / ".config/Cursor/User/globalStorage/state.vscdb"
    for key, value in (("composerData:draft", '{"createdAt": 1787126400000}'), ("composerData:torn", '{"createdAt"')):
        change(state, "INSERT INTO cursorDiskKV VALUES (?, ?)", parameters=(key, value))
    read = read_home(cursor.READER, cursors)
    assert {"draft", "torn"}.isdisjoint(read.sessions)
    assert read.skipped == {"empty": 2}


def test_chats_of_the_cli_tell_their_time_and_model(tmp_path):
    store = tmp_path / ".cursor/chats/0a1b/dddd0000-0000-4000-8000-000000000009/store.db"
    store.parent.mkdir(parents=True)
    meta = json.dumps({"agentId": "x", "name": "secret", "createdAt": 1787126400000, "lastUsedModel": "gpt-5"})
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
        connection.execute("INSERT INTO meta VALUES ('0', ?)", (meta.encode().hex(),))
    (session,) = read_home(cursor.READER, tmp_path).sessions.values()
    assert (session.session_id, session.started_ts, session.model) == (store.parent.name, 1787126400, "gpt-5")


def test_transcripts_in_every_layout_are_sessions_without_times(tmp_path):
    folder = tmp_path / ".cursor/projects/p/agent-transcripts"
    (folder / "two").mkdir(parents=True)
    for name in ("one.jsonl", "one.txt", "three.txt", "notes.md"):
        (folder / name).write_text("{}")
    read: Read = read_home(cursor.READER, tmp_path)
    assert set(read.sessions) == {"one", "two", "three"}
    assert {session.started_ts for session in read.sessions.values()} == {None}
