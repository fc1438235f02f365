"""What holds for every transcript reader: no content leaves a store, a pass may stop anywhere, files may be hostile."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.runtimes import SourceError
from tests.runtimes.test_transcripts import RUNTIMES, homes, reader
from tests.runtimes.transcripts import Read, read_home

CANARY = "canary-7f3a prompt text"
CONTENT = {"content", "text", "user_input", "summary", "title", "description", "cwd", "parts", "thoughts", "path"}


def poisoned(value: object, *, content: bool = False) -> object:
    """The same JSON with every text that a person or a model wrote replaced."""
    if isinstance(value, dict):
        return {key: poisoned(item, content=content or key in CONTENT) for key, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item, content=content) for item in value]
    return CANARY if content and isinstance(value, str) else value


def poison(path: Path) -> None:
    if path.suffix == ".md":
        lines = path.read_text().splitlines()
        path.write_text("\n".join(line if line.startswith((">", "# ")) else CANARY for line in lines) + "\n")
    elif ".jsonl" in path.name:
        done = []
        for line in path.read_text().splitlines():
            try:
                done.append(json.dumps(poisoned(json.loads(line))))
            except ValueError:
                done.append(line)
        path.write_text("\n".join(done) + "\n")
    elif path.suffix == ".json":
        path.write_text(json.dumps(poisoned(json.loads(path.read_text()))))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_no_content_of_a_store_is_in_anything_that_a_reader_gives(runtime, tmp_path):
    for number, home in enumerate(homes(runtime)):
        copy = tmp_path / f"home{number}"
        shutil.copytree(home, copy)
        files = [path for path in copy.rglob("*") if path.is_file()]
        for path in files:
            poison(path)
        assert any(CANARY in path.read_text() for path in files)
        for source in reader(runtime).sources(copy, {}):
            for batch in reader(runtime).read(source, None):
                assert CANARY not in repr(batch)


# Where a fork does not say that it is one, its first own line tells; a pass before that line is written cannot know.
FIRST_OWN_LINES = {"claude_code": b"2026-08-20T09:00:00", "kimi_cli": b"1786957200.0"}


def least(runtime: str, path: Path, whole: bytes) -> int:
    """How much of a file must be there at the first pass."""
    own = FIRST_OWN_LINES.get(runtime)
    if own is None or "subagents" in path.parts:
        return 0
    at = whole.find(own) if own in whole else max(0, whole.find(b'"timestamp"'))
    return whole.index(b"\n", at) + 1


@pytest.mark.parametrize("runtime", RUNTIMES)
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_pass_may_stop_anywhere_in_a_file(runtime, data, tmp_path_factory):
    """Each growing file is cut at some byte, read, completed and read again: the same as read at once."""
    home = homes(runtime)[0]
    want = read_home(reader(runtime), home)
    copy = tmp_path_factory.mktemp("home") / home.name
    shutil.copytree(home, copy)
    cut = {path: path.read_bytes() for path in copy.rglob("*") if ".jsonl" in path.name or path.suffix == ".md"}
    read = Read()
    for path, whole in cut.items():
        path.write_bytes(whole[: data.draw(st.integers(least(runtime, path, whole), len(whole)))])
    for source in reader(runtime).sources(copy, {}):
        read.take(reader(runtime), source)
    for path, whole in cut.items():
        with path.open("r+b") as file:
            file.write(whole)
    for source in reader(runtime).sources(copy, {}):
        read.take(reader(runtime), source)
    assert calls(read) == calls(want)
    assert {s: (x.ended_ts, x.model) for s, x in read.sessions.items()} == {
        s: (x.ended_ts, x.model) for s, x in want.sessions.items()
    }


def calls(read: Read) -> dict[str, tuple]:
    """Who pays for what; since when a fork exists may be known better later."""
    return {key: fact[:-1] for key, fact in read.facts().items()}


HOSTILE = (
    b"",
    b"\n\n\n",
    b"\x00" * 1000 + b"\n",
    b"\xff\xfe\xfd\n",
    b"[" * 3000 + b"]" * 3000 + b"\n",
    b'{"usage":' * 500 + b"\n",
    b'null\n[]\n"usage"\n1e999\n{"type":"assistant","usage":1}\n',
    b'{"type":"assistant","timestamp":"2026-08-20T08:00:00Z","message":{"id":[],"usage":{"input_tokens":-1}}}\n',
    b'{"type":"cost-state","modelUsage":[]}\n{"type":"cost-state","modelUsage":{"m":7},"startTime":"x"}\n',
    b'{"type":"session_meta","payload":"usage"}\n{"type":"event_msg","payload":{"type":"token_count","info":7}}\n',
    b'{"type":"message","timestamp":1e400,"message":{"role":"assistant","usage":{"input":1.5,"cost":7}}}\n',
    b'{"timestamp":-1,"message":{"type":"StatusUpdate","payload":{"token_usage":{"output":99999999999999999999}}}}\n',
    b"# aider chat started at 9999-99-99 00:00:00\n> Tokens: 1..2k sent, \n> Tokens: k sent, 9e9M received.\n",
    b'{"role":"assistant","created_at":{},"model_name":[1]}\n',
)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_file_gives_no_record_and_stops_nobody(runtime, text, tmp_path):
    home = homes(runtime)[0]
    copy = tmp_path / "home"
    shutil.copytree(home, copy)
    sources = list(reader(runtime).sources(copy, {}))
    for source in sources:
        for path in (source.path, *source.parts):
            if path.is_file():
                path.write_bytes(text)
    for source in sources:
        try:
            batches = list(reader(runtime).read(source, None))
        except SourceError:
            continue
        for batch in batches:
            json.dumps(batch.state)
            assert all((record.tokens.total or 0) >= 0 for record in batch.records)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_links_and_fifos_in_a_store_are_refused_and_the_rest_is_read(runtime, tmp_path):
    copy = tmp_path / "home"
    shutil.copytree(homes(runtime)[0], copy)
    sources = list(reader(runtime).sources(copy, {}))
    victim = sources[-1].path
    shutil.move(victim, tmp_path / "elsewhere")
    victim.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SourceError):
        list(reader(runtime).read(sources[-1], None))
    victim.unlink()
    os.mkfifo(victim)
    with pytest.raises(SourceError):
        list(reader(runtime).read(sources[-1], None))
    for source in sources[:-1]:
        list(reader(runtime).read(source, None))


@pytest.mark.parametrize("runtime", [name for name in RUNTIMES if name != "aider"])
def test_a_store_that_is_a_link_out_of_the_home_is_reported_not_read(runtime, tmp_path):
    outside = tmp_path / "outside"
    shutil.copytree(homes(runtime)[0], outside)
    home = tmp_path / "home"
    home.mkdir()
    for entry in outside.iterdir():
        (home / entry.name).symlink_to(entry)
    sources = list(reader(runtime).sources(home, {}))
    assert sources
    for source in sources:
        with pytest.raises(SourceError):
            list(reader(runtime).read(source, None))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_empty_home_has_no_sources(runtime, tmp_path):
    assert list(reader(runtime).sources(tmp_path, {})) == []


VARIABLES = {
    "codex": {"CODEX_HOME": ".codex"},
    "qwen_code": {"QWEN_HOME": ".qwen"},
    "pi": {"PI_CODING_AGENT_DIR": ".pi/agent"},
    "openclaw": {"OPENCLAW_STATE_DIR": ".openclaw"},
    "kimi_cli": {"KIMI_SHARE_DIR": ".kimi"},
    "kimi_code": {"KIMI_CODE_HOME": ".kimi-code"},
    "picoclaw": {"PICOCLAW_HOME": ".picoclaw"},
    "claude_code": {"CLAUDE_CONFIG_DIR": ".claude"},
    "gemini_cli": {"GEMINI_CLI_HOME": ""},
}


@pytest.mark.parametrize("runtime", VARIABLES)
def test_a_variable_moves_the_store(runtime, tmp_path):
    real = homes(runtime)[0]
    environ = {name: str(real / folder) for name, folder in VARIABLES[runtime].items()}
    moved = [source.path for source in reader(runtime).sources(tmp_path, environ)]
    assert moved == [source.path for source in reader(runtime).sources(real, {})]


def test_aiders_variables_name_files_anywhere(tmp_path):
    folder = homes("aider")[0]
    environ = {
        "AIDER_CHAT_HISTORY_FILE": str(folder / "repo/.aider.chat.history.md"),
        "AIDER_ANALYTICS_LOG": str(folder / "analytics/analytics.jsonl"),
    }
    assert {source.path for source in reader("aider").sources(tmp_path, environ)} == {
        Path(path) for path in environ.values()
    }
