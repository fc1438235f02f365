"""The collector through its commands: homes and ledgers in the states that a working machine leaves them in."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.programs import BIN, clean_environment, collector, report
from tests.privileges import bound_by_modes

FIXTURES = Path(__file__).parent.parent / "runtimes"
BOOT = "20260830t080000-abcdef01"


def line(seq: int, **more: Any) -> dict[str, Any]:
    """A usage line of PicoClaw."""
    known = {
        "v": 1,
        "id": f"{BOOT}-{seq}",
        "ts": 1788000000.0 + seq,
        "vm": "vm-1",
        "runtime": "picoclaw",
        "upstream": "openai",
        "wire": "openai-chat",
        "model": "gpt-5-mini",
        "session": "one-session",
        "session_source": "header",
        "response": None,
        "input_tokens": 100,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "cache_write_1h_tokens": None,
        "output_tokens": 10,
        "reasoning_tokens": 0,
        "usage": "reported",
        "outcome": "completed",
        "http_status": 200,
        "stream": False,
        "duration_ms": 500,
        "ttft_ms": None,
        "service_tier": None,
        "reported_cost_usd": None,
    }
    return known | more


def write_log(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in lines))
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return clean_environment(tmp_path, VM_USAGE_VM="vm-1", VM_USAGE_DB=str(tmp_path / "ledger.db"))


def ingest_home(environ: dict[str, str], home: Path) -> dict[str, dict[str, Any]]:
    collector(environ, "ingest", "--home", str(home))
    return {row["session_id"]: row for row in report(environ, "session")}


def test_a_session_is_shown_under_its_stores_own_model(environ: dict[str, str]) -> None:
    rows = ingest_home(environ, FIXTURES / "exo" / "workspace")
    mixed = next(row for row in rows.values() if len(row["models"]) == 2)
    assert (mixed["model"], mixed["cost_status"]) == ("openai/gpt-5", "partial")
    assert mixed["models"] == ["acme/acme-nano-1", "openai/gpt-5"]


def test_a_session_whose_end_nobody_wrote_has_none(environ: dict[str, str]) -> None:
    rows = ingest_home(environ, FIXTURES / "aider" / "repo")
    assert {(row["started_at"], row["ended_at"]) for row in rows.values()} == {
        ("2026-08-25T08:00:00.000Z", None),
        ("2026-08-25T09:00:00.000Z", None),
    }


def test_a_model_that_a_capture_saw_comes_from_the_stream(environ: dict[str, str], tmp_path: Path) -> None:
    log = write_log(tmp_path / "usage.jsonl", line(1, runtime="cursor", wire="cursor-cli", model="GPT-5"))
    collector(environ, "ingest", "--log", str(log))
    assert [row["model_source"] for row in report(environ, "session")] == ["stream"]


@pytest.mark.parametrize(("runtime", "part"), [("exo", "workspace"), ("picoclaw", "home")])
def test_stores_met_half_written_end_as_if_met_whole(
    environ: dict[str, str], tmp_path: Path, runtime: str, part: str
) -> None:
    source, home = FIXTURES / runtime / part, tmp_path / "agent"
    whole = ingest_home(environ | {"VM_USAGE_DB": str(tmp_path / "whole.db")}, source)
    shutil.copytree(source, home)
    documents = [path for path in home.rglob("*.json") if path.name != "config.json"]
    for path in documents:
        os.truncate(path, path.stat().st_size // 2)
    ingest_home(environ, home)
    for path in documents:
        path.write_bytes((source / path.relative_to(home)).read_bytes())
    assert ingest_home(environ, home) == whole


def test_a_local_model_of_aider_costs_nothing_and_an_unknown_one_is_unknown(
    environ: dict[str, str], tmp_path: Path
) -> None:
    history = (
        "# aider chat started at 2026-08-29 {hour}:00:00\n"
        "> Model: {model} with whole edit format\n> Tokens: 500 sent, 20 received.\n"
    )
    runs = [("10", "ollama_chat/qwen3"), ("11", "acme-1"), ("12", "ollama_chat/gpt-oss:120b-cloud")]
    (tmp_path / ".aider.chat.history.md").write_text(
        "\n".join(history.format(hour=hour, model=model) for hour, model in runs)
    )
    rows = ingest_home(environ, tmp_path)
    assert {row["model"]: row["cost_usd"] for row in rows.values()} == {
        "ollama_chat/qwen3": 0,
        "acme-1": None,
        "ollama_chat/gpt-oss:120b-cloud": None,
    }


def test_csv_has_names_as_names_and_no_formula_and_no_number_for_the_unknown(
    environ: dict[str, str], tmp_path: Path
) -> None:
    log = write_log(
        tmp_path / "usage.jsonl",
        line(1),
        line(2, model="acme-1"),
        line(3, model="@acme-2", session="other"),
    )
    collector(environ, "ingest", "--log", str(log))
    rows = list(csv.DictReader(io.StringIO(collector(environ, "report", "--by", "session", "--format", "csv"))))
    assert {row["session_id"]: row["models"] for row in rows} == {
        "one-session": "acme-1 gpt-5-mini",
        "other": "'@acme-2",
    }
    assert {row["session_id"]: row["cost_usd"] for row in rows} == {"one-session": "0.000045", "other": ""}


def test_an_operators_price_is_for_the_provider_that_it_names(environ: dict[str, str], tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "version: 1\nprices:\n  - {model: gpt-5-mini, provider: openai, usd_per_million: {input: 1, output: 2}}\n"
    )
    log = write_log(tmp_path / "usage.jsonl", line(1), line(2, upstream="acme", session="elsewhere"))
    collector(environ | {"VM_USAGE_PRICES": str(prices)}, "ingest", "--log", str(log))
    costs = {row["session_id"]: row["cost_usd"] for row in report(environ, "session")}
    assert costs == {"one-session": pytest.approx(0.00012), "elsewhere": None}


def test_a_home_that_is_not_there_is_said_and_hides_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    log = write_log(tmp_path / "usage.jsonl", line(1))
    out = collector(environ, "ingest", "--home", str(tmp_path / "nobody"), "--log", str(log))
    assert f"not read: {tmp_path / 'nobody'}: there is no such folder" in out
    assert [row["calls"] for row in report(environ, "day")] == [1]


def refusal(environ: dict[str, str], *arguments: str) -> str:
    """The one sentence that a command fails with."""
    done = subprocess.run([BIN / "usage-collector", *arguments], env=environ, capture_output=True, text=True)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_another_programs_database_is_refused_and_left_as_it_is(environ: dict[str, str], tmp_path: Path) -> None:
    path = Path(environ["VM_USAGE_DB"])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE theirs (value)")
    before = path.read_bytes()
    log = write_log(tmp_path / "usage.jsonl", line(1))
    assert "another program's" in refusal(environ, "ingest", "--log", str(log))
    assert "another program's" in refusal(environ, "report")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    assert len(before) == path.stat().st_size


def test_an_empty_file_is_no_ledger_yet(environ: dict[str, str], tmp_path: Path) -> None:
    Path(environ["VM_USAGE_DB"]).touch()
    assert "there is no ledger" in refusal(environ, "report")
    collector(environ, "ingest", "--log", str(write_log(tmp_path / "usage.jsonl", line(1))))
    assert [row["calls"] for row in report(environ, "day")] == [1]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_a_ledger_at_rest_is_readable_by_who_may_not_write_beside_it(environ: dict[str, str], tmp_path: Path) -> None:
    folder = Path("/tmp") / f"vm-usage-{tmp_path.name}-{os.getpid()}"  # others may enter no pytest folder
    folder.mkdir(mode=0o755)
    try:
        own = environ | {"VM_USAGE_DB": str(folder / "ledger.db")}
        collector(own, "ingest", "--log", str(write_log(tmp_path / "usage.jsonl", line(1))))
        (folder / "ledger.db").chmod(0o644)
        for path in (folder, folder / "ledger.db"):
            os.chown(path, 65534, 65534)
        command = [*bound_by_modes(), BIN / "usage-collector"]
        away = own | {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
        done = subprocess.run([*command, "report", "--format", "json"], env=away, capture_output=True, text=True)
        assert [row["calls"] for row in json.loads(done.stdout)["rows"]] == [1], done.stderr
    finally:
        shutil.rmtree(folder)


def test_a_table_of_many_sessions_shows_the_latest_and_says_that_there_are_more(
    environ: dict[str, str], tmp_path: Path
) -> None:
    log = write_log(tmp_path / "usage.jsonl", *(line(seq, session=f"session-{seq:03d}") for seq in range(1, 151)))
    collector(environ, "ingest", "--log", str(log))
    table = collector(environ, "report", "--by", "session")
    shown = [row.split()[0] for row in table.splitlines() if row.startswith("session-")]
    assert shown == [f"session-{seq:03d}" for seq in range(150, 50, -1)]
    assert "the 100 most recent sessions" in table
    assert next(row for row in table.splitlines() if row.startswith("total")).split()[1] == "150"
    assert len(report(environ, "session")) == 150
    latest = collector(environ, "report", "--by", "session", "--limit", "1")
    assert [row.split()[1] for row in latest.splitlines() if row.startswith("total")] == ["150"]
    assert "is the most recent session, the total is of all" in latest
    whole = collector(environ, "report", "--by", "session", "--limit", "0")
    assert whole.count("\nsession-") == 150
    assert "most recent" not in whole
    two = json.loads(collector(environ, "report", "--by", "session", "--limit", "2", "--format", "json"))["rows"]
    assert [row["session_id"] for row in two] == ["session-150", "session-149"]
