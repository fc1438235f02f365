"""A client as PicoClaw is one: the base URL from its config.json, ``/chat/completions`` behind it, its User-Agent.

``python3 picoclaw.py CONFIG [MODEL [TEXT]]`` makes one call, streamed for a model ``...-slow-N``, without asking for
usage (PicoClaw does not), and prints what came as one JSON object. Standard library alone.
"""

from __future__ import annotations

import http.client
import json
import sys
from typing import Any
from urllib.parse import urlsplit


def call(config: str, model: str | None, text: str) -> dict[str, Any]:
    """One call of the first entry of ``model_list``."""
    with open(config) as file:
        entry = json.load(file)["model_list"][0]
    base = urlsplit(entry["api_base"])
    model = model or entry["model"].partition("/")[2]
    messages = [{"role": "system", "content": "You are Pico."}, {"role": "user", "content": text}]
    body = {"model": model, "messages": messages, "stream": "-slow-" in model}
    headers = {
        "User-Agent": "PicoClaw/0.9.1",
        "Authorization": "Bearer sk-secret-of-a-test",
        "Content-Type": "application/json",
    }
    connection = http.client.HTTPConnection(base.netloc, timeout=60)
    try:
        connection.request("POST", f"{base.path}/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        data = response.read()
    except (OSError, http.client.HTTPException) as error:
        return {"error": type(error).__name__}
    whole = data.rstrip().endswith(b"data: [DONE]") if body["stream"] else bool(json.loads(data)["choices"])
    return {"status": response.status, "whole": whole, "words": data.count(b"word"), "usage": b"prompt_tokens" in data}


if __name__ == "__main__":
    words = [*sys.argv[2:], *[""] * 3]
    print(json.dumps(call(sys.argv[1], words[0] or None, words[1] or "Hello.")))
