"""Which price list a call belongs to: our own tables, never the price library's guess.

``provider_of`` answers from what is known about the call, in this order: the upstream of the shim's route, the provider
that a store names, the provider that a runtime implies, the prefix of ``anthropic/claude-…`` ids, and last the maker of
a model family where a store names nothing else. A name that stands in none of these tables has no price here; an
operator's own price is the way to give it one. Ids on the right are those of the price book (genai-prices).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

# Names of upstreams (shim) and of providers (stores), lower case with "-" for "_", to ids of the price book.
# A name that maps to None is known and has no list in the book: it must not fall through to a model family.
PROVIDERS: Final[Mapping[str, str | None]] = MappingProxyType(
    {
        "openai": "openai",
        "openai-native": "openai",
        "openai-codex": "openai",
        "azure": "azure",
        "azure-openai": "azure",
        "anthropic": "anthropic",
        "claude": "anthropic",
        "gemini": "google",
        "google": "google",
        "google-gemini": "google",
        "google-genai": "google",
        "vertex": "google",
        "vertex-ai": "google",
        "google-vertex": "google",
        "google-vertex-anthropic": "google",
        "bedrock": "aws",
        "aws": "aws",
        "aws-bedrock": "aws",
        "amazon-bedrock": "aws",
        "openrouter": "openrouter",
        "groq": "groq",
        "mistral": "mistral",
        "mistralai": "mistral",
        "deepseek": "deepseek",
        "moonshot": "moonshotai",
        "moonshotai": "moonshotai",
        "moonshot-ai": "moonshotai",
        "moonshotai-cn": "moonshotai",
        "moonshot-intl": "moonshotai",
        "kimi": "moonshotai",
        "kimi-api": "moonshotai",
        "xai": "x-ai",
        "x-ai": "x-ai",
        "together": "together",
        "togetherai": "together",
        "together-ai": "together",
        "fireworks": "fireworks",
        "fireworks-ai": "fireworks",
        "cerebras": "cerebras",
        "cohere": "cohere",
        "perplexity": "perplexity",
        "zai": "zai",
        "z-ai": "zai",
        "zhipu": "zhipuai",
        "zhipuai": "zhipuai",
        "minimax": "minimax",
        "minimax-intl": "minimax",
        "novita": "novita",
        "baseten": "baseten",
        "databricks": "databricks",
        "voyage": "voyageai",
        "voyageai": "voyageai",
        "avian": "avian",
        "arcee": "arcee",
        "ovhcloud": "ovhcloud",
        "cloudflare": "cloudflare",
        "cursor": "cursor",
        "copilot": "github-copilot",
        "github-copilot": "github-copilot",
        # Known, and not in the book: subscriptions, gateways with prices of their own, and lists nobody has recorded.
        "managed:kimi-code": None,
        "kimi-for-coding": None,
        "zai-coding-plan": None,
        "opencode": None,
        "cline": None,
        "litellm": None,
        "code-assist": None,
        "dashscope": None,
        "dashscope-intl": None,
        "dashscope-us": None,
        "alibaba-coding": None,
        "alibaba": None,
        "qwen": None,
        "qwen-oauth": None,
        "qwen-portal": None,
        "nvidia": None,
        "siliconflow": None,
        "volcengine": None,
        "ark": None,
        "mimo": None,
        "modelscope": None,
        "venice": None,
        "devin": None,
    }
)

# Runtimes that talk to one provider unless their store says otherwise. None: the runtime's money is counted in another
# unit (Devin's ACU) or its provider has no list in the book (Qwen's own API), so no list price stands in for it.
RUNTIME_PROVIDERS: Final[Mapping[str, str | None]] = MappingProxyType(
    {
        "claude_code": "anthropic",
        "codex": "openai",
        "gemini_cli": "google",
        "kimi_cli": "moonshotai",
        "kimi_code": "moonshotai",
        "copilot": "github-copilot",
        "cursor": "cursor",
        "qwen_code": None,
        "devin": None,
    }
)

# Makers of models, by the beginning of the model's name: for stores that name no provider, and for platforms that sell
# the models of others at their makers' list price.
FAMILIES: Final = (
    (re.compile(r"claude[-.]"), "anthropic"),
    (re.compile(r"(?:gpt-|chatgpt-|codex-|o[1-9](?:-|$))"), "openai"),
    (re.compile(r"gemini-"), "google"),
    (re.compile(r"(?:kimi-|moonshot-)"), "moonshotai"),
    (re.compile(r"deepseek-"), "deepseek"),
    (re.compile(r"grok-"), "x-ai"),
    (re.compile(r"(?:mistral-|devstral-|codestral-|magistral-|ministral-)"), "mistral"),
    (re.compile(r"glm-"), "zai"),
    (re.compile(r"command-"), "cohere"),
    (re.compile(r"sonar(?:-|$)"), "perplexity"),
    (re.compile(r"minimax-"), "minimax"),
)

# Platforms have a list of their own for some models and pass the makers' list price on for the others.
# https://cursor.com/docs/models , https://docs.github.com/en/copilot (premium requests are another basis).
PLATFORMS: Final[Mapping[str, str | None]] = MappingProxyType({"cursor": None, "github-copilot": "other_basis"})

# How Cursor names the models of others: the family's words turned round, and how hard the model is told to think, which
# does not change the price of a token. https://cursor.com/docs/models
_EFFORT: Final = re.compile(r"(?:-(?:thinking|minimal|low|medium|high|xhigh))+$")
_CLAUDE: Final = re.compile(r"(?:claude-)?(?:(?P<v1>\d[\d.]*)-)?(?P<name>sonnet|opus|haiku)(?:-(?P<v2>\d[\d.]*))?")

# Upstreams that serve from this machine, if their base URL is loopback (RUNTIMES 11). A loopback URL of any other name
# may be a gateway to a paid provider and proves nothing.
LOCAL_UPSTREAMS: Final = frozenset({"ollama", "vllm", "lmstudio", "llama-cpp", "llamacpp"})
# Ollama forwards these to its paid service although the daemon is local. https://docs.ollama.com/cloud
_CLOUD: Final = re.compile(r"[:-]cloud$")
# Makers whose models nobody can host, but for these open weights: behind a local name they mean a gateway.
_HOSTED_MAKERS: Final = frozenset({"anthropic", "openai", "google", "x-ai"})
_OPEN_WEIGHTS: Final = re.compile(r"gpt-oss|grok-[12]\b")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A price list to look in: the provider's id, the model's name there, and the caveat that using it implies."""

    provider: str
    model: str
    caveat: str | None = None


def provider_of(runtime: str, provider: str | None, upstream: str | None, model: str) -> tuple[Candidate, ...]:
    """The price lists of a call, best first; empty where no provider is known (``no_provider``)."""
    named = upstream if upstream is not None and upstream != "unknown" else provider
    if named is not None:
        return _of_name(_listed(_key(named)), model)
    if runtime in RUNTIME_PROVIDERS:
        return _of_name(RUNTIME_PROVIDERS[runtime], model)
    head, slash, rest = model.partition("/")
    if slash and _key(head) in PROVIDERS:
        return _of_name(PROVIDERS[_key(head)], rest)
    maker = maker_of(model)
    return (Candidate(maker, model, "provider_from_model"),) if maker else ()


def _listed(name: str) -> str | None:
    """The price list of a named upstream or provider. Provisioning calls each Azure resource ``azure-<resource>``."""
    return "azure" if name.startswith("azure-") else PROVIDERS.get(name)


def maker_of(model: str) -> str | None:
    """The provider whose own list has models of this name, ``None`` for a family that stands in no row."""
    name = model.lower()
    return next((maker for family, maker in FAMILIES if family.match(name)), None)


def is_local(upstream: str | None, model: str | None, upstream_urls: Mapping[str, str]) -> bool:
    """Whether a line's upstream serves from this machine; ``upstream_urls`` are the configured base URLs.

    A known local server without a configured URL stands on its own loopback default.
    """
    if upstream is None or upstream not in LOCAL_UPSTREAMS or is_cloud(model) or _is_sold(model):
        return False
    url = upstream_urls.get(upstream)
    return url is None or is_loopback(url)


def is_cloud(model: str | None) -> bool:
    """Whether a local server only forwards this model to a paid service (``…:cloud``)."""
    return model is not None and _CLOUD.search(model.lower()) is not None


def _is_sold(model: str | None) -> bool:
    if model is None:
        return False
    return maker_of(model) in _HOSTED_MAKERS and _OPEN_WEIGHTS.match(model.lower()) is None


def is_loopback(url: str) -> bool:
    """Whether a base URL names this machine by a loopback address or ``localhost``."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _key(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def _of_name(provider: str | None, model: str) -> tuple[Candidate, ...]:
    if provider is None:
        return ()
    name = _without_prefix(provider, model)
    if provider not in PLATFORMS:
        return (Candidate(provider, name),)
    caveat = PLATFORMS[provider]
    found, alias = [Candidate(provider, name, caveat)], undecorated(name)
    if maker := maker_of(name):
        found.append(Candidate(maker, name, caveat))
    if alias != name.lower() and (maker := maker_of(alias)):
        found.append(Candidate(maker, alias, caveat or "model_alias"))
    return tuple(found)


def undecorated(model: str) -> str:
    """A platform's name for a model as its maker spells it: ``claude-4.5-sonnet-thinking`` is ``claude-sonnet-4.5``."""
    name = _EFFORT.sub("", model.lower())
    found = _CLAUDE.fullmatch(name)
    if found is None or bool(found["v1"]) == bool(found["v2"]):
        return name
    return f"claude-{found['name']}-{found['v1'] or found['v2']}"


def _without_prefix(provider: str, model: str) -> str:
    """A model id as its provider's list spells it, without ``anthropic/`` at Anthropic or Google's own ``models/``."""
    head, slash, rest = model.partition("/")
    if provider == "google" and slash and head in ("models", "publishers"):
        return model.rpartition("/")[2]
    return rest if slash and PROVIDERS.get(_key(head)) == provider else model
