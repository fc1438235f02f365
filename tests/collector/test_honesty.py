"""Honesty: what a cost may claim, and that sums claim no more than their parts (CONTRACTS 6)."""

import dataclasses
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import honesty
from collector.honesty import COUNT_NAMES, STATUSES, Counts, agree, combine, join_caveats, judge

statuses = st.lists(st.sampled_from(STATUSES), max_size=30)


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (["exact", "exact"], "exact"),
        (["exact", "estimated"], "estimated"),
        (["exact", "tokens_only"], "partial"),
        (["estimated", "unavailable"], "partial"),
        (["exact", "partial"], "partial"),
        (["tokens_only", "unavailable"], "tokens_only"),
        (["unavailable"], "unavailable"),
        ([], "unavailable"),
    ],
)
def test_a_sum_claims_what_its_parts_allow(parts, whole):
    assert combine(Counts.of(parts)) == whole


@given(st.lists(statuses, max_size=6))
def test_any_partition_gives_the_state_of_the_whole(groups):
    whole = Counts.of([status for group in groups for status in group])
    parts = reduce(Counts.__add__, (Counts.of(group) for group in groups), Counts())
    assert parts == whole
    assert parts.status == whole.status


@given(statuses.filter(bool))
def test_a_sum_is_complete_only_if_every_part_is(parts):
    status = Counts.of(parts).status
    assert (status == "exact") == (set(parts) == {"exact"})
    assert (status in ("exact", "estimated")) == (set(parts) <= {"exact", "estimated"})


@given(statuses)
def test_unknown_calls_are_those_whose_cost_is_not_all_in_the_sum(parts):
    assert Counts.of(parts).unknown_calls == sum(part not in ("exact", "estimated") for part in parts)


@given(statuses, st.sampled_from(["partial", "tokens_only", "unavailable"]))
def test_adding_an_unknown_never_makes_a_sum_look_complete(parts, unknown):
    assert Counts.of([*parts, unknown]).status not in ("exact", "estimated")


def test_the_counts_are_one_per_state_in_the_order_of_the_table():
    assert tuple(f"n_{status}" for status in STATUSES) == COUNT_NAMES
    assert [f.name for f in dataclasses.fields(Counts)] == list(COUNT_NAMES)


@pytest.mark.parametrize(
    ("cost", "known", "complete", "caveat", "status"),
    [
        (5, True, True, None, "exact"),
        (0, False, True, None, "exact"),
        (5, True, True, "rounded", "estimated"),
        (5, True, False, None, "partial"),
        (5, True, False, "no_1h_rate", "partial"),
        (None, True, True, None, "tokens_only"),
        (None, False, True, "rounded", "unavailable"),
    ],
)
def test_one_record(cost, known, complete, caveat, status):
    assert judge(cost, tokens_known=known, complete=complete, caveat=caveat) == status


def test_source_and_basis_of_a_sum_are_what_the_parts_agree_on():
    assert agree(["vendor", None, "vendor"]) == "vendor"
    assert agree(["vendor", "derived"]) is None
    assert agree([]) is None


def test_caveats_join_once_each_in_the_order_of_the_table():
    assert join_caveats(("prefix_match", None, "model_from_config,prefix_match")) == "model_from_config,prefix_match"
    assert join_caveats((None,)) is None


def test_every_caveat_and_reason_is_a_sentence():
    sentences = [
        *honesty.CAVEATS.values(),
        *honesty.REASONS.values(),
        *honesty.SOURCES.values(),
        *honesty.BASES.values(),
    ]
    assert all(text[0].isupper() and text.endswith(".") for text in sentences)
    assert honesty.explain("rounded,no_rate") == f"{honesty.CAVEATS['rounded']} {honesty.CAVEATS['no_rate']}"
    assert honesty.explain(None) == ""
