"""The main job as a user sees it: call, line, ledger, report and API, and the refusals that must never be summed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.programs import BIN, clean_environment, collector, free_port, report, running_collector, running_shim
from tests.e2e.provider import provider


def post(url: str, model: str, agent: str = "PicoClaw/0.2") -> None:
    body = {"model": model, "messages": [{"role": "user", "content": "say hello"}]}
    httpx.post(url, json=body, headers={"User-Agent": agent}).raise_for_status()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A VM on which three calls were made through the shim: priced, without a price, and of a self-reporting agent."""
    with provider() as upstream, running_shim(tmp_path, {"OPENAI": upstream.url}) as shim:
        url = f"{shim.url}/picoclaw/openai/v1/chat/completions"
        post(url, "gpt-5-mini")
        post(url, "acme-unlisted-1")
        post(url, "gpt-5-mini", agent="claude-cli/2.1 (external, cli)")
        status = httpx.get(f"{shim.url}/-/status").json()
        assert "self_reporting_agent" in str(status)
        assert len(shim.stop()) == 2
        collector(shim.environ, "ingest", "--log", str(shim.log))
        return shim.environ


def by_model(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["model"]: row for row in rows}


def test_a_picoclaw_call_has_tokens_and_cost_and_an_unknown_model_has_tokens_only(environ: dict[str, str]) -> None:
    rows = by_model(report(environ, "model"))
    assert set(rows) == {"gpt-5-mini", "acme-unlisted-1"}
    # gpt-5-mini: $0.25 input, $0.025 cached input, $2 output per million tokens.
    assert rows["gpt-5-mini"]["cost_usd"] == pytest.approx((176 * 0.25 + 1024 * 0.025 + 150 * 2) / 1e6, abs=1e-12)
    assert rows["gpt-5-mini"]["cost_status"] == "exact"
    unlisted = rows["acme-unlisted-1"]
    assert (unlisted["cost_usd"], unlisted["cost_status"], unlisted["output_tokens"]) == (None, "tokens_only", 150)


def test_ingesting_twice_is_ingesting_once(environ: dict[str, str]) -> None:
    before = report(environ, "session")
    collector(environ, "ingest", "--log", environ["VM_USAGE_LOG"])
    assert report(environ, "session") == before


def test_the_endpoints_answer_with_the_rows_of_the_report(environ: dict[str, str], tmp_path: Path) -> None:
    with running_collector(environ, tmp_path) as base:
        rows = {
            name: httpx.get(f"{base}/api/local/{name}").json()["rows"]
            for name in ("aggregates", "models?since=2026-08-01", "runtimes", "sessions?limit=50")
        }
    assert by_model(rows["models?since=2026-08-01"])["gpt-5-mini"] == by_model(report(environ, "model"))["gpt-5-mini"]
    assert [row["runtime"] for row in rows["runtimes"]] == ["picoclaw"]
    assert sum(row["output_tokens"] for row in rows["aggregates"]) == 300
    assert {"session_id", "cost_usd", "cost_status", "model"} <= set(rows["sessions?limit=50"][0])


def test_a_bad_line_is_kept_aside_and_never_blocks_the_rest(environ: dict[str, str]) -> None:
    log = Path(environ["VM_USAGE_LOG"])
    good = log.read_bytes().splitlines(keepends=True)[0]
    renamed = good.replace(b'"id":"', b'"id":"other', 1)
    log.write_bytes(log.read_bytes() + b"no json\n" + renamed + b'{"v":1,"id":"half')
    collector(environ, "ingest", "--log", str(log))
    assert by_model(report(environ, "model"))["gpt-5-mini"]["output_tokens"] == 300


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"VM_USAGE_LOG": "/proc/none/usage.jsonl"}, "/proc/none"),
        ({"VM_USAGE_ALLOWLIST": "/none/allowlist.yaml"}, "/none/allowlist.yaml"),
        ({"VM_USAGE_RUNTIM": "picoclaw"}, "VM_USAGE_RUNTIME"),
        ({"VM_USAGE_SHIM_PORT": "many"}, "VM_USAGE_SHIM_PORT"),
    ],
)
def test_bad_configuration_is_one_sentence_and_exit_2(tmp_path: Path, settings: dict[str, str], sentence: str) -> None:
    environ = clean_environment(tmp_path, VM_USAGE_SHIM_PORT=str(free_port())) | settings
    done = subprocess.run([BIN / "usage-shim", "run"], env=environ, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_one_sentence_and_exit_2(tmp_path: Path) -> None:
    with running_shim(tmp_path, {}) as shim:
        done = subprocess.run([BIN / "usage-shim", "run"], env=shim.environ, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert shim.environ["VM_USAGE_SHIM_PORT"] in done.stderr
