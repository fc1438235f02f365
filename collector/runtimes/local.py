"""Whether a store shows that a model ran on this machine, so that its zero cost is a real zero (RUNTIMES 11).

Evidence is the provider's id (ollama, LM Studio, …) or a loopback base URL in the runtime's configuration. Three
things speak against it: a configured base URL that is not loopback, a model that a local daemon only forwards, and
a provider or model that is sold and cannot be hosted: behind a loopback URL that is a gateway to a paid service.
"""

from __future__ import annotations

import re
from typing import Final

from collector.runtimes import values

HOSTED_PROVIDERS: Final = frozenset(
    {"anthropic", "openai", "google", "gemini", "openrouter", "github-copilot", "opencode", "cline", "xai", "bedrock"}
)
# Weights of these families are not published. gpt-oss is.
_HOSTED_MODEL: Final = re.compile(r"(?:.*/)?(?:claude[-.]|gpt-[3-9]|chatgpt-|codex-|o[1-9](?:-|$)|gemini-|grok-)", re.I)
_FORWARDED: Final = re.compile(r".*[:-]cloud$")


def is_local(provider: str | None, model: str | None, base_url: object = None) -> bool:
    """Whether there is evidence of a local provider. ``base_url``: what the runtime's configuration says, if any."""
    if model is not None and (_HOSTED_MODEL.match(model) or _FORWARDED.match(model)):
        return False
    if base_url and provider is not None and provider.lower() in HOSTED_PROVIDERS:
        return False
    return values.is_local(provider, base_url)
