"""The upstreams: name as in URLs to where it is. No upstream ever comes from a request.

A client brings its own path (``/v1/chat/completions``, ``/api/paas/v4/chat/completions``), so a base URL here is a
scheme and a host; one that an operator gives may have a path, which is put before the client's.
Cloud metadata services are refused by name when the configuration is read and by address when a connection is made,
after the name was resolved: a name that resolves to one is no way around.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from urllib.parse import urlsplit

from shim.names import UPSTREAM_PREFIX, ConfigError

# Vendors' public endpoints as their API references give them; local servers on their default ports.
BASES: Final[Mapping[str, str]] = {
    "openai": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "openrouter": "https://openrouter.ai",
    "gemini": "https://generativelanguage.googleapis.com",
    "vertex": "https://aiplatform.googleapis.com",
    "code-assist": "https://cloudcode-pa.googleapis.com",
    "xai": "https://api.x.ai",
    "deepseek": "https://api.deepseek.com",
    "moonshot": "https://api.moonshot.cn",
    "moonshot-intl": "https://api.moonshot.ai",
    "kimi": "https://api.kimi.com",
    "mistral": "https://api.mistral.ai",
    "groq": "https://api.groq.com",
    "together": "https://api.together.xyz",
    "fireworks": "https://api.fireworks.ai",
    "zai": "https://api.z.ai",
    "zhipu": "https://open.bigmodel.cn",
    "minimax": "https://api.minimaxi.com",
    "minimax-intl": "https://api.minimax.io",
    "dashscope": "https://dashscope.aliyuncs.com",
    "dashscope-intl": "https://dashscope-intl.aliyuncs.com",
    "dashscope-us": "https://dashscope-us.aliyuncs.com",
    "alibaba-coding": "https://coding-intl.dashscope.aliyuncs.com",
    "cerebras": "https://api.cerebras.ai",
    "nvidia": "https://integrate.api.nvidia.com",
    "siliconflow": "https://api.siliconflow.cn",
    "ark": "https://ark.cn-beijing.volces.com",
    "cohere": "https://api.cohere.com",
    "bedrock": "https://bedrock-runtime.us-east-1.amazonaws.com",
    "perplexity": "https://api.perplexity.ai",
    "venice": "https://api.venice.ai",
    "novita": "https://api.novita.ai",
    "modelscope": "https://api-inference.modelscope.cn",
    "ollama": "http://127.0.0.1:11434",
    "vllm": "http://127.0.0.1:8000",
    "lmstudio": "http://127.0.0.1:1234",
    "llama-cpp": "http://127.0.0.1:8080",
    "litellm": "http://127.0.0.1:4000",
}
# Known by name, but every customer has an address of his own: usable once VM_USAGE_UPSTREAM_<NAME> gives it.
NEEDS_ADDRESS: Final = {"azure": "https://<resource>.openai.azure.com"}

# Other names in URLs: PicoClaw keeps "google/" in a model's name only where the base URL holds "openrouter.ai".
ALSO_NAMED: Final = {"openrouter.ai": "openrouter"}

METADATA_NAMES: Final = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
# AWS, Azure, GCP, OpenStack and Oracle use the link-local address; these are the others.
METADATA_ADDRESSES: Final = frozenset(
    ipaddress.ip_address(text)
    for text in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Upstream:
    """Where calls of one name go. ``prefix``: path put before the client's, without a slash at its end."""

    name: str
    scheme: str
    host: str
    port: int
    prefix: str = ""

    @cached_property
    def authority(self) -> str:
        """The value of the Host header: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def path(self, path: str) -> str:
        """The path here for what a client has after the upstream's name.

        A version that ends the prefix and begins the path is meant once: a base URL of ``…/v1`` is how vendors
        write it, and clients send ``/v1/…`` too.
        """
        prefix = self.prefix
        last = prefix.rpartition("/")[2]
        if last and re.fullmatch(r"v\d+(?:beta\d*)?", last) and path.startswith(f"/{last}/"):
            prefix = prefix[: -len(last) - 1]
        return (prefix + path) if path.startswith("/") else f"{prefix}/{path}"


def known_upstreams(given: Mapping[str, str]) -> dict[str, Upstream]:
    """Every upstream by name: the table above, overridden and added to by ``given`` (name to base URL).

    Raises ``ConfigError`` for a base URL that cannot be one.
    """
    found = {name: parse(name, base) for name, base in {**BASES, **given}.items()}
    return found | {other: found[name] for other, name in ALSO_NAMED.items()}


def parse(name: str, base: str) -> Upstream:
    """One base URL. Raises ``ConfigError`` naming its variable."""
    variable = UPSTREAM_PREFIX + name.upper().replace("-", "_")
    try:
        url = urlsplit(base)
        port = url.port
    except ValueError as error:
        raise ConfigError(f"{variable} is not a URL ({error}).") from error
    if url.scheme not in DEFAULT_PORTS or not url.hostname:
        raise ConfigError(f"{variable} must be an http:// or https:// URL with a host.")
    if url.username or url.password or url.query or url.fragment:
        raise ConfigError(f"{variable} may hold scheme, host, port and path only: keys belong to the client.")
    if not re.fullmatch(r"[!-~]*", url.netloc + url.path):
        raise ConfigError(f"{variable} holds characters that no URL may have.")
    if is_metadata(url.hostname):
        raise ConfigError(f"{variable} is a cloud metadata address, which hands out credentials: give another.")
    return Upstream(name, url.scheme, url.hostname, port or DEFAULT_PORTS[url.scheme], url.path.rstrip("/"))


def is_metadata(host: str) -> bool:
    """Whether a host name or an IP address is a cloud metadata service or link-local."""
    if host.rstrip(".").lower() in METADATA_NAMES:
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_link_local or address in METADATA_ADDRESSES
