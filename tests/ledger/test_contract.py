"""What every ledger does, whichever engine keeps it."""

from dataclasses import replace
from datetime import date

import pytest

from collector.ledger import Use
from collector.query import ALL_RECORDS, Query
from collector.rows import Filter, Page
from collector.windows import UTC, Calendar, Window, number
from shim.line import Tokens
from tests.ledger.records import EXACT, NOON, UNKNOWN, line, ms, record


def everything(ledger):
    return {entry.id: entry for entry in ledger.scan(ALL_RECORDS)}


def calls(ledger, **where):
    return sum(group.calls for group in ledger.groups((), Filter(**where)))


# Writing.


def test_an_entry_comes_back_as_it_went_in(ledger):
    given = [line(), record(), replace(record(2), ts_ms=None, ended_ms=NOON, acu_micro=7, duration_ms=0)]
    assert ledger.append(given) == 3
    assert everything(ledger) == {entry.id: entry for entry in given}


def test_the_same_entries_again_change_nothing(ledger):
    given = [line(), record()]
    ledger.append(given)
    assert ledger.append(given) == 0
    assert calls(ledger) == 2


def test_an_entry_twice_in_one_call_counts_once(ledger):
    ledger.append([line(), line(), record(), record()])
    assert calls(ledger) == 2


def test_a_line_is_replaced_by_what_its_vm_says_later(ledger):
    ledger.append([line()])
    later = line(session_id="chat-1", attribution="time")
    assert ledger.append([later]) == 1
    assert everything(ledger) == {later.id: later}


def test_a_line_of_another_moment_under_the_same_id_is_a_call_of_its_own(ledger):
    """A VM and its copy, restored from a snapshot, both went on with the ids they had."""
    mine, copies = line(ts_ms=NOON), line(ts_ms=NOON + 1, cost=7)
    assert ledger.append([mine]) == 1
    assert ledger.append([copies]) == 1
    assert ledger.append([copies, mine]) == 0
    later = [replace(entry, session_id="chat-1") for entry in (copies, mine)]
    assert ledger.append(later) == 2
    found = everything(ledger)
    assert found[mine.id] == later[1]
    assert sorted((entry.ts_ms, entry.cost_pico, entry.session_id) for entry in found.values()) == [
        (NOON, 5, "chat-1"),
        (NOON + 1, 7, "chat-1"),
    ]


def test_two_lines_under_one_id_in_one_call_are_two_calls(ledger):
    both = [line(ts_ms=NOON), line(ts_ms=NOON + 1)]
    assert ledger.append(both) == 2
    assert ledger.append(both, keep_known=True) == 0
    assert calls(ledger) == 2


def test_what_is_known_stays_where_older_entries_come(ledger):
    ledger.append([line(session_id="chat-1"), record(cost_pico=9)])
    assert ledger.append([line(), record(cost_pico=8), line(2)], keep_known=True) == 1
    assert everything(ledger)["boot-1"].session_id == "chat-1"
    assert everything(ledger)[record().id].cost_pico == 9


def test_a_withdrawn_record_counts_nowhere_and_may_come_back(ledger):
    ledger.append([line()])
    ledger.append([line(withdrawn="twin")])
    assert calls(ledger) == 0
    assert everything(ledger) == {}
    ledger.append([line()])
    assert calls(ledger) == 1


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_copies_the_session_that_paid_keeps_the_record(ledger, order):
    paid, copied = record(owner_ms=NOON - 5), record(session_id="fork", owner_ms=NOON)
    for entry in [paid, copied][::order]:
        ledger.append([entry])
    assert everything(ledger) == {paid.id: paid}


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_revisions_the_later_one_stays(ledger, order):
    early = record(tokens=Tokens(10, None, 0, None, 1, None))
    late = record(revision=2, ts_ms=ms("2026-12-02T00:00:00+00:00"))
    for entry in [early, late][::order]:
        ledger.append([entry])
    assert everything(ledger) == {late.id: late}
    assert calls(ledger, window=Window(None, date(2026, 11, 30))) == 0


def test_a_record_on_two_vms_counts_for_the_one_that_reported_it_first(ledger):
    ledger.append([record(vm="first")])
    ledger.append([record(vm="clone")])
    ledger.append([record(vm="first")])
    assert [(entry.vm, entry.id) for entry in ledger.scan(ALL_RECORDS)] == [("first", record().id)]


# Sums.


def test_groups_add_up_by_any_dimensions(ledger):
    ledger.append([line(1), line(2, model="gpt-4o-mini", vm="vm2", boot="b2"), record(cost_pico=None, kind=UNKNOWN)])
    by = {group.key: group for group in ledger.groups(("vm", "model"), ALL_RECORDS)}
    assert set(by) == {("vm1", "gpt-4o"), ("vm2", "gpt-4o-mini"), ("vm1", "claude-sonnet-4-5")}
    one = by["vm1", "gpt-4o"]
    assert (one.calls, one.sums, one.known) == (1, (100, 20, 0, 0, 7, 0), (1, 1, 0, 0, 1, 1))
    assert (one.priced, one.cost_pico, one.kind) == (1, 5, EXACT)
    assert (by["vm1", "claude-sonnet-4-5"].priced, by["vm1", "claude-sonnet-4-5"].kind) == (0, UNKNOWN)


def test_unknown_is_not_zero(ledger):
    ledger.append([line(tokens=Tokens()), line(2, tokens=Tokens(0, 0, 0, 0, 0, 0), cost=0)])
    (group,) = ledger.groups((), ALL_RECORDS)
    assert (group.calls, group.without_tokens, group.known) == (2, 1, (1, 1, 1, 1, 1, 1))
    total = Query(ledger, Calendar(UTC)).models()[0]
    assert total.input_tokens == 0
    ledger.append([line(2, tokens=Tokens(), cost=None, kind=UNKNOWN)])
    total = Query(ledger, Calendar(UTC)).total()
    assert (total.input_tokens, total.unknown_calls) == (None, 1)


def test_money_beyond_64_bits_is_exact(ledger):
    most = 2**63 - 1
    ledger.append([line(seq, cost=most) for seq in range(1, 6)])
    (group,) = ledger.groups((), ALL_RECORDS)
    assert group.cost_pico == 5 * most


def test_days_are_local_days_and_a_record_without_time_has_none(ledger):
    night = ms("2026-11-18T23:30:00+00:00")  # the next day in Berlin
    ledger.append([line(), line(2, ts_ms=night), replace(record(), ts_ms=None)])
    days = {group.key[0] for group in ledger.groups(("day",), ALL_RECORDS)}
    assert days == {number(date(2026, 11, 18)), number(date(2026, 11, 19)), None}
    assert calls(ledger, window=Window(date(2026, 11, 19), None)) == 1
    assert calls(ledger, window=Window(None, date(2026, 11, 18))) == 1


def test_a_page_of_days_ends_with_a_whole_day_and_names_the_next(ledger):
    at = [None, NOON, NOON, NOON + 86_400_000, NOON + 30 * 86_400_000]
    models = ["a", "a", "b", "b", "a"]
    ledger.append([line(seq, ts_ms=ts, model=model) for seq, (ts, model) in enumerate(zip(at, models, strict=True), 1)])
    pages, after = [], None
    while not pages or after is not None:
        found, after = ledger.by_day(("model",), ALL_RECORDS, after, 2)
        pages.append([total.key for total in found])
    noon = number(date(2026, 11, 18))
    assert pages == [[(None, "a")], [(noon, "a"), (noon, "b")], [(noon + 1, "b"), (noon + 30, "a")]]
    found, after = ledger.by_day(("model",), Filter(Window(None, date(2026, 11, 19))), None, 1)
    assert ([total.key for total in found], after) == ([(noon, "a"), (noon, "b")], noon + 1)


def test_what_vms_used_counts_days_and_tokens(ledger):
    ledger.append([line(1), line(2), line(3, ts_ms=NOON + 86_400_000), line(boot="b2", vm="vm2"), record()])
    noon = number(date(2026, 11, 18))
    assert ledger.uses([(noon, noon + 1), (noon + 1, noon + 9), (noon - 9, noon - 1)]) == [
        {"vm1": Use(2, 3 * 127 + 13), "vm2": Use(1, 127)},
        {"vm1": Use(1, 127)},
        {},
    ]
    assert ledger.uses([(noon, noon + 1), (noon + 1, noon + 9)], "vm2") == [{"vm2": Use(1, 127)}, {}]


@pytest.mark.parametrize(
    ("where", "expected"),
    [({"runtime": "picoclaw"}, 2), ({"model": "gpt-4o"}, 1), ({"vm": "vm2"}, 1), ({"source": "vendor"}, 1)],
)
def test_filters_narrow(ledger, where, expected):
    ledger.append([line(), line(1, boot="b2", vm="vm2", model="other's \\ model"), record()])
    assert calls(ledger, **where) == expected
    assert len(list(ledger.scan(Filter(**where)))) == expected


# Sessions.


def test_a_session_shows_what_its_records_say(ledger):
    ledger.append([line(1, session_id="chat"), line(2, session_id="chat", model="newer", parent_session_id="old")])
    (head,) = ledger.sessions(ALL_RECORDS, Page())[0]
    assert (head.vm, head.runtime, head.session_id, head.session_ref) == ("vm1", "picoclaw", "chat", "ref")
    assert (head.model, head.model_source, head.parent_session_id, head.source) == ("newer", "log", "old", "log")
    assert (head.started_ms, head.ended_ms) == (NOON + 1000, NOON + 2000)
    assert [entry.id for entry in ledger.records(head.number, 10)] == ["boot-1", "boot-2"]
    assert {group.key: group.calls for group in ledger.session_groups([head.number], ALL_RECORDS)} == {
        (head.number, "gpt-4o"): 1,
        (head.number, "newer"): 1,
    }


@pytest.mark.parametrize("sort", ["recent", "cost", "tokens", "calls"])
def test_pages_hold_every_session_once(ledger, sort):
    ledger.append([line(seq, session_id=f"s{seq % 5}", cost=seq * 10**6) for seq in range(1, 18)])
    shown, cursor = [], None
    while True:
        heads, cursor = ledger.sessions(ALL_RECORDS, Page(2, cursor, sort))
        shown += [head.session_id for head in heads]
        if cursor is None:
            break
    assert sorted(shown) == [f"s{place}" for place in range(5)]
    if sort in ("recent", "cost"):
        assert shown[0] == "s2"


def test_pages_refuse_what_is_none_of_theirs(ledger):
    with pytest.raises(ValueError, match="sort"):
        ledger.sessions(ALL_RECORDS, Page(sort="name"))
    with pytest.raises(ValueError, match="cursor"):
        ledger.sessions(ALL_RECORDS, Page(cursor="1; DROP TABLE record.2"))


def test_one_session_id_on_two_vms_is_two_sessions(ledger):
    ledger.append([line(session_id="s"), line(boot="b2", vm="vm2", session_id="s")])
    assert [head.vm for head in ledger.find_session(None, None, "s")] == ["vm1", "vm2"]
    assert [head.vm for head in ledger.find_session("vm2", "picoclaw", "s")] == ["vm2"]
    assert ledger.find_session("vm3", None, "s") == []


def test_sessions_are_narrowed_by_what_their_records_are(ledger):
    ledger.append([line(1, session_id="a"), line(2, session_id="b", model="other"), record(session_id="c")])
    names = [
        sorted(head.session_id for head in ledger.sessions(where, Page())[0])
        for where in (Filter(model="other"), Filter(vm="vm1", runtime="picoclaw"), Filter(source="vendor"))
    ]
    assert names == [["b"], ["a", "b"], ["c"]]


def test_seen_tells_first_last_and_sessions(ledger):
    ledger.append([line(1), line(2, session_id="x"), line(1, boot="b2", vm="vm2")])
    seen = {one.name: one for one in ledger.seen("vm")}
    assert (seen["vm1"].first_ms, seen["vm1"].last_ms, seen["vm1"].sessions) == (NOON + 1000, NOON + 2000, 2)
    assert set(seen) == {"vm1", "vm2"}
    assert [one.name for one in ledger.seen("runtime")] == ["picoclaw"]


# Reading on.


def test_changes_give_everything_once_and_what_changed_again(ledger):
    ledger.append([line(seq) for seq in range(1, 8)])
    got, cursor = read_on(ledger, 0)
    assert got == {f"boot-{seq}" for seq in range(1, 8)}
    ledger.append([line(3, session_id="found")])
    assert read_on(ledger, cursor)[0] == {"boot-3"}


def read_on(ledger, cursor):
    got = set()
    while True:
        after, entries = ledger.changes(cursor, 3)
        if after == cursor:
            return got, cursor
        got |= {entry.id for entry in entries}
        cursor = after


def test_scan_is_in_order_of_time(ledger):
    ledger.append([line(3), line(1), line(2), replace(record(), ts_ms=None)])
    assert [entry.ts_ms for entry in ledger.scan(ALL_RECORDS)] == [None, NOON + 1000, NOON + 2000, NOON + 3000]
