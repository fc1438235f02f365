"""Sessions of calls: what is declared, what is recognised, and that neither merges nor splits conversations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.conversation import SHAPES, is_summary
from shim.declared import BODY_FIELDS, HEADERS
from shim.identity import reference
from shim.recent import Recent
from shim.session import GAP_SECONDS, Sessions

KEY = b"k" * 32
NOW = 1_800_000_000.0
Message = dict[str, Any]


class Runtime:
    """A runtime that calls through one shim; ``call`` gives (session, source)."""

    def __init__(self, fingerprint: bool = True, runtime: str = "picoclaw") -> None:
        self.sessions = Sessions(KEY, fingerprint)
        self.runtime = runtime

    def call(
        self,
        body: Any = None,
        headers: dict[str, str] | None = None,
        wire: str = "openai-chat",
        now: float = NOW,
        upstream: str = "openai",
    ) -> tuple[str, str]:
        return self.sessions.identify(self.runtime, upstream, wire, headers or {}, body, now)

    def chat(self, *messages: Message, now: float = NOW) -> str:
        session, source = self.call({"messages": list(messages)}, now=now)
        assert source == "conversation"
        return session


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def answer(text: str) -> Message:
    return {"role": "assistant", "content": text}


def picoclaw_system(minute: int, chat: str = "42", memory: str = "", summary: str = "") -> Message:
    """The system message as PicoClaw builds it: one text, with the time, the chat and at last the summary in it."""
    text = (
        f"# picoclaw\nYou are a helpful assistant.{memory}\n\n---\n\n"
        f"## Current Time\n2026-11-30 20:{minute:02} (Monday)\n\n## Runtime\nlinux amd64, Go go1.25\n\n"
        f"## Current Session\nChannel: telegram\nChat ID: {chat}\n\n## Current Sender\nCurrent sender: 7"
    )
    return system(text + (f"\n\n---\n\nCONTEXT_SUMMARY: approximate.\n\n{summary}" if summary else ""))


SYSTEM = system("You are helpful.")


class TestDeclared:
    @pytest.mark.parametrize("name", HEADERS)
    def test_a_header_names_the_session(self, name: str) -> None:
        assert Runtime().call({"user": "u"}, {name: "s-1"}) == (reference(KEY, "session", "s-1"), "header")

    @pytest.mark.parametrize("path", BODY_FIELDS)
    def test_a_body_field_names_the_session(self, path: tuple[str, ...]) -> None:
        body: dict[str, Any] = {"messages": [user("hello")], "user": "somebody"}
        inner = body
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = "s-1"
        assert Runtime().call(body) == (reference(KEY, "session", "s-1"), "body")

    @pytest.mark.parametrize("field", ["user", "safety_identifier", "user_id"])
    def test_a_user_is_better_than_nothing(self, field: str) -> None:
        assert Runtime().call({field: "u-1"}) == (reference(KEY, "session", "u-1"), "body")

    def test_a_conversation_object_is_known_by_its_id(self) -> None:
        runtime = Runtime()
        assert runtime.call({"conversation": {"id": "conv_1"}}) == runtime.call({"conversation": "conv_1"})

    @pytest.mark.parametrize(
        "user_id",
        [
            json.dumps({"device_id": "d", "session_id": "6f1c0f6e-1111-4222-8333-444455556666"}),
            "user_ab12_account__session_6f1c0f6e-1111-4222-8333-444455556666",
        ],
    )
    def test_claude_codes_user_id_holds_its_session(self, user_id: str) -> None:
        runtime = Runtime(runtime="claude_code")
        by_header = runtime.call(headers={"x-claude-code-session-id": "6f1c0f6e-1111-4222-8333-444455556666"})
        assert runtime.call({"metadata": {"user_id": user_id}}) == (by_header[0], "body")

    @pytest.mark.parametrize("user_id", ["{not json", "{}", "[1]", '{"session_id": null}'])
    def test_any_other_user_id_is_taken_whole(self, user_id: str) -> None:
        assert Runtime().call({"metadata": {"user_id": user_id}}) == (reference(KEY, "session", user_id), "body")

    @pytest.mark.parametrize("value", ["", "  ", "null", "undefined", None, True, [], {}, {"id": None}, 1.5])
    def test_a_value_that_says_nothing_is_passed_over(self, value: Any) -> None:
        assert Runtime().call({"session_id": value, "user": "u"})[0] == reference(KEY, "session", "u")

    @pytest.mark.parametrize("cache_key", ["main", "seahorse", "main:btw"])
    def test_picoclaws_cache_key_names_its_agent_and_not_the_session(self, cache_key: str) -> None:
        body = {"prompt_cache_key": cache_key, "messages": [user("hello")]}
        assert Runtime().call(body)[1] == "conversation"

    def test_a_chain_of_responses_is_one_session(self) -> None:
        runtime = Runtime()
        first, source = runtime.call({"input": "hello"}, wire="openai-responses")
        assert source == "conversation"
        runtime.sessions.answered(first, reference(KEY, "response", "resp_1"))
        second = runtime.call({"input": "and then?", "previous_response_id": "resp_1"}, wire="openai-responses")
        assert second == (first, "body")

    def test_a_chain_from_before_the_start_goes_on_as_one(self) -> None:
        runtime = Runtime()
        body = {"input": "go on", "previous_response_id": "resp_9"}
        session, _ = runtime.call(body, wire="openai-responses")
        runtime.sessions.answered(session, reference(KEY, "response", "resp_10"))
        assert runtime.call(body | {"previous_response_id": "resp_10"}, wire="openai-responses")[0] == session


class TestRecognised:
    def test_two_interleaved_conversations_are_two(self) -> None:
        runtime = Runtime()
        a, b = [SYSTEM, user("about cats")], [SYSTEM, user("about dogs")]
        refs: list[tuple[str, str]] = []
        for turn in range(5):
            refs.append((runtime.chat(*a), runtime.chat(*b)))
            a += [answer(f"cat {turn}"), user("go on")]
            b += [answer(f"dog {turn}"), user("go on")]
        assert len({ref for ref, _ in refs}) == len({ref for _, ref in refs}) == 1
        assert refs[0][0] != refs[0][1]

    def test_the_same_question_under_another_system_text_is_another_session(self) -> None:
        runtime = Runtime()
        assert runtime.chat(SYSTEM, user("hi")) != runtime.chat(system("You are terse."), user("hi"))

    def test_a_conversation_keeps_its_session_over_a_restart(self) -> None:
        history = [SYSTEM, user("hi"), answer("hello"), user("bye")]
        assert Runtime().chat(*history[:2]) == Runtime().chat(*history)

    def test_time_in_the_system_text_changes_nothing(self) -> None:
        runtime = Runtime()
        early = system("You help. Now: 2026-11-30T20:12:01Z")
        late = system("You help. Now: 2026-11-30T21:45:59Z")
        assert runtime.chat(early, user("hi")) == runtime.chat(late, user("hi"), answer("hello"), user("bye"))

    def test_cache_marks_and_text_parts_change_nothing(self) -> None:
        runtime = Runtime()
        part = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
        assert runtime.chat(SYSTEM, user("hi")) == runtime.chat(SYSTEM, {"role": "user", "content": [part]})

    def test_two_images_under_one_caption_are_two_sessions(self) -> None:
        runtime = Runtime()

        def picture(data: str) -> Message:
            url = {"url": f"data:image/png;base64,{data}"}
            return {
                "role": "user",
                "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": url}],
            }

        assert runtime.chat(SYSTEM, picture("AAAA")) != runtime.chat(SYSTEM, picture("BBBB"))

    @pytest.mark.parametrize("wire", sorted(SHAPES))
    def test_every_wire_with_messages_has_conversations(self, wire: str) -> None:
        shape, runtime = SHAPES[wire], Runtime()

        def body(*texts: str) -> dict[str, Any]:
            roles = ("user", "model" if wire == "gemini" else "assistant")
            messages = [
                {"role": roles[i % 2], "parts" if wire == "gemini" else "content": [{"text": text}]}
                for i, text in enumerate(texts)
            ]
            inner = {shape.messages[0]: messages, **dict.fromkeys(shape.system[:1], "You are helpful.")}
            return {shape.envelope: inner} if shape.envelope == "input" else inner

        first = runtime.call(body("about cats"), wire=wire)
        assert first[1] == "conversation"
        assert runtime.call(body("about cats", "meow", "more"), wire=wire) == first
        assert runtime.call(body("about dogs"), wire=wire) != first

    def test_long_texts_are_told_apart_by_their_ends(self) -> None:
        runtime = Runtime()
        long = "x" * 200_000
        assert runtime.chat(SYSTEM, user(long + "a")) != runtime.chat(SYSTEM, user(long + "b"))


class TestCompaction:
    def test_a_summary_in_place_of_the_middle_keeps_the_session(self) -> None:
        runtime = Runtime()
        first = runtime.chat(SYSTEM, user("about cats"))
        assert runtime.chat(SYSTEM, user("about cats"), answer("Summary: cats."), user("more")) == first

    def test_picoclaws_summary_keeps_both_of_two_chats_apart(self) -> None:
        runtime = Runtime()
        chats = {"42": [user("What is on today?")], "43": [user("What is on today?")]}
        refs: dict[str, set[str]] = {chat: set() for chat in chats}
        for turn in range(4):
            for chat, messages in chats.items():
                refs[chat].add(runtime.chat(picoclaw_system(turn, chat), *messages))
                messages += [answer(f"{chat} {turn}"), user(f"go on {chat} {turn}")]
        for chat, messages in chats.items():
            del messages[:-4]
            compacted = picoclaw_system(30, chat, summary="The user asked what is on.")
            refs[chat].add(runtime.chat(compacted, *messages))
            messages += [answer("ok"), user("and now?")]
            refs[chat].add(runtime.chat(picoclaw_system(31, chat, summary="The user asked."), *messages))
        assert [len(found) for found in refs.values()] == [1, 1]
        assert refs["42"] != refs["43"]

    def test_picoclaws_emergency_compression_keeps_the_last_question_alone(self) -> None:
        runtime = Runtime()
        history = [user("start"), answer("ok"), user("a very long question")]
        first = runtime.chat(picoclaw_system(0), *history)
        assert runtime.chat(picoclaw_system(1, summary="[Emergency compression]"), history[-1]) == first

    def test_a_changed_memory_keeps_the_session(self) -> None:
        runtime = Runtime()
        first = runtime.chat(picoclaw_system(0), user("remember this"))
        later = picoclaw_system(9, memory="\n# Memory\nthis")
        assert runtime.chat(later, user("remember this"), answer("done"), user("thanks")) == first

    def test_a_changed_system_text_keeps_the_session_of_a_history(self) -> None:
        runtime = Runtime()
        first = runtime.chat(SYSTEM, user("hi"))
        assert runtime.chat(system("New rules."), user("hi"), answer("hello"), user("bye")) == first

    def test_a_dropped_beginning_keeps_the_session(self) -> None:
        runtime = Runtime()
        history = [user("start")]
        first = runtime.chat(SYSTEM, *history)
        for turn in range(20):
            history += [answer(f"a{turn}"), user(f"u{turn}")]
            assert runtime.chat(SYSTEM, *history[-6:]) == first

    def test_a_summary_that_replaces_everything_joins_who_spoke_last(self) -> None:
        runtime = Runtime()
        first = runtime.chat(SYSTEM, user("about cats"))
        summary = user("Summary of the conversation so far: it was about cats.")
        second = runtime.chat(SYSTEM, summary, user("go on"), now=NOW + 5)
        assert second == first == runtime.chat(SYSTEM, summary, user("go on"), answer("ok"), user("more"))

    @pytest.mark.parametrize(
        "text",
        [
            "[Summary] cats",
            "<summary>cats</summary>",
            "## Conversation Summary\ncats",
            "This session is being continued from a previous conversation that ran out of context.",
            "Here is a summary of what we discussed: cats",
            "The conversation so far, in short: cats",
            "Summarised history: cats",
            "Earlier messages were truncated: the history was summarized as follows",
        ],
    )
    def test_summaries_are_known_by_how_they_begin(self, text: str) -> None:
        assert is_summary(text)

    @pytest.mark.parametrize(
        "text",
        ["Summarise this paper", "Write a summary of the attached report", "What is a compact car?", "so far so good"],
    )
    def test_a_question_about_summaries_is_none(self, text: str) -> None:
        assert not is_summary(text)

    def test_the_call_that_makes_picoclaws_summary_belongs_to_what_it_sums_up(self) -> None:
        runtime = Runtime()
        cats = runtime.chat(picoclaw_system(0, "42"), user("about cats"))
        dogs = runtime.chat(picoclaw_system(0, "43"), user("about dogs"))
        prompt = "Provide a concise summary.\n\nCONVERSATION:\nuser: about cats\nassistant: meow\nuser: more\n"
        assert runtime.chat(user(prompt)) == cats != dogs
        merge = "Merge these two conversation summaries into one cohesive summary:\n\n1: a\n\n2: b"
        assert runtime.chat(user(merge)) == cats

    def test_a_fresh_question_joins_nobody(self) -> None:
        runtime = Runtime()
        first = runtime.chat(picoclaw_system(0, "42"), user("hi"))
        assert runtime.chat(picoclaw_system(0, "43"), user("hi")) != first
        assert runtime.chat(SYSTEM, user("Summarise this paper for me")) != runtime.chat(SYSTEM, user("hi"))

    def test_a_message_that_two_sessions_had_decides_nothing(self) -> None:
        runtime = Runtime()
        a = runtime.chat(SYSTEM, user("cats"), answer("x"), user("yes"))
        b = runtime.chat(SYSTEM, user("dogs"), answer("y"), user("yes"))
        assert runtime.chat(SYSTEM, user("yes"), answer("unseen"), user("new")) not in (a, b)


class TestGap:
    def test_calls_without_any_identity_share_a_session_until_a_pause(self) -> None:
        runtime = Runtime()
        first, source = runtime.call({"input": ["text"]}, wire="openai-embeddings")
        assert source == "gap"
        assert runtime.call(None, now=NOW + GAP_SECONDS) == (first, "gap")
        assert runtime.call(None, now=NOW + 2 * GAP_SECONDS + 1)[0] != first

    def test_upstreams_have_their_own(self) -> None:
        runtime = Runtime()
        assert runtime.call(upstream="openai") != runtime.call(upstream="groq")

    def test_conversations_are_not_looked_at_where_that_is_switched_off(self) -> None:
        assert Runtime(fingerprint=False).call({"messages": [user("hi")]})[1] == "gap"


KEYS = st.sampled_from(["role", "content", "text", "id", "type", "input", "messages"]) | st.text()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)
FIELDS = sorted({key for path in BODY_FIELDS for key in path} | {"messages", "input", "contents", "system", "user"})


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.sampled_from(sorted(SHAPES)))
def test_no_body_makes_it_raise(body: dict[str, Any], wire: str) -> None:
    session, source = Runtime().call(body, wire=wire)
    assert len(session) == 24
    assert source in ("body", "conversation", "gap")


def test_deep_nesting_is_bounded() -> None:
    content: Any = "x"
    for _ in range(20_000):
        content = [content]
    assert Runtime().call({"messages": [{"role": "user", "content": content}]})[1] == "conversation"


def test_a_recent_map_forgets_what_was_used_longest_ago() -> None:
    recent: Recent[int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c"), len(recent)) == (1, None, 3, 2)


@pytest.mark.interpreted
def test_maps_hold_only_hashes_and_references() -> None:
    runtime = Runtime()
    runtime.chat(SYSTEM, user("CANARY-7"), answer("CANARY-8"), user("CANARY-9"))
    maps = [vars(value) for value in vars(runtime.sessions).values() if isinstance(value, Recent)]
    assert maps
    assert "CANARY" not in repr(maps)
