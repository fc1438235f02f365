"""What a request path says: the wire, the model, and whether it only counts.

Any prefix may stand before a wire's own suffix (``/api/paas/v4/chat/completions``), so the tables match ends of paths.
A path is taken as the upstream gets it; a query is ignored.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

# The first row that matches tells the wire; ``None`` marks look-alikes that are no model call.
ENDINGS: Final[tuple[tuple[str, str | None], ...]] = (
    (r"/threads/[^/]+/messages", None),  # OpenAI's Assistants
    (r"/chat/completions", "openai-chat"),
    (r"/responses(?:/compact|/input_tokens)?", "openai-responses"),
    (r"/responses/[^/]+(?:/cancel)?", "openai-responses"),  # a background result
    (r"/api/embeddings", "ollama"),
    (r"/embeddings", "openai-embeddings"),
    (r"/completions", "openai-completions"),
    (r"/messages(?:/count_tokens)?", "anthropic-messages"),
    (r"/publishers/(?!anthropic/)[^/]+/models/[^/]+:(?:rawPredict|streamRawPredict)", "openai-chat"),
    (r":(?:rawPredict|streamRawPredict)", "anthropic-messages"),
    (r":(?:generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents)", "gemini"),
    (r"/model/.+/(?:converse|converse-stream)", "bedrock-converse"),
    (r"/model/.+/(?:invoke|invoke-with-response-stream|count-tokens)", "bedrock-invoke"),
    (r"/api/v1/chat", "lmstudio-chat"),
    (r"/api/(?:chat|generate|embed)", "ollama"),
    (r"/v2/(?:chat|embed)", "cohere-v2"),
    (r"/services/aigc/[^/]+/generation", "dashscope-generation"),
    (r"/completion", "llamacpp-completion"),
)
WIRE_ENDINGS: Final = tuple((re.compile(rf".*{ending}/?"), wire) for ending, wire in ENDINGS)

# Endpoints that run no model: their numbers are estimates, never consumption (router-for-me/CLIProxyAPI#4492).
COUNTING: Final = re.compile(
    r".*(?:/messages/count_tokens|/responses/input_tokens|/model/.+/count-tokens|/models/count[-_]tokens:rawPredict"
    r"|:countTokens|:computeTokens)/?"
)

GOOGLE_MODEL: Final = re.compile(r".*/(?:models|tunedModels|endpoints)/([^/:]+)(?::[A-Za-z]+)?/?")
BEDROCK_MODEL: Final = re.compile(r".*?/model/(.+)/[a-z-]+/?")
DEPLOYMENT: Final = re.compile(r".*/(?:deployments|engines)/([^/]+)/.*")
MODEL_IN_PATH: Final = {
    "gemini": GOOGLE_MODEL,
    "anthropic-messages": GOOGLE_MODEL,
    "bedrock-converse": BEDROCK_MODEL,
    "bedrock-invoke": BEDROCK_MODEL,
    "openai-chat": DEPLOYMENT,
    "openai-completions": DEPLOYMENT,
    "openai-embeddings": DEPLOYMENT,
    "openai-responses": DEPLOYMENT,
}
CANCEL: Final = re.compile(r".*/responses/[^/]+/cancel/?")
# Reads answer with a stored list or object; only a background response read by its id is a call's result.
RESULT: Final = re.compile(r".*/responses/[^/]+/?")


def wire_of(path: str, method: str | None = None) -> str | None:
    """The wire of a request path, ``None`` where it is no model call. ``method`` narrows the answer where given."""
    path = path.partition("?")[0]
    if method not in (None, "POST") and not (method == "GET" and RESULT.fullmatch(path)):
        return None
    return next((wire for ending, wire in WIRE_ENDINGS if ending.fullmatch(path)), None)


def counting_endpoint(path: str) -> bool:
    """Whether the endpoint only counts tokens."""
    return COUNTING.fullmatch(path.partition("?")[0]) is not None


def model_from_path(wire: str, path: str) -> str | None:
    """The model that the path names, percent-decoded (a Bedrock ARN stays whole); not yet checked for a line."""
    pattern = MODEL_IN_PATH.get(wire)
    found = pattern.fullmatch(path.partition("?")[0]) if pattern else None
    return unquote(found[1]) if found else None
