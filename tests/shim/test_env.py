"""``usage-shim env``: each variable in its own convention, a user's value wins, nobody is pointed here by mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shim import allowlist
from shim.allowlist import RUNTIMES
from shim.env import INSTEAD, OWN, SDK, check_runtime, exports, warnings
from shim.names import ConfigError
from shim.places import CHECKOUT_ALLOWLIST
from shim.routes import Routes
from shim.upstreams import known_upstreams

BASE = "http://127.0.0.1:4141"
ENVIRON = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2]), "HOME": "/nonexistent"}


def env(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "shim", "env", *options]
    return subprocess.run(argv, env={**ENVIRON, **environ}, capture_output=True, text=True, timeout=30)


def test_each_sdk_variable_has_the_path_that_its_sdk_expects() -> None:
    found = json.loads(env("--runtime", "picoclaw", "--format", "json").stdout)
    assert found["ANTHROPIC_BASE_URL"] == f"{BASE}/picoclaw/anthropic"
    assert found["OPENAI_BASE_URL"] == found["OPENAI_API_BASE"] == f"{BASE}/picoclaw/openai/v1"
    assert found["GOOGLE_GEMINI_BASE_URL"] == f"{BASE}/picoclaw/gemini"
    assert found["OPENROUTER_BASE_URL"] == f"{BASE}/picoclaw/openrouter/api/v1"


# What each variable's client appends, and the wire that must come out at the shim.
APPENDED = {
    "ANTHROPIC_BASE_URL": ("/v1/messages", "anthropic-messages"),
    "ANTHROPIC_API_BASE": ("/v1/messages", "anthropic-messages"),
    "ANTHROPIC_HOST": ("/v1/messages", "anthropic-messages"),
    "OPENAI_HOST": ("/v1/chat/completions", "openai-chat"),
    "GOOGLE_GEMINI_BASE_URL": ("/v1beta/models/gemini-2.5-pro:generateContent", "gemini"),
    "GOOGLE_VERTEX_BASE_URL": (
        "/v1/projects/p/locations/l/publishers/google/models/gemini-2.5-pro:generateContent",
        "gemini",
    ),
}


@pytest.mark.parametrize("runtime", sorted(RUNTIMES))
def test_what_a_client_appends_is_routed_to_the_right_wire(runtime: str) -> None:
    routes = Routes(known_upstreams({}), RUNTIMES)
    for name, value in exports(runtime, 4141).items():
        if value.startswith("http"):
            path, wire = APPENDED.get(name, ("/chat/completions", "openai-chat"))
            place, _ = routes.find(value.removeprefix(BASE) + path)
            assert (place.runtime, place.wire) == (runtime, wire)


@pytest.mark.parametrize("runtime", sorted(RUNTIMES))
def test_every_runtime_has_a_variable_or_a_word_of_what_to_do(runtime: str) -> None:
    assert exports(runtime, 4141) or warnings(runtime, 4141)


def test_a_users_own_value_wins(tmp_path: Path) -> None:
    script = env("--runtime", "picoclaw").stdout
    shell = 'eval "$1"; echo "$OPENAI_BASE_URL $ANTHROPIC_BASE_URL"; env | grep -c ^ANTHROPIC_BASE_URL='
    argv = ["sh", "-euc", shell, "sh", script]
    done = subprocess.run(
        argv, env={"OPENAI_BASE_URL": "https://mine", "PATH": os.environ["PATH"]}, capture_output=True
    )
    assert done.stdout.decode() == f"https://mine {BASE}/picoclaw/anthropic\n1\n"


def test_systemd_form_is_names_and_values() -> None:
    lines = env("--runtime", "picoclaw", "--format", "systemd").stdout.splitlines()
    assert f"OPENAI_BASE_URL={BASE}/picoclaw/openai/v1" in lines
    assert len(lines) == len(SDK)


def test_the_port_is_the_shims() -> None:
    assert ":4242/picoclaw/" in env("--runtime", "picoclaw", VM_USAGE_SHIM_PORT="4242").stdout


@pytest.mark.parametrize("runtime", sorted(allowlist.load(CHECKOUT_ALLOWLIST).self_reporting))
def test_a_self_reporting_runtime_is_refused_unless_it_is_only_forwarded(runtime: str) -> None:
    assert exports(runtime, 4141) or runtime in INSTEAD
    with pytest.raises(ConfigError, match="--forward-only"):
        check_runtime(runtime, allowlist.load(CHECKOUT_ALLOWLIST), forward_only=False)


def test_the_refusal_is_one_sentence_and_two() -> None:
    done = env("--runtime", "claude_code")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    forwarded = env("--runtime", "claude_code", "--forward-only")
    assert forwarded.returncode == 0
    assert "ENABLE_TOOL_SEARCH:=true" in forwarded.stdout
    assert "not metered" in forwarded.stderr


def test_warnings_name_what_is_ignored_and_what_changes() -> None:
    said = env("--runtime", "picoclaw").stderr
    for part in ("provision picoclaw", "Codex", "tool search", "OLLAMA_HOST"):
        assert part in said


def test_codex_is_told_its_own_way() -> None:
    done = env("--runtime", "codex", "--forward-only")
    assert done.stdout == ""
    assert f'openai_base_url = "{BASE}/codex/openai/v1"' in done.stderr


def test_cursor_is_sent_to_capture() -> None:
    done = env("--runtime", "cursor")
    assert (done.returncode, done.stdout) == (0, "")
    assert "usage-shim capture" in done.stderr


def test_an_unknown_runtime_is_refused() -> None:
    assert env("--runtime", "nobody").returncode == 2


def test_the_tables_hold_runtimes_only() -> None:
    assert set(OWN) | set(INSTEAD) <= RUNTIMES
