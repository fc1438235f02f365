"""A plain head that was read before is looked up; reading every head again gives the same sessions.

Calls are histories that grow, begin anew, are compacted or swap their system text, of plain messages and of others.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shim.conversation import PLAIN_HEAD, PLAIN_WIRES, plain_head
from shim.recent import Recent
from shim.session import Sessions

KEY = b"k" * 32
texts = st.sampled_from(
    [
        "",
        "hello",
        " hello ",
        "bye",
        "Summary of the conversation: we spoke",
        "It is 2026-11-30 20:15 (Monday)",
        "It is 2026-11-30 20:16 (Monday)",
        "CONTEXT_SUMMARY: old things",
        "## Current Session\nChannel: web\nChat: 1\n\nmore",
        "\nuser: hello\nassistant: bye",
        "x" * (PLAIN_HEAD + 1),
        "\udc00",
    ]
)
contents: st.SearchStrategy[Any] = st.one_of(
    texts, texts, st.builds(lambda text: [{"type": "text", "text": text}], texts)
)
messages = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "user", "system"]), "content": contents}),
    st.fixed_dictionaries({"role": st.sampled_from(["user", "User", 3]), "content": texts}, optional={"name": texts}),
    st.sampled_from([None, "text", {}, {"role": "user"}, {"content": "hello"}]),
)
bodies = st.builds(
    lambda system, history, more: {"messages": [*system, *history], **more},
    st.one_of(st.just([]), st.lists(st.builds(lambda text: {"role": "system", "content": text}, texts), max_size=2)),
    st.lists(messages, max_size=9),
    st.one_of(st.just({}), st.builds(lambda text: {"system": text}, st.one_of(contents, st.none()))),
)
calls = st.tuples(st.sampled_from([*sorted(PLAIN_WIRES), "gemini"]), bodies, st.sampled_from(["picoclaw", "aider"]))


@settings(max_examples=400, deadline=None)
@given(st.lists(calls, min_size=1, max_size=5), st.lists(st.integers(0, 4), max_size=20))
def test_looking_a_head_up_gives_the_session_that_reading_it_gives(made: list[Any], order: list[int]) -> None:
    quick, slow = Sessions(KEY), Sessions(KEY)
    slow._plain = Recent(0)
    for turn, number in enumerate([*range(len(made)), *order]):
        wire, body, runtime = made[number % len(made)]
        seen = [each.identify(runtime, "openai", wire, {}, body, float(turn)) for each in (quick, slow)]
        assert seen[0] == seen[1] or {source for _, source in seen} == {"gap"}
    assert quick._messages._items == slow._messages._items
    assert quick._spoke._items == slow._spoke._items


def test_a_plain_body_is_looked_up_the_second_time() -> None:
    sessions = Sessions(KEY)
    body = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}
    for _ in range(2):
        sessions.identify("picoclaw", "openai", "openai-chat", {}, body, 0.0)
    assert plain_head("openai-chat", body) == ("s", "u", 1)
    assert len(sessions._plain) == 1
