"""What PicoClaw's model entries mean, and where each would have to point to be metered. Pure.

``model_list[]`` is the only place where PicoClaw keeps an LLM base URL; no environment variable sets one. Facts from
https://github.com/sipeed/picoclaw at cf67dd385 (2026-06): pkg/providers/provider_metadata.go (names, aliases, default
bases), factory_provider.go (who reads ``api_base``), openai_compat/provider.go (what depends on the host).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from shim.names import ConfigError
from shim.upstreams import ALSO_NAMED, BASES, DEFAULT_PORTS, parse

RUNTIME: Final = "picoclaw"
SHIM_HOST: Final = "127.0.0.1"

# Protocols that read api_base, with the base they use where an entry gives none; Azure has none.
DEFAULT_BASES: Final[Mapping[str, str | None]] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "anthropic-messages": "https://api.anthropic.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
    "deepseek": "https://api.deepseek.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "qwen-portal": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "qwen-intl": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    "qwen-us": "https://dashscope-us.aliyuncs.com/compatible-mode/v1",
    "alibaba-coding": "https://coding-intl.dashscope.aliyuncs.com/v1",
    "alibaba-coding-anthropic": "https://coding-intl.dashscope.aliyuncs.com/apps/anthropic",
    "moonshot": "https://api.moonshot.cn/v1",
    "volcengine": "https://ark.cn-beijing.volces.com/api/v3",
    "zhipu": "https://open.bigmodel.cn/api/paas/v4",
    "zai": "https://api.z.ai/api/coding/paas/v4",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "nvidia": "https://integrate.api.nvidia.com/v1",
    "cerebras": "https://api.cerebras.ai/v1",
    "venice": "https://api.venice.ai/api/v1",
    "shengsuanyun": "https://router.shengsuanyun.com/api/v1",
    "siliconflow": "https://api.siliconflow.cn/v1",
    "vivgrid": "https://api.vivgrid.com/v1",
    "minimax": "https://api.minimaxi.com/v1",
    "longcat": "https://api.longcat.chat/openai",
    "modelscope": "https://api-inference.modelscope.cn/v1",
    "mimo": "https://api.xiaomimimo.com/v1",
    "avian": "https://api.avian.io/v1",
    "novita": "https://api.novita.ai/openai",
    "ollama": "http://localhost:11434/v1",
    "vllm": "http://localhost:8000/v1",
    "lmstudio": "http://localhost:1234/v1",
    "litellm": "http://localhost:4000/v1",
    "gpt4free": "http://localhost:1337/v1",
    "azure": None,
}
ALIASES: Final[Mapping[str, str]] = {
    "gpt": "openai",
    "claude": "anthropic",
    "google": "gemini",
    "qwen": "qwen-portal",
    "qwen-international": "qwen-intl",
    "dashscope-intl": "qwen-intl",
    "dashscope-us": "qwen-us",
    "glm": "zhipu",
    "z.ai": "zai",
    "z-ai": "zai",
    "coding-plan": "alibaba-coding",
    "qwen-coding": "alibaba-coding",
    "coding-plan-anthropic": "alibaba-coding-anthropic",
    "azure-openai": "azure",
    "copilot": "github-copilot",
    "google-antigravity": "antigravity",
    "claudecli": "claude-cli",
    "codexcli": "codex-cli",
    "g4f": "gpt4free",
}
# Protocols that cannot or must not be metered here, and why.
UNMETERED: Final[Mapping[str, str]] = {
    "antigravity": "signs in with Google and calls a fixed address; what it uses stays unknown",
    "github-copilot": "is spoken to through the Copilot SDK on its own port; what it uses stays unknown",
    "claude-cli": "runs Claude Code, which keeps its own record; metering it too would count twice",
    "codex-cli": "runs Codex, which keeps its own record; metering it too would count twice",
    "bedrock": "AWS signatures (SigV4) cover the host name, so calls through another host are refused",
    "elevenlabs": "makes speech and counts no tokens",
}
OAUTH: Final = "signs in with OAuth and calls a fixed address (api_base is not read); what it uses stays unknown"
DISABLED: Final = "is disabled"
OWN_PROXY: Final = "has a proxy of its own, which cannot reach this machine's loopback: give the shim the proxy instead"
NO_BASE: Final = "has no api_base and its provider has no default one"
# Model traffic outside model_list, by path of its switch.
OUTSIDE: Final[Mapping[tuple[str, ...], str]] = {
    ("tools", "web", "gemini"): "web search by Gemini has no base URL; what it uses stays unknown",
    ("tools", "web", "perplexity"): "web search by Perplexity has no base URL; what it uses stays unknown",
    ("tools", "web", "glm_search"): "web search by GLM speaks no known wire; what it uses stays unknown",
    (
        "tools",
        "web",
        "baidu_search",
    ): "web search by Baidu speaks no known wire; what it uses stays unknown",
}
# PicoClaw looks for some vendors' names in the base URL (normalizeModel), so the URL names them so.
NAMED_IN_URL: Final[Mapping[str, str]] = {name: other for other, name in ALSO_NAMED.items()}
# Where PicoClaw looks at the host: protocol that says the same whatever the host.
KNOWN_BY_HOST: Final[Mapping[str, str]] = {
    "deepseek.com": "deepseek",
    "xiaomimimo.com": "mimo",
    "volces.com": "volcengine",
    "dashscope.aliyuncs.com": "qwen-portal",
}
OPENAI_HOSTS: Final = ("api.openai.com", ".openai.azure.com")
CACHE_KEY_NOTE: Final = "PicoClaw sends prompt_cache_key and native web search to OpenAI's own host name only"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to become of one entry.

    ``base``: the URL the calls go to in the end, ``None`` where they cannot be metered. ``reason``: why not.
    ``note``: what else changes with another base URL.
    """

    base: str | None = None
    reason: str | None = None
    note: str | None = None


def plan(entry: Mapping[str, Any]) -> Plan:
    """Whether and how calls of a model entry can be metered; ``api_base`` must not be the shim's own."""
    protocol = protocol_of(entry)
    if entry.get("enabled") is False:
        return Plan(reason=DISABLED)
    if protocol in UNMETERED:
        return Plan(reason=UNMETERED[protocol])
    if _text(entry, "auth_method").lower() in ("oauth", "token") and protocol in ("openai", "anthropic"):
        return Plan(reason=OAUTH)
    if _text(entry, "proxy"):
        return Plan(reason=OWN_PROXY)
    base = _text(entry, "api_base") or DEFAULT_BASES.get(protocol)
    if not base:
        return Plan(reason=NO_BASE if protocol in DEFAULT_BASES else f"has a provider that is not known ({protocol})")
    try:
        host = parse("x", base).host
    except ConfigError:
        return Plan(reason="has an api_base that is not a plain http or https URL")
    return Plan(base=base, note=_note(protocol, host))


def protocol_of(entry: Mapping[str, Any]) -> str:
    """The provider's canonical name: from ``provider``, else the known prefix of ``model``, else ``openai``."""
    if provider := _text(entry, "provider").lower():
        return ALIASES.get(provider, provider)
    prefix, slash, _ = _text(entry, "model").partition("/")
    prefix = ALIASES.get(prefix.strip().lower(), prefix.strip().lower())
    return prefix if slash and (prefix in DEFAULT_BASES or prefix in UNMETERED) else "openai"


def shim_base(port: int, upstream: str, path: str) -> str:
    """The ``api_base`` that leads through the shim to ``path`` of an upstream."""
    return f"http://{SHIM_HOST}:{port}/{RUNTIME}/{NAMED_IN_URL.get(upstream, upstream)}{path}"


def through_shim(base: str) -> tuple[int, str, str] | None:
    """Port, upstream and path of an ``api_base`` that leads through a shim, ``None`` for any other."""
    try:
        url = urlsplit(base.strip())
        port = url.port
    except ValueError:
        return None
    _, runtime, upstream, path = (*url.path.split("/", 3), "", "", "")[:4]
    if url.scheme != "http" or url.hostname not in (SHIM_HOST, "localhost") or runtime != RUNTIME or not upstream:
        return None
    return port or 80, ALSO_NAMED.get(upstream, upstream), f"/{path}" if path else ""


def split_base(base: str) -> tuple[str, str]:
    """Scheme and host, and path, of a base URL; ``localhost`` is ``127.0.0.1`` and a usual port is left out."""
    upstream = parse("x", base)
    host = f"[{upstream.host}]" if ":" in upstream.host else upstream.host
    host = SHIM_HOST if host == "localhost" else host
    port = "" if upstream.port == DEFAULT_PORTS[upstream.scheme] else f":{upstream.port}"
    return f"{upstream.scheme}://{host}{port}", upstream.prefix


def upstream_name(origin: str, known: Mapping[str, str]) -> tuple[str, bool]:
    """The name of the upstream at ``origin`` (scheme and host) and whether it is new.

    ``known``: names that the operator gave, to their base URLs; they come before the shim's own table. A new name is
    made of the host: ``llm.example.com`` is ``llm-example-com``, ``127.0.0.1:4319`` is ``local-4319``.
    """
    for table in (known, {name: base for name, base in BASES.items() if name not in known}):
        for name, base in table.items():
            if base.rstrip("/") == origin:
                return name, False
    url = urlsplit(origin)
    host, port = url.hostname or "", f"-{url.port}" if url.port else ""
    if host == SHIM_HOST:
        name = f"local{port}"
    elif host.endswith(".openai.azure.com"):
        name = f"azure-{host.partition('.')[0]}"
    else:
        name = host + port
    name = "-".join(part for part in "".join(c if c.isalnum() else "-" for c in name.lower()).split("-") if part)
    taken = {*known, *BASES}
    return next(name + suffix for suffix in ("", *(f"-{n}" for n in range(2, 99))) if name + suffix not in taken), True


def _note(protocol: str, host: str) -> str | None:
    if host.endswith(OPENAI_HOSTS) and protocol in ("openai", "azure"):
        return CACHE_KEY_NOTE if protocol == "openai" else None
    for suffix, provider in KNOWN_BY_HOST.items():
        if protocol == "openai" and (host == suffix or host.endswith(f".{suffix}")):
            return f'PicoClaw knows this vendor by its host name: set "provider": "{provider}" to keep its handling'
    return None


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value.strip() if isinstance(value, str) else ""
