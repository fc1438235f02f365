"""The shim's own answers when a call cannot be made, in the shape that the wire's SDKs read errors from.

A message names the upstream and what went wrong with it, never a key, a query or a body. Each has ``source`` set to
``usage-shim`` where the shape allows a field of its own, so nobody looks for the fault at the provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

REASONS: Final[Mapping[int, str]] = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    417: "Expectation Failed",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}
# google.rpc.Code names, https://cloud.google.com/apis/design/errors#handling_errors
GOOGLE_STATUS: Final = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    501: "UNIMPLEMENTED",
    504: "DEADLINE_EXCEEDED",
}
# https://docs.anthropic.com/en/api/errors
ANTHROPIC_TYPE: Final = {
    400: "invalid_request_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
}


def _openai(status: int, code: str, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "upstream_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code, "source": "usage-shim"}}


def _anthropic(status: int, code: str, message: str) -> dict[str, Any]:
    kind = ANTHROPIC_TYPE.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "source": "usage-shim"}


def _google(status: int, code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": GOOGLE_STATUS.get(status, "UNAVAILABLE")}}


def _plain(status: int, code: str, message: str) -> dict[str, Any]:
    return {"error": message}


def _message(status: int, code: str, message: str) -> dict[str, Any]:
    return {"message": message}


def _dashscope(status: int, code: str, message: str) -> dict[str, Any]:
    return {"code": code, "message": message, "request_id": ""}


# Wires that are not here answer as OpenAI does, which most vendors' SDKs read.
SHAPES: Final[Mapping[str, Callable[[int, str, str], dict[str, Any]]]] = {
    "anthropic-messages": _anthropic,
    "gemini": _google,
    "ollama": _plain,
    "bedrock-converse": _message,
    "bedrock-invoke": _message,
    "cohere-v2": _message,
    "dashscope-generation": _dashscope,
}


def body(wire: str | None, status: int, code: str, message: str) -> bytes:
    """The JSON body of an error. ``code``: a snake_case word for programs; ``message``: a sentence for people."""
    return orjson.dumps(SHAPES.get(wire or "", _openai)(status, code, message))


def response(
    status: int, content: bytes, *, close: bool, content_type: str = "application/json", head_only: bool = False
) -> bytes:
    """A whole HTTP/1.1 response of ours."""
    lines = [
        f"HTTP/1.1 {status} {REASONS.get(status, 'OK')}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(content)}",
    ]
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if head_only else content)
