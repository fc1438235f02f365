"""Edits of JSON texts: the change is made and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim import json_edit
from shim.json_edit import Change

SPACES = st.text(" \t\n\r", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An object written with any spacing, and its value; keys may be repeated nowhere."""
    value = draw(st.dictionaries(st.text(), VALUES, min_size=1, max_size=5))
    parts = [
        f"{draw(SPACES)}{json.dumps(key)}{draw(SPACES)}:{draw(SPACES)}{json.dumps(item)}{draw(SPACES)}"
        for key, item in value.items()
    ]
    return "{" + ",".join(parts) + "}", value


@given(texts())
def test_every_member_is_found_where_it_stands(document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    found = json_edit.members(text, 0)
    assert {key: json.loads(text[span.start : span.end]) for key, span in found.items()} == value


@given(texts(), st.data())
def test_an_inserted_member_is_all_that_changes(document: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    text, value = document
    anchor = json_edit.members(text, 0)[data.draw(st.sampled_from(sorted(value)))]
    change = json_edit.insert_after(text, anchor, "a new key \U0001f980", "x")
    new = json_edit.apply(text, [change])
    assert json.loads(new) == value | {"a new key \U0001f980": "x"}
    assert new.replace(change.new, "", 1) == text


@given(texts(), st.data())
def test_a_removed_member_is_all_that_is_gone(document: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    text, value = document
    key = data.draw(st.sampled_from(sorted(value)))
    new = json_edit.apply(text, [json_edit.remove(text, json_edit.members(text, 0)[key])])
    assert json.loads(new) == {name: item for name, item in value.items() if name != key}


@given(st.lists(VALUES, max_size=5), SPACES)
def test_every_item_is_found_where_it_stands(value: list[Any], space: str) -> None:
    text = f"[{space}" + f"{space},{space}".join(map(json.dumps, value)) + f"{space}]"
    assert [json.loads(text[span.start : span.end]) for span in json_edit.items(text, 0)] == value


def test_of_a_repeated_key_the_last_counts() -> None:
    text = '{"a": 1, "a": 2}'
    assert json_edit.value(text, json_edit.members(text, 0)["a"]) == 2


def test_several_changes_are_made_at_once() -> None:
    assert json_edit.apply("abcdef", [Change(0, 1, "A"), Change(3, 3, "-"), Change(5, 6, "")]) == "Abc-de"


@pytest.mark.parametrize("text", ["", "{", '{"a"', '{"a" 1}', '{"a": 1 "b": 2}', "[]", "{1: 2}"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        json_edit.members(text, 0)
