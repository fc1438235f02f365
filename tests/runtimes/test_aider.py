"""Aider's history: dollars on a line of their own, models that change within a run, every version's announcement."""

import time
from pathlib import Path

import pytest

from collector.record import PICO
from collector.runtimes.aider import Aider
from tests.runtimes.transcripts import Read, dollars, read_home, total, write

HEADER = "\n# aider chat started at 2026-08-25 08:00:00\n\n"
# 1.2k beside the cache: the writes are in what was sent twice.
BOTH = "> Tokens: 12.2k sent, 4.0k cache write, 3.0k cache hit, 512 received.\nCost: $0.03 message, $0.03 session.  \n"
ONE = "> Tokens: 5.0k sent, 300 received. Cost: $0.0075 message, $0.04 session.  \n"
SESSION = "app@2026-08-25 08:00:00"


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    """The history's times are local."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def announced(model: str, how: str = "Model") -> str:
    return f"> Aider v0.86.1  \n> {how}: {model} with diff edit format  \n\n"


def history(home: Path, *parts: str) -> Path:
    path = home / "app/.aider.chat.history.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((HEADER, *parts)))
    return path


def test_a_message_with_hits_and_writes_has_its_dollars_on_the_next_line(tmp_path):
    history(tmp_path, announced("claude-sonnet-4-5"), BOTH, ONE)
    first, second = read_home(Aider(), tmp_path).of(SESSION)
    assert (first.vendor_pico, first.vendor_basis) == (3 * PICO // 100, "runtime_price")
    assert (first.tokens.input_tokens, first.tokens.cache_write_tokens) == (1200, 4000)
    assert second.vendor_pico == 75 * PICO // 10_000


def test_dollars_that_are_written_after_the_first_pass_are_given_to_their_message(tmp_path):
    path = history(tmp_path, announced("claude-sonnet-4-5"), BOTH.partition("\n")[0] + "\n")
    read = Read()
    for text in ("", BOTH.partition("\n")[2] + ONE):
        path.write_text(path.read_text() + text)
        (source,) = Aider().sources(tmp_path, {})
        read.take(Aider(), source)
    assert dollars(read.of(SESSION)) == pytest.approx(0.03 + 0.0075)
    assert len(read.of(SESSION)) == 2


def test_dollars_that_follow_something_else_are_nobodys(tmp_path):
    history(tmp_path, announced("acme/m"), "> Tokens: 640 sent, 21 received.  \n\n", BOTH.partition("\n")[2])
    (record,) = read_home(Aider(), tmp_path).of(SESSION)
    assert (record.vendor_pico, record.tokens.input_tokens) == (None, 640)


def test_a_model_that_the_user_changes_to_answers_from_then_on(tmp_path):
    quoted = "> Model: gpt-4 with whole edit format  \n"
    history(tmp_path, announced("a/one", "Main model"), quoted, ONE, announced("b/two"), BOTH, ONE)
    assert [record.model for record in read_home(Aider(), tmp_path).of(SESSION)] == ["a/one", "b/two", "b/two"]


@pytest.mark.parametrize("how", ["Model", "Main model", "Models"])
def test_the_model_is_read_as_every_version_announces_it(tmp_path, how):
    history(tmp_path, announced("gpt-4o", how), ONE)
    assert read_home(Aider(), tmp_path).sessions[SESSION].model == "gpt-4o"


def test_the_log_takes_the_cache_of_each_message_from_the_history(tmp_path):
    history(tmp_path, announced("claude-sonnet-4-5"), BOTH, ONE)
    sent = [(12_213, 512), (5021, 300)]
    lines = [{"event": "launched", "properties": {}, "time": 1_787_644_800}]
    for number, (prompt, completion) in enumerate(sent):
        counts = {"main_model": "claude-sonnet-4-5", "prompt_tokens": prompt, "completion_tokens": completion}
        lines.append({"event": "message_send", "properties": counts, "time": 1_787_644_810 + number})
    write(tmp_path / "analytics.jsonl", *lines)
    read = read_home(Aider(), tmp_path)
    assert read.skipped["in_analytics_log"] == 2
    assert total(read.records.values(), "input_tokens") == 12_213 - 3000 - 2 * 4000 + 5021
    assert total(read.records.values(), "cache_read_tokens") == 3000


def test_a_message_whose_usage_the_provider_did_not_send_is_not_free(tmp_path):
    text = "> Tokens: 0 sent, 0 received. Cost: $0.00 message, $0.00 session.  \n"
    history(tmp_path, announced("openai/gpt-4o", "Main model"), text)
    (record,) = read_home(Aider(), tmp_path).of(SESSION)
    assert (record.usage, record.vendor_pico, record.vendor_basis) == ("missing", None, None)


def logged(*runs: int) -> list[dict]:
    """A log of runs that began at these times, of one message each."""
    lines = []
    for began in runs:
        counts = {"main_model": "acme/m", "prompt_tokens": 4999, "completion_tokens": 301}
        lines.append({"event": "launched", "properties": {}, "time": began})
        lines.append({"event": "message_send", "properties": counts, "time": began + 9})
    return lines


EIGHT, NINE, TEN = (1_787_644_800 + hour * 3600 for hour in range(3))


@pytest.mark.parametrize("found", [(EIGHT,), (NINE,), (EIGHT, NINE)])
def test_runs_of_a_history_are_taken_back_once_a_log_that_has_them_is_found(tmp_path, found):
    nine = HEADER.replace("08:00", "09:00")
    path = history(tmp_path, announced("acme/m"), ONE, nine, announced("acme/m"), BOTH, ONE)
    read = read_home(Aider(), tmp_path)
    assert len(read.records) == 3
    write(tmp_path / "analytics.jsonl", *logged(*found))
    for hour in (None, TEN):
        if hour is not None:
            path.write_text(path.read_text() + HEADER.replace("08:00", "10:00") + announced("acme/m") + ONE)
            write(tmp_path / "analytics.jsonl", *logged(*found, hour))
        for source in Aider().sources(tmp_path, {}):
            read.take(Aider(), source)
        assert read.facts() == read_home(Aider(), tmp_path).facts()


def test_a_run_that_a_log_told_of_is_not_counted_again_when_the_log_is_gone(tmp_path):
    path = history(tmp_path, announced("acme/m"), ONE)
    log = write(tmp_path / "analytics.jsonl", *logged(EIGHT))
    read = read_home(Aider(), tmp_path)
    log.unlink()
    for more in (ONE, HEADER.replace("08:00", "10:00") + announced("acme/m") + ONE):
        path.write_text(path.read_text() + more)
        for source in Aider().sources(tmp_path, {}):
            read.take(Aider(), source)
    assert total(read.records.values(), "input_tokens") == 4999 + 5000


def test_runs_that_a_log_told_of_are_not_counted_again_when_that_is_gone_and_the_history_replaced(tmp_path):
    nine = HEADER.replace("08:00", "09:00") + announced("acme/m") + ONE
    path = history(tmp_path, announced("acme/m"), ONE, nine)
    log = write(tmp_path / "analytics.jsonl", *logged(EIGHT, NINE))
    read = read_home(Aider(), tmp_path)
    facts = read.facts()
    log.unlink()
    for _ in range(2):
        new = path.with_name("new")
        new.write_bytes(path.read_bytes())
        new.replace(path)
        for source in Aider().sources(tmp_path, {}):
            read.take(Aider(), source)
        assert read.facts() == facts


@pytest.mark.parametrize("cut", [0, 1])
def test_a_log_that_is_replaced_has_the_same_messages_and_runs_again(tmp_path, cut):
    lines = logged(EIGHT, NINE)[cut:]  # the first run may have lost its beginning
    log = write(tmp_path / "analytics.jsonl", *lines)
    read = read_home(Aider(), tmp_path)
    facts, sessions = read.facts(), len(read.sessions)
    write(tmp_path / "new.jsonl", *lines, *logged(TEN)[:1]).replace(log)
    for source in Aider().sources(tmp_path, {}):
        read.take(Aider(), source)
    assert read.facts() == facts
    assert len(read.sessions) == sessions + 1 == 3


CONFIGURED = """
openai-api-key: sk-canary
chat-history-file: {history} # mine
# analytics-log: nowhere.jsonl
analytics-log: "{log}"
"""


@pytest.mark.parametrize("how", ["file", "variables"])
@pytest.mark.parametrize(
    ("named", "places"),
    [("notes/chat.md", ["app/notes/chat.md", "b/notes/chat.md"]), ("~/all/chat.md", ["all/chat.md"])],
)
def test_a_history_and_a_log_that_the_configuration_names_are_read(tmp_path, how, named, places):
    """A relative name is one in each repository (aider/args.py)."""
    for number, place in enumerate(places, 1):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(HEADER.replace("08:00", f"0{number}:00") + announced("acme/m") + ONE)
    log = tmp_path / "logs/mine.log"
    sent = {"prompt_tokens": 7, "completion_tokens": 1}
    write(log, {"event": "message_send", "properties": sent, "time": 1_787_700_000})
    environ = {}
    if how == "file":
        (tmp_path / ".aider.conf.yml").write_text(CONFIGURED.format(history=named, log="~/logs/mine.log"))
    else:
        environ = {"AIDER_CHAT_HISTORY_FILE": named, "AIDER_ANALYTICS_LOG": str(log)}
    read = read_home(Aider(), tmp_path, environ)
    assert total(read.records.values(), "input_tokens") == 5000 * len(places) + 7
    assert "sk-canary" not in repr(read)


def test_what_the_configuration_names_outside_of_the_home_is_not_read(tmp_path):
    (tmp_path / "home").mkdir()
    history(tmp_path / "out", announced("acme/m"), ONE)
    outside = tmp_path / "out/app/.aider.chat.history.md"
    (tmp_path / "home/link").symlink_to(outside.parent)
    for named in (str(outside), *(f"{way}/{outside.name}" for way in ("~/../out/app", "../out/app", "~/link", "link"))):
        (tmp_path / "home/.aider.conf.yml").write_text(f"chat-history-file: {named}\n")
        assert list(Aider().sources(tmp_path / "home", {})) == []
