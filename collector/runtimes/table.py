"""Every runtime's reader and what README says of it, in the order of the allowlist's keys.

A runtime with records of its own (``self_reporting`` in allowlist.yaml) has a reader that gives records; a token-blind
one has a reader that gives sessions only.
"""

from __future__ import annotations

from typing import Final

from collector.runtimes import (
    Facts,
    Reader,
    aider,
    claude_code,
    cline,
    codex,
    copilot,
    cursor,
    devin,
    exo,
    gemini_cli,
    goose,
    kimi_cli,
    kimi_code,
    openclaw,
    opencode,
    pi,
    picoclaw,
    qwen_code,
)

READERS: Final[tuple[Reader, ...]] = (
    cursor.READER,
    picoclaw.READER,
    aider.READER,
    claude_code.READER,
    cline.READER,
    codex.READER,
    copilot.READER,
    devin.READER,
    exo.READER,
    gemini_cli.READER,
    goose.READER,
    kimi_cli.READER,
    kimi_code.READER,
    openclaw.READER,
    opencode.READER,
    pi.READER,
    qwen_code.READER,
)

FACTS: Final[tuple[Facts, ...]] = (
    cursor.FACTS,
    picoclaw.FACTS,
    aider.FACTS,
    claude_code.FACTS,
    cline.FACTS,
    codex.FACTS,
    copilot.FACTS,
    devin.FACTS,
    exo.FACTS,
    gemini_cli.FACTS,
    goose.FACTS,
    kimi_cli.FACTS,
    kimi_code.FACTS,
    openclaw.FACTS,
    opencode.FACTS,
    pi.FACTS,
    qwen_code.FACTS,
)
