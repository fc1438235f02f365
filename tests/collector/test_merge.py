"""The pure rules of merge and attribution, one by one."""

from dataclasses import replace

import pytest

from collector.attribution import AMBIGUOUS, BY_TIME, Found, Turn, contradicts, find
from collector.merge import Side, Version, prefer, refused_line, same_model, same_tokens, twins
from shim import allowlist
from shim.line import Tokens
from shim.places import CHECKOUT_ALLOWLIST

ALLOWLIST = allowlist.load(CHECKOUT_ALLOWLIST)
COUNTS = Tokens(100, 20, 0, None, 30, None)
LINE = Side(1, "vm-1", 1_000_000, 1_004_000, "gpt-5-mini-2025-08-07", COUNTS)
RECORD = Side(11, "vm-1", 1_003_000, 1_003_000, "gpt-5-mini", COUNTS)


@pytest.mark.parametrize(
    ("runtime", "reason"), [("picoclaw", None), ("claude_code", "not_token_blind"), ("nobody", "not_token_blind")]
)
def test_only_lines_of_token_blind_runtimes_count(runtime, reason):
    assert refused_line(runtime, ALLOWLIST) == reason


def test_a_runtime_that_was_left_out_is_refused_under_its_own_reason():
    assert refused_line("cursor", ALLOWLIST.narrow(["picoclaw"])) == "not_allowed"


def test_of_copies_the_session_that_began_first_keeps_the_record():
    paid, fork = Version("b", 1_000, 1, ()), Version("a", 2_000, 9, ())
    assert prefer(paid, fork)
    assert not prefer(fork, paid)


def test_within_one_session_the_later_revision_stays_and_the_same_one_changes_nothing():
    early, late = Version("a", 1_000, 1, (5,)), Version("a", 1_000, 2, (420,))
    assert prefer(late, early)
    assert not prefer(early, late)
    assert not prefer(late, late)


def test_of_two_that_say_the_same_within_one_session_the_one_that_knows_its_beginning_stays():
    copied, own, fork = Version("b", 2_000, 1, (5,)), Version("b", 1_000, 1, (5,)), Version("a", 2_000, 1, (5,))
    assert prefer(own, copied)
    assert not prefer(copied, own)
    assert not prefer(fork, own)


def test_a_line_with_a_records_response_id_is_its_twin_whatever_the_numbers_say():
    line = replace(LINE, response="r1", tokens=Tokens())
    record = replace(RECORD, response="r1", model="another", start_ms=9_000_000, end_ms=9_000_000)
    assert twins([line], [record]) == {1: 11}


def test_without_ids_the_one_record_with_the_same_numbers_within_the_call_is_its_twin():
    assert twins([LINE], [RECORD]) == {1: 11}


@pytest.mark.parametrize(
    "other",
    [
        replace(RECORD, start_ms=1_060_000, end_ms=1_060_000),
        replace(RECORD, tokens=COUNTS._replace(output_tokens=31)),
        replace(RECORD, tokens=COUNTS._replace(cache_read_tokens=21)),
        replace(RECORD, model="gpt-5"),
        replace(RECORD, vm="vm-2"),
    ],
)
def test_another_vm_time_number_or_model_is_another_call(other):
    assert twins([LINE], [other]) == {}


def test_two_candidates_on_either_side_leave_the_line_alone():
    assert twins([LINE], [RECORD, replace(RECORD, id=12)]) == {}
    assert twins([LINE, replace(LINE, id=2)], [RECORD]) == {}


def test_a_record_that_a_response_id_has_claimed_is_no_candidate_for_others():
    claimed, free = replace(RECORD, response="r1"), replace(RECORD, id=12)
    named = replace(LINE, id=2, response="r1")
    assert twins([LINE, named], [claimed, free]) == {2: 11, 1: 12}


def test_unknown_or_empty_counts_are_no_evidence():
    assert not same_tokens(Tokens(), Tokens())
    assert not same_tokens(Tokens(0, 0, 0, 0, 0, 0), Tokens(0, 0, 0, 0, 0, 0))
    assert same_tokens(COUNTS, COUNTS._replace(cache_write_tokens=None))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5-20250929", True),
        ("GPT-5", "gpt-5-2025-08-07", True),
        (None, "gpt-5", True),
        ("gpt-5", "gpt-5-mini", False),
    ],
)
def test_a_models_provider_date_and_case_do_not_matter(one, other, same):
    assert same_model(one, other) == same


def turn(seconds, session, model=None):
    return Turn(int(seconds * 1000), session, model)


def test_the_session_whose_turn_follows_the_call_has_it():
    assert find(1_000, 2_000, "gpt-5", [turn(3.2, 7), turn(40, 8)]) == Found(7, BY_TIME)


def test_a_late_turn_counts_where_no_other_is_near():
    assert find(1_000, 2_000, "gpt-5", [turn(40, 8)]) == Found(8, BY_TIME)


def test_of_two_sessions_the_one_with_the_calls_model_has_it():
    turns = [turn(3.2, 7, "home-model"), turn(3.4, 8, "gpt-5")]
    assert find(1_000, 2_000, "gpt-5-2025-08-07", turns) == Found(8, BY_TIME)


def test_two_sessions_alike_leave_the_line_under_its_reference():
    assert find(1_000, 2_000, "gpt-5", [turn(3.2, 7), turn(3.4, 8)]) == Found(None, AMBIGUOUS)
    assert find(1_000, 2_000, "gpt-5", []) == Found(None, None)


@pytest.mark.parametrize(
    ("alias", "model", "other"),
    [
        ("claude-sonnet-4-5", "gpt-5", True),
        ("gpt-5", "gpt-5-mini", False),
        ("home-model", "gpt-5", False),
        (None, "x", False),
    ],
)
def test_an_alias_speaks_against_a_model_only_where_it_is_another_models_name(alias, model, other):
    assert contradicts(alias, model) == other
