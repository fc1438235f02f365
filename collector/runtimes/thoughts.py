"""Google-style token counts, as Gemini CLI and Qwen Code keep them: is thinking part of the output or beside it?

It depends on the backend behind the runtime, and only the total tells. Where the total does not, the runtime's habit
holds: Gemini's API counts thoughts beside the answer, OpenAI-style backends inside it.
"""

from __future__ import annotations

from collector.runtimes.values import fresh
from shim.line import Tokens


def disjoint(
    prompt: int | None,
    answer: int | None,
    cached: int | None,
    thoughts: int | None,
    total: int | None,
    *,
    tool: int | None = None,
    beside: bool,
) -> Tokens:
    """Token classes from counts whose input includes ``cached``; ``beside`` is the habit of the runtime.

    ``tool`` are tokens of tool-use prompts, which belong to the input where the total counts them apart.
    """
    known = (prompt or 0) + (answer or 0)
    extra = None if total is None else total - known
    thought = thoughts or 0
    if extra in (thought, thought + (tool or 0)) and thought:
        beside = True
    elif extra == 0:
        beside = False
    if tool and extra is not None and extra == tool + (thought if beside else 0):
        prompt = (prompt or 0) + tool
    output = answer
    if beside and thoughts is not None:
        output = (answer or 0) + thoughts
    reasoning = thoughts if thoughts is None or output is None else min(thoughts, output)
    return Tokens(fresh(prompt, cached), cached, None, None, output, reasoning)
