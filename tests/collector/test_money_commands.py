"""export, reprice and reconcile as a person runs them, over a real ledger that was ingested from a real log."""

import csv
import io
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from collector import agent_tools
from collector.api.endpoints import ENDPOINTS
from collector.commands import export, reconcile, report, reprice
from collector.commands.opening import open_ingest, open_ledger, open_query
from collector.ledger import estimates
from collector.money import to_pico
from collector.settings import Settings
from shim.line import Line, Tokens, encode
from tests.collector.cursor_api import KEY, CursorApi, serving
from tests.collector.priced import at
from tests.collector.test_export import Receiver, receiving
from tests.collector.test_reconcile import BILLS, EVENTS

PRICES = "version: 1\nprices:\n- {model: acme-1, usd_per_million: {input: 1, cache_read: 1, output: 2}}\n"
CURSOR_DAY = at("2026-08-19T08:00:05")


def call(number, upstream, model, count=None, ts=CURSOR_DAY, **rest):
    rest = {"runtime": "picoclaw", "wire": "openai-chat", "usage": "reported", "outcome": "completed", **rest}
    count = Tokens(1000, 2000, 0, 0, 300, 10) if count is None else count
    names = {"session": "ref", "session_source": "gap", "response": None}
    return Line(id=f"boot-{number}", ts=ts, vm="vm1", upstream=upstream, model=model, tokens=count, **names, **rest)


LINES = [
    call(1, "anthropic", "claude-sonnet-4-5"),
    call(2, "my-gateway", "acme-1"),
    call(3, "openrouter", "openai/gpt-5", reported_cost_usd=0.0123),
    call(4, "anthropic", "claude-sonnet-4-5", Tokens(), usage="missing"),
    call(5, "cursor", "GPT-5", Tokens(3000, 9000, 0, None, 120, None), runtime="cursor", wire="cursor-cli"),
    call(6, "cursor", "GPT-5", Tokens(400, 12000, 0, None, 80, None), runtime="cursor", wire="cursor-cli"),
]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Settings of a VM whose log has been ingested."""
    log = tmp_path / "usage.jsonl"
    log.write_bytes(b"".join(encode(line) for line in LINES))
    environ = {
        "VM_USAGE_STATE": str(tmp_path),
        "VM_USAGE_VM": "vm1",
        "VM_USAGE_TZ": "UTC",
        "VM_USAGE_LOG": str(log),
        "VM_USAGE_HOMES": str(tmp_path / "home"),
        "HOME": str(tmp_path / "home"),
    }
    settings = Settings.from_env(environ)
    with closing(open_ledger(settings)) as ledger:
        report = open_ingest(settings, ledger, logs=[log], homes=[]).once()
    assert report.new_lines == len(LINES)
    return settings


def run(command, settings, *words, status=0):
    result = CliRunner().invoke(command, words, obj=settings)
    assert result.exit_code == status, result.output
    return result


def total(settings):
    query = open_query(settings)
    with closing(query.ledger):
        return query.total()


def with_prices(settings, tmp_path):
    file = tmp_path / "prices.yaml"
    file.write_text(PRICES)
    return replace(settings, prices=file)


class TestExport:
    def test_csv_adds_up_to_the_ledgers_total(self, own):
        rows = list(csv.DictReader(io.StringIO(run(export.command, own, "--format", "csv").stdout)))
        assert to_pico(sum(Decimal(row["cost_usd"]) for row in rows if row["cost_usd"])) == total(own).cost_pico
        assert {row["id"]: row["cost_usd"] for row in rows}["boot-2"] == ""

    def test_focus_adds_up_too(self, own):
        rows = list(csv.DictReader(io.StringIO(run(export.command, own, "--format", "focus").stdout)))
        assert to_pico(sum(Decimal(row["x_Cost"]) for row in rows if row["x_Cost"])) == total(own).cost_pico

    def test_parquet_into_a_file(self, own, tmp_path):
        file = tmp_path / "usage.parquet"
        run(export.command, own, "--format", "parquet", "-o", str(file))
        costs = [row["cost_usd"] for row in parquet.read_table(file).to_pylist()]
        assert to_pico(sum(cost for cost in costs if cost is not None)) == total(own).cost_pico

    def test_filters_are_those_of_the_report(self, own):
        rows = run(export.command, own, "--format", "csv", "--runtime", "cursor", "--until", "2026-08-19").stdout
        assert [row["model"] for row in csv.DictReader(io.StringIO(rows))] == ["GPT-5", "GPT-5"]
        assert run(export.command, own, "--format", "csv", "--since", "2026-08-20").stdout.count("\n") == 1

    def test_a_file_of_that_name_is_whole_or_not_there(self, own, tmp_path):
        run(export.command, own, "--format", "csv", "-o", str(tmp_path / "no" / "usage.csv"), status=1)
        run(export.command, own, "--format", "csv", "-o", str(tmp_path / "usage.csv"))
        assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob(".*.partial"))

    def test_otlp_to_a_receiver(self, own):
        receiver = Receiver()
        with receiving(receiver) as url:
            result = run(export.command, own, "--format", "otlp", "--endpoint", url, "--header", "x-key=v")
        assert "0 rejected" in result.stderr
        assert receiver.total("usage.calls") == len(LINES)
        assert receiver.total("usage.calls.unknown_cost") == total(own).unknown_calls == 2
        assert receiver.headers[0][1]["x-key"] == "v"

    def test_otlp_into_a_file(self, own, tmp_path):
        run(export.command, own, "--format", "otlp", "-o", str(tmp_path / "m.json"), "--semconv", "1.41")
        (request,) = [json.loads(line) for line in (tmp_path / "m.json").read_text().splitlines()]
        metrics = request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
        assert "gen_ai.client.token.usage" in {metric["name"] for metric in metrics}

    @pytest.mark.parametrize(
        "words",
        [
            ("--format", "csv", "--window", "week", "--since", "2026-01-01"),
            ("--format", "csv", "--since", "yesterday"),
            ("--format", "otlp", "--endpoint", "http://h", "--header", "novalue"),
            ("--format", "xlsx"),
            (),
        ],
    )
    def test_bad_usage_is_status_2(self, own, words):
        run(export.command, own, *words, status=2)


def own_session(settings):
    """A query layer, and the session of the record that ``with_prices`` prices otherwise."""
    query = open_query(settings)
    (row,) = query.ledger.select("SELECT session_id, vm, runtime FROM call WHERE id = 'boot-2'")
    return query, dict(zip(("session_id", "vm", "runtime"), row, strict=True))


def asked(settings):
    """The session and its record in the API's words, and the session as the list of sessions has it."""
    query, own = own_session(settings)
    with closing(query.ledger):
        (session,) = ENDPOINTS["session"].answer(query, own)["rows"]
        records = session.pop("records")
        listed = ENDPOINTS["sessions"].answer(query, {})["rows"]
    one = [row for row in listed if all(row[name] == value for name, value in own.items())]
    return {"session": [session], "call": [row for row in records if row["id"] == "boot-2"], "listed": one}


def explained(settings):
    """What an agent is told of that session."""
    query, own = own_session(settings)
    with closing(query.ledger):
        (detail,) = query.session(**own)
        return agent_tools.explained(detail.session)["explanation"]


class TestReprice:
    def test_nothing_changed_nothing_shown(self, own):
        assert "the price that it would have now" in run(reprice.command, own).stdout

    def test_it_shows_what_a_new_price_file_would_make(self, own, tmp_path):
        now = with_prices(own, tmp_path)
        (row,) = json.loads(run(reprice.command, now, "--format", "json").stdout)["rows"]
        assert (row["model"], row["cost_usd"], row["cost_status"]) == ("acme-1", None, "tokens_only")
        assert (row["repriced_usd"], row["repriced_status"]) == (0.0036, "estimated")
        assert total(now).cost_pico == total(own).cost_pico

    def test_applied_it_stands_beside_the_first_and_changes_no_sum(self, own, tmp_path):
        now, before = with_prices(own, tmp_path), total(own)
        assert json.loads(run(reprice.command, now, "--apply", "--format", "json").stdout)["written"] == 1
        assert total(now) == before
        with closing(sqlite3.connect(own.db)) as db:
            (estimate,) = estimates.of(db, "boot-2")
        assert (estimate.cost_pico, estimate.kind.cost_status) == (3_600_000_000, "estimated")
        assert json.loads(estimate.rates)["book"].startswith("prices.yaml")

    def test_it_is_told_where_a_session_is_explained_and_replaces_nothing(self, own, tmp_path):
        now = with_prices(own, tmp_path)
        before = asked(now)
        run(reprice.command, now, "--apply")
        after = asked(now)
        for name in before:
            (old,), (new,) = before[name], after[name]
            told = {key: new.pop(key) for key in list(new) if key.startswith("second_estimate")}
            assert told.items() >= {"second_estimate_usd": 0.0036, "second_estimate_status": "estimated"}.items(), name
            assert {key: value for key, value in old.items() if not key.startswith("second_estimate")} == new
        (call,) = after["call"]
        assert (call["cost_usd"], call["cost_status"]) == (None, "tokens_only")
        shown = run(report.command, now, "--by", "session").stdout
        said = "in no sum: $0.003600 (estimated) for 1 of the calls, priced unknown first."
        assert said in shown
        assert any(said in sentence for sentence in explained(now))

    def test_applied_twice_is_applied_once(self, own, tmp_path):
        now = with_prices(own, tmp_path)
        run(reprice.command, now, "--apply")
        assert json.loads(run(reprice.command, now, "--apply", "--format", "json").stdout)["written"] == 0

    def test_a_vendors_charge_is_never_priced_again(self, own, tmp_path):
        file = tmp_path / "prices.yaml"
        file.write_text("version: 1\nprices:\n- {model: '*', usd_per_million: {input: 9, output: 9, cache_read: 9}}\n")
        rows = json.loads(run(reprice.command, replace(own, prices=file), "--format", "json").stdout)["rows"]
        assert {row["model"] for row in rows} == {"claude-sonnet-4-5", "acme-1", "GPT-5"}

    def test_since_leaves_older_records_alone(self, own, tmp_path):
        now = with_prices(own, tmp_path)
        assert json.loads(run(reprice.command, now, "--since", "2026-08-20", "--format", "json").stdout)["rows"] == []


class TestReconcile:
    def cursor(self, own, url, *words, **more):
        environ = {**own.environ, "VM_USAGE_CURSOR_API": url, "VM_USAGE_CURSOR_KEY": KEY}
        span = ("--since", "2026-08-18", "--until", "2026-08-20")
        return run(reconcile.command, replace(own, environ=environ), "cursor", *span, *words, **more)

    def test_cursors_events_match_the_captured_turns(self, own):
        with serving(CursorApi(EVENTS)) as url:
            (row,) = json.loads(self.cursor(own, url, "--format", "json").stdout)["rows"]
        assert (row["state"], row["our_calls"], row["matched_calls"]) == ("matched", 2, 2)
        assert (row["billed_usd"], row["value_usd"], row["our_cost_usd"]) == (0.006075, 0.008875, 0.008875)

    def test_as_a_table(self, own):
        with serving(CursorApi(EVENTS)) as url:
            table = self.cursor(own, url).stdout
        assert "matched" in table
        assert max(len(line) for line in table.splitlines()) <= 80

    def test_a_vendor_that_refuses_the_key_is_status_1(self, own):
        with serving(CursorApi(EVENTS, faults=[(403, [])])) as url:
            assert "refused the key" in self.cursor(own, url, status=1).stderr

    def test_an_export_beside_what_was_made_at_that_provider(self, own):
        file = str(BILLS / "anthropic_usage.csv")
        (row,) = json.loads(run(reconcile.command, own, "anthropic", file, "--format", "json").stdout)["rows"]
        assert (row["day"], row["model"], row["state"]) == ("2026-08-19", "claude-sonnet-4.5", "differs")
        assert (row["our_calls"], row["our_cost_status"]) == (2, "partial")
        assert row["difference_tokens"]["input_tokens"] == 314 - 1000

    def test_an_openrouter_export_with_its_charge(self, own):
        file = str(BILLS / "openrouter_activity.json")
        (row,) = json.loads(run(reconcile.command, own, "openrouter", file, "--format", "json").stdout)["rows"]
        assert (row["our_cost_usd"], row["billed_usd"]) == (0.0123, 0.015)

    def test_a_file_that_is_no_export_is_status_1(self, own, tmp_path):
        file = Path(tmp_path, "x.json")
        file.write_text("[]x")
        assert "neither JSON nor CSV" in run(reconcile.command, own, "openai", str(file), status=1).stderr

    @pytest.mark.parametrize("words", [("openai",), ("cursor", "x.csv"), ("acme",), ("cursor", "--since", "soon")])
    def test_bad_usage_is_status_2(self, own, words):
        run(reconcile.command, own, *words, status=2)
