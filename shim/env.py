"""``usage-shim env``: the exports that point a runtime at the shim, in each variable's own path convention.

Nothing is on by default and a user's own value wins (``: "${NAME:=…}"``). SDKs differ in what they append: Anthropic's
base URL has no ``/v1``, OpenAI's has one, Gemini's has no version, Ollama's is a host. Where a variable is ignored by a
client or changes what it does, that is said on standard error, since a meter that changes behaviour is not one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click

from shim import allowlist
from shim.allowlist import RUNTIMES, Allowlist
from shim.names import ConfigError
from shim.settings import Settings

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: ``path`` is what its URL has after ``/<runtime>``; ``value`` is set instead of a URL."""

    name: str
    path: str = ""
    value: str | None = None


# Variables of SDKs that many programs share, with the source of each convention.
SDK: Final = (
    Variable("ANTHROPIC_BASE_URL", "/anthropic"),  # anthropic-sdk-python _client.py: appends /v1/messages
    Variable("OPENAI_BASE_URL", "/openai/v1"),  # openai-python _client.py: appends /chat/completions, /responses
    Variable("OPENAI_API_BASE", "/openai/v1"),  # openai-python before 1.0, LangChain, LiteLLM
    Variable("GOOGLE_GEMINI_BASE_URL", "/gemini"),  # python-genai _base_url.py: appends /v1beta/models/…
    Variable("OPENROUTER_BASE_URL", "/openrouter/api/v1"),
    Variable("XAI_BASE_URL", "/xai/v1"),
    Variable("GROQ_BASE_URL", "/groq/openai/v1"),
    Variable("MOONSHOT_BASE_URL", "/moonshot/v1"),
    Variable("DEEPSEEK_BASE_URL", "/deepseek/v1"),
)
_SDK: Final = {variable.name: variable for variable in SDK}
KIMI: Final = Variable("KIMI_BASE_URL", "/kimi/coding/v1")  # kimi-cli docs/en/configuration/env-vars.md

OWN: Final[Mapping[str, tuple[Variable, ...]]] = {
    "aider": (_SDK["OPENAI_API_BASE"], Variable("ANTHROPIC_API_BASE", "/anthropic")),  # LiteLLM's names
    "claude_code": (_SDK["ANTHROPIC_BASE_URL"], Variable("ENABLE_TOOL_SEARCH", value="true")),
    "cline": (),
    "codex": (),
    "copilot": (Variable("COPILOT_PROVIDER_BASE_URL", "/openai/v1"),),
    "cursor": (),
    "devin": (),
    "gemini_cli": (_SDK["GOOGLE_GEMINI_BASE_URL"], Variable("GOOGLE_VERTEX_BASE_URL", "/vertex")),
    "goose": (Variable("OPENAI_HOST", "/openai"), Variable("ANTHROPIC_HOST", "/anthropic")),
    "kimi_cli": (KIMI,),
    "kimi_code": (KIMI,),
    "openclaw": (),
    "opencode": (),
    "pi": (),
    "qwen_code": (_SDK["OPENAI_BASE_URL"],),
}
# What to do for a runtime that no variable reaches, or not wholly.
INSTEAD: Final[Mapping[str, str]] = {
    "picoclaw": (
        "PicoClaw itself reads no base-URL variable: run usage-shim provision picoclaw --apply. "
        "The variables reach programs with SDKs of their own that it starts."
    ),
    "cursor": "Cursor's client cannot be pointed at a base URL: put usage-shim capture in front of cursor-agent.",
    "cline": "Cline keeps base URLs in its provider settings: cline auth … --baseurl {base}/openai/v1.",
    "codex": 'Codex ignores OPENAI_BASE_URL: set openai_base_url = "{base}/openai/v1" in its config.toml.',
    "copilot": "Copilot CLI reads COPILOT_PROVIDER_BASE_URL for a key of your own; for Anthropic without /v1.",
    "devin": "Devin reads no base-URL variable.",
    "openclaw": "OpenClaw keeps base URLs in openclaw.json: models.providers.<id>.baseUrl, such as {base}/openai/v1.",
    "opencode": (
        "opencode keeps base URLs in opencode.json: provider.<id>.options.baseURL, with /v1 also for Anthropic: "
        "{base}/anthropic/v1."
    ),
    "pi": "Pi keeps base URLs in its models.json: baseUrl of a provider, such as {base}/openai/v1.",
}
# Said when a variable is set, because of what it does beside that.
WARNINGS: Final[Mapping[str, str]] = {
    "OPENAI_BASE_URL": "OPENAI_BASE_URL is ignored by recent Codex, which reads openai_base_url in config.toml.",
    "ANTHROPIC_BASE_URL": (
        "Claude Code turns MCP tool search off for any base URL but Anthropic's: ENABLE_TOOL_SEARCH=true keeps it; "
        "some of its versions also assume a smaller context window."
    ),
    "GOOGLE_GEMINI_BASE_URL": "GOOGLE_GEMINI_BASE_URL: Gemini CLI from 0.41.2 accepts http for loopback names only.",
}
OLLAMA_WARNING: Final = (
    "OLLAMA_HOST is left alone: it is also the address that ollama serve listens on. "
    "For a client only, set OLLAMA_HOST={host} with VM_USAGE_RUNTIME={runtime} at the shim."
)
FORMATS: Final = ("sh", "systemd", "json")


def exports(runtime: str, port: int) -> dict[str, str]:
    """The variables that point ``runtime`` at the shim, with their values; empty where it reads none."""
    base = f"http://{HOST}:{port}/{runtime}"
    variables = OWN.get(runtime, SDK)
    return {variable.name: variable.value or base + variable.path for variable in variables}


def warnings(runtime: str, port: int) -> list[str]:
    """Sentences for a person: what is ignored, what changes, what to do where there is no variable."""
    names = exports(runtime, port)
    said = [text for name, text in WARNINGS.items() if name in names]
    if runtime in INSTEAD:
        said.append(INSTEAD[runtime].format(base=f"http://{HOST}:{port}/{runtime}"))
    if OWN.get(runtime, SDK) is SDK:
        said.append(OLLAMA_WARNING.format(host=f"{HOST}:{port}", runtime=runtime))
    return said


def render(variables: Mapping[str, str], form: str) -> str:
    """The variables as shell (a set value wins), as a systemd EnvironmentFile, or as JSON."""
    if form == "json":
        return json.dumps(variables, indent=2) + "\n"
    if form == "systemd":
        return "".join(f"{name}={value}\n" for name, value in variables.items())
    return "".join(f': "${{{name}:={value}}}"\nexport {name}\n' for name, value in variables.items())


def check_runtime(runtime: str, allowed: Allowlist, forward_only: bool) -> str | None:
    """A warning where the runtime would be forwarded and not metered; ``None`` where all is well.

    Raises ``ConfigError`` for an unknown runtime and for one that keeps its own record, unless ``forward_only``.
    """
    if runtime in allowed.self_reporting and not forward_only:
        raise ConfigError(
            f"{runtime} keeps its own record of usage, so the shim would only forward its calls: "
            "give --forward-only if that is what you want."
        )
    if runtime not in RUNTIMES and runtime not in allowed.token_blind and runtime not in allowed.self_reporting:
        raise ConfigError(f"{runtime} is not a runtime of the allowlist: it has {', '.join(sorted(RUNTIMES))}.")
    return None if allowed.allows(runtime) else f"{runtime} is forwarded and not metered."


@click.command("env", short_help="The exports that point a runtime at the shim.")
@click.option("--runtime", required=True, help="Runtime key of the allowlist.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="sh", show_default=True)
@click.option("--forward-only", is_flag=True, help="Also for a runtime that keeps its own record: it is not metered.")
def command(runtime: str, form: str, forward_only: bool) -> None:
    """Print the exports that point a runtime at the shim; warnings go to standard error."""
    settings = Settings.from_env(os.environ)
    allowed = allowlist.load(settings.allowlist, settings.allow)
    warning = check_runtime(runtime, allowed, forward_only)
    for text in [warning, *warnings(runtime, settings.port)]:
        if text:
            click.echo(f"usage-shim env: {text}", err=True)
    click.echo(render(exports(runtime, settings.port), form), nl=False)
