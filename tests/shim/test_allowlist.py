"""The allowlist is read strictly: every mistake names file, line and key."""

from pathlib import Path

import pytest

from shim.allowlist import RUNTIMES, TOKEN_BEARING, load, parse
from shim.names import ConfigError

SHIPPED = Path(__file__).parent.parent.parent / "allowlist.yaml"


def sentence(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse(text, Path("/etc/a.yaml"))
    return str(error.value)


def test_the_shipped_file_holds_every_runtime_once() -> None:
    shipped = load(SHIPPED)
    assert set(shipped.token_blind) == {"cursor", "picoclaw"} == shipped.metered
    assert set(shipped.self_reporting) == TOKEN_BEARING
    assert TOKEN_BEARING | shipped.metered == RUNTIMES


@pytest.mark.parametrize(
    ("agent", "runtime"),
    [
        ("claude-cli/2.1.332 (external, cli)", "claude_code"),
        ("codex_exec/0.171.0 (Debian 12.0.0; x86_64)", "codex"),
        ("GeminiCLI-tui/0.61.0/gemini-2.5-flash (linux; x64; terminal)", "gemini_cli"),
        ("KimiCLI/1.49.0", "kimi_cli"),
        ("opencode/1.18.33 ai-sdk/provider-utils/4.0.23", "opencode"),
        ("pi/1.6.0 (linux; node/v24.19.0; x64)", "pi"),
        ("QwenCode/0.24.4 (linux; x64)", "qwen_code"),
        ("CLAUDE-CLI/9", "claude_code"),
        ("PicoClaw/0.2", None),
        ("OpenAI/Python 2.20.0", None),
        ("pip/25.1", None),
        ("", None),
    ],
)
def test_a_user_agent_belongs_to_its_runtime(agent: str, runtime: str | None) -> None:
    assert load(SHIPPED).self_reporting_agent(agent) == runtime


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 2\n", "/etc/a.yaml:1: version must be 1"),
        ("token_blind: {}\n", "version must be 1"),
        ("version: 1\ntoken_blid: {}\n", "/etc/a.yaml:2: token_blid is not a section (did you mean token_blind?)"),
        (
            "version: 1\ntoken_blind:\n  picoclaw: {wy: x}\n",
            "/etc/a.yaml:3: picoclaw.wy is not a key (did you mean why?)",
        ),
        ("version: 1\ntoken_blind:\n  picoclaw: {}\n", "/etc/a.yaml:3: picoclaw.why is missing"),
        ("version: 1\ntoken_blind:\n  picclaw: {why: x}\n", "did you mean picoclaw?"),
        ("version: 1\ntoken_blind:\n\n  cline: {why: x}\n", "/etc/a.yaml:4: cline keeps its own record"),
        ("version: 1\nself_reporting:\n  pi: {records: [x]}\n", "/etc/a.yaml:3: pi.why must be a single value"),
        ("version: 1\ntoken_blind:\n  pi: {why: x}\nself_reporting:\n  pi: {records: x}\n", "pi is in both lists"),
        (
            "version: 1\ntoken_blind:\n  picoclaw: {why: x}\n  picoclaw: {why: y}\n",
            "/etc/a.yaml:4: picoclaw is there twice",
        ),
        ("version: 1\ntoken_blind:\n  picoclaw: {why: x, user_agents: y}\n", "picoclaw.user_agents must be a list"),
        ("version: 1\n  x: [\n", "/etc/a.yaml:2: not valid YAML"),
        ("version: !!python/name:os.system\n", "version has a tag that is not allowed"),
        ("- 1\n", "the file must be a mapping"),
        ("", "the file must be a mapping"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(text: str, expected: str) -> None:
    assert expected in sentence(text)


def test_an_unreadable_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "none.yaml")


def test_allow_narrows_and_never_widens() -> None:
    assert load(SHIPPED, "picoclaw").metered == {"picoclaw"}
    with pytest.raises(ConfigError, match="count twice"):
        load(SHIPPED, "picoclaw,claude_code")
    with pytest.raises(ConfigError, match="did you mean picoclaw"):
        load(SHIPPED, "picclaw")
