"""The review of logs on their own: totals, facts and every kind of finding, through the command."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from collector.audit.suspicion import suspect
from collector.commands.audit import command
from collector.settings import Settings
from shim.identity import reference
from shim.line import Line, Tokens, encode
from tests.shim.test_line import LINE


def line(seq: int, boot: str = "20261130T200501123Z5d0c6f2a91be", **values: Any) -> Line:
    return replace(
        LINE, **{"id": f"{boot}-{seq}", "session": reference(b"k", "session", "s"), "response": None, **values}
    )


def audit(tmp_path: Path, data: bytes, name: str = "usage.jsonl") -> tuple[int, dict[str, Any]]:
    log = tmp_path / name
    log.write_bytes(data)
    settings = Settings.from_env({"VM_USAGE_STATE": str(tmp_path), "VM_USAGE_TZ": "UTC", "VM_USAGE_VM": "x"})
    result = CliRunner().invoke(command, [str(log), "--json"], obj=settings)
    return result.exit_code, json.loads(result.stdout)


GOOD = b"".join(encode(line(seq)) for seq in (1, 2, 3))
FIRST = GOOD.splitlines(keepends=True)[0]


def test_a_good_log_has_totals_and_no_finding(tmp_path: Path) -> None:
    status, found = audit(tmp_path, GOOD)
    assert (status, found["clean"], found["lines"]) == (0, True, 3)
    (row,) = found["rows"]
    assert (row["day"], row["model"], row["calls"], row["input_tokens"], row["cache_write_tokens"]) == (
        "2026-11-30", "gpt-5-mini", 3, 528, None,
    )  # fmt: skip


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_compressed_logs_are_read_too(tmp_path: Path, pack: Any) -> None:
    assert audit(tmp_path, pack(GOOD))[1]["lines"] == 3


def test_restarts_and_interrupted_calls_are_facts(tmp_path: Path) -> None:
    again = encode(
        line(1, boot="20261201T000000000Zaaaaaaaaaaaa", outcome="interrupted", tokens=Tokens(), usage="missing")
    )
    status, found = audit(tmp_path, GOOD + again)
    assert (status, found["facts"]["restarts"], found["facts"]["interrupted"]) == (0, 1, 1)


def test_a_gap_is_named_by_its_numbers(tmp_path: Path) -> None:
    status, found = audit(tmp_path, GOOD + encode(line(7)))
    assert status == 1
    assert [(gap["first_seq"], gap["last_seq"], gap["lines"]) for gap in found["findings"]["gaps"]] == [(4, 6, 3)]


def test_a_line_that_is_there_twice_is_counted_once(tmp_path: Path) -> None:
    status, found = audit(tmp_path, GOOD + GOOD[: GOOD.index(b"\n") + 1])
    assert (status, found["findings"]["duplicates"], found["rows"][0]["calls"]) == (1, 1, 3)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"hello\n", "not_json"),
        (GOOD[:40] + b"\n", "torn"),
        (FIRST.replace(b'"output_tokens":150', b'"output_tokens":-1'), "field:output_tokens"),
        (FIRST.replace(b'"v":1', b'"v":9'), "version"),
        (b'{"v":1,"pad":"' + b"x" * 3_000_000 + b'"}\n', "too_long"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_file_and_offset(tmp_path: Path, data: bytes, reason: str) -> None:
    status, found = audit(tmp_path, GOOD + data)
    place = {"file": str(tmp_path / "usage.jsonl"), "offset": len(GOOD)}
    assert (status, found["lines"]) == (1, 4)
    assert found["findings"]["quarantine"] == {reason: {"count": 1, "examples": [place]}}


def test_an_unfinished_last_line_waits(tmp_path: Path) -> None:
    status, found = audit(tmp_path, GOOD + b'{"v":1')
    assert (status, found["facts"]["waiting"]) == (0, 1)


def test_an_unknown_key_is_a_finding(tmp_path: Path) -> None:
    first = FIRST.replace(b'"v":1', b'"v":1,"note":1')
    status, found = audit(tmp_path, first)
    assert (status, list(found["findings"]["unknown_keys"])) == (1, ["note"])


def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    status, found = audit(tmp_path, gzip.compress(GOOD)[:-9])
    assert (status, len(found["findings"]["unreadable"])) == (1, 1)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("model", "sk-ant-REDACTED0"),
        ("model", "AKIAABCDEFGHIJKLMNOP"),
        ("model", "me@example.com"),
        ("model", "https://example.com"),
        ("model", "/home/agent/notes"),
        ("session", "please summarise this"),
        ("note", "eyJhbGciOiJIUzI1NiJ9.x"),
        ("outcome", "exploded"),
        ("response", "x" * 70),
    ],
)
def test_what_could_be_content_is_suspicious(key: str, text: str) -> None:
    assert suspect(key, text) is not None


@pytest.mark.parametrize(
    "model",
    ["gpt-5-mini", "openai/gpt-5:free", "anthropic.claude-v2:1", "accounts/fireworks/models/llama", "Qwen/Qwen3@v2"],
)
def test_model_names_are_not(model: str) -> None:
    assert suspect("model", model) is None


@given(st.text(), st.sampled_from(["session", "response"]))
def test_no_reference_of_ours_is_suspicious(value: str, kind: str) -> None:
    assert suspect(kind, reference(b"key", kind, value)) is None
