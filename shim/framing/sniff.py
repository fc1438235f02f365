"""Which framing a body has: what the response's content type says, unless its first bytes plainly say otherwise.

The request's ``stream`` flag decides nothing: a stream request may get a JSON error, and relays label an event stream
as JSON and the other way round.
"""

from __future__ import annotations

import re
from typing import Final

from shim.framing.eventstream import PRELUDE, sizes

SSE: Final = "sse"
NDJSON: Final = "ndjson"
JSON: Final = "json"
ARRAY: Final = "array"
FRAMES: Final = "frames"
OPAQUE: Final = "opaque"

CONTENT_TYPES: Final = {
    "text/event-stream": SSE,
    "application/x-ndjson": NDJSON,
    "application/ndjson": NDJSON,
    "application/jsonl": NDJSON,
    "application/jsonlines": NDJSON,
    "application/x-jsonlines": NDJSON,
    "application/stream+json": NDJSON,
    "application/vnd.amazon.eventstream": FRAMES,
    "application/json": JSON,
}
BOM: Final = b"\xef\xbb\xbf"
SSE_FIELD: Final = re.compile(rb"(?:data|event|id|retry)?:")
# The longest answer any rule below waits for.
ENOUGH: Final = PRELUDE.size


def declared(content_type: str) -> str | None:
    """The framing a content type names, parameters ignored; ``None`` for one that says nothing."""
    kind = content_type.partition(";")[0].strip().lower()
    return CONTENT_TYPES.get(kind) or (JSON if kind.endswith("+json") else None)


def framing(content_type: str, head: bytes, *, last: bool) -> str | None:
    """The framing of a body that begins with ``head`` (leading white space and BOM removed).

    ``last``: nothing more will come. ``None``: more bytes are needed to tell.
    """
    said = declared(content_type)
    if not head:
        return (said or OPAQUE) if last else None
    if head[:1] == b"{":
        return NDJSON if said == NDJSON else JSON
    if head[:1] == b"[":
        return ARRAY
    if len(head) < ENOUGH and not last:
        return None
    if len(head) >= ENOUGH and sizes(head)[0]:
        return FRAMES
    if SSE_FIELD.match(head):
        return SSE
    return said if said in (SSE, NDJSON, FRAMES) else OPAQUE
