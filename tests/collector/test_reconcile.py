"""The bill beside our records: fetched whole, read exactly, paired per day and model."""

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import reconcile_files
from collector.ledger import Entry, Kind
from collector.reconcile import Item, ReconcileError, compare, made_at, model_key, ours
from collector.reconcile_cursor import CursorAdmin, api_key, base_url
from shim.line import Tokens
from shim.names import ConfigError
from tests.collector.cursor_api import KEY, CursorApi, serving
from tests.collector.priced import at, usd

BILLS = Path(__file__).parent / "bills"
EVENTS = json.loads((BILLS / "cursor_events.json").read_text())["usageEvents"]
START, END = at("2026-08-01T00:00"), at("2026-08-31T00:00")
DAY = date(2026, 8, 19)


def utc_day(ts):
    return datetime.fromtimestamp(ts, UTC).date()


def event(ts, model="gpt-5", **usage):
    return {"timestamp": str(int(ts * 1000)), "model": model, "chargedCents": 1, "tokenUsage": usage}


def fetched(api, waits=None, start=START, end=END):
    with serving(api) as url, CursorAdmin(KEY, url, wait=(waits if waits is not None else []).append) as admin:
        return list(admin.events(start, end))


def entry(model, tokens, ts="2026-08-19T08:00", cost=None, status="exact", counted=True, **rest):
    kind = Kind("reported", "completed", status, "derived", "list_price", None, None, counted)
    rest = {"runtime": "cursor", "source": "log", **rest}
    return Entry(
        "b-1",
        "vm1",
        session_id="s",
        ts_ms=int(at(ts) * 1000),
        tokens=tokens,
        kind=kind,
        model=model,
        cost_pico=cost,
        **rest,
    )


class TestCursorApi:
    def test_events_carry_tokens_value_and_charge(self):
        first, second = sorted(fetched(CursorApi(EVENTS)), key=lambda one: one.ts)
        assert first.tokens == Tokens(3000, 9000, 0, None, 120, None)
        assert (first.billed_pico, first.value_pico) == (6_075_000_000, 6_075_000_000)  # 0.6075 cents
        assert (second.billed_pico, second.value_pico) == (0, 2_800_000_000)  # included in the plan
        assert (first.headless, first.user) == (True, "dev@example.invalid")

    def test_every_page_is_read(self):
        many = [event(START + number, inputTokens=number) for number in range(250)]
        api = CursorApi(many)
        assert sorted(one.tokens.input_tokens for one in fetched(api)) == list(range(250))
        assert [body["page"] for body in api.requests] == [1, 2, 3]

    def test_an_event_that_arrives_while_pages_are_read_has_them_read_again(self):
        many = [event(START + number, inputTokens=number) for number in range(150)]
        late = event(START + 999, inputTokens=999)
        found = fetched(CursorApi(many, late=[late]))
        assert sorted(one.tokens.input_tokens for one in found) == [*range(150), 999]

    def test_events_that_never_stop_arriving_are_said_to_be_the_trouble(self):
        many = [event(START + number) for number in range(150)]
        with pytest.raises(ReconcileError, match="kept changing"):
            fetched(CursorApi(many, late=[event(START + 500 + number) for number in range(20)]))

    def test_a_long_span_is_asked_for_in_parts_and_no_event_twice(self):
        edge = START + 30 * 86_400
        api = CursorApi([event(edge - 0.001), event(edge), event(edge + 1)])
        assert len(fetched(api, end=START + 45 * 86_400)) == 3
        assert len({(body["startDate"], body["endDate"]) for body in api.requests}) == 2

    def test_429_says_when_to_come_back(self):
        waits = []
        api = CursorApi(EVENTS, faults=[(429, [("retry-after", "7")]), (503, []), (429, [("retry-after", "99999")])])
        assert len(fetched(api, waits)) == 2
        assert waits == [7.0, 2.0, 120.0]  # as told; doubling where not told; never longer than two minutes

    def test_a_vendor_that_stays_down_is_an_error_without_the_key(self):
        with pytest.raises(ReconcileError) as caught:
            fetched(CursorApi(EVENTS, faults=[(500, [])] * 9), [])
        assert "500" in str(caught.value)
        assert KEY not in str(caught.value)

    def test_a_wrong_key_is_not_tried_again(self):
        api = CursorApi(EVENTS)
        with (
            serving(api) as url,
            CursorAdmin("wrong", url) as admin,
            pytest.raises(ReconcileError, match="refused the key"),
        ):
            list(admin.events(START, END))
        assert len(api.requests) == 1

    def test_calls_that_are_not_billed_by_token_have_unknown_tokens(self):
        (one,) = fetched(CursorApi([{"timestamp": str(int(START * 1000)), "model": "auto", "isTokenBasedCall": False}]))
        assert not one.tokens.known
        assert one.billed_pico is None


class TestKey:
    def test_from_a_file_of_its_owner(self, tmp_path):
        file = tmp_path / "key"
        file.write_text("key_1\n")
        file.chmod(0o600)
        assert api_key({"VM_USAGE_CURSOR_KEY_FILE": str(file)}) == "key_1"

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
    def test_a_file_that_others_can_read_is_refused_with_the_remedy(self, tmp_path, mode):
        file = tmp_path / "key"
        file.write_text("key_1")
        file.chmod(mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            api_key({"VM_USAGE_CURSOR_KEY_FILE": str(file)})

    def test_from_the_environment(self):
        assert api_key({"VM_USAGE_CURSOR_KEY": "key_2"}) == "key_2"

    def test_none(self):
        with pytest.raises(ConfigError, match="VM_USAGE_CURSOR_KEY_FILE is not set"):
            api_key({})

    def test_a_key_is_not_sent_in_the_clear(self):
        assert base_url({}) == "https://api.cursor.com"
        assert base_url({"VM_USAGE_CURSOR_API": "http://127.0.0.1:1/"}) == "http://127.0.0.1:1"
        with pytest.raises(ConfigError):
            base_url({"VM_USAGE_CURSOR_API": "http://api.cursor.com"})


class TestCompare:
    def test_cursors_fixture_beside_the_lines_of_the_same_two_turns(self):
        lines = [
            entry("GPT-5", Tokens(3000, 9000, 0, None, 120, None), cost=usd("1", 6075)),
            entry("GPT-5", Tokens(400, 12000, 0, None, 80, None), cost=usd("1", 2800)),
        ]
        (row,) = compare(ours(lines, utc_day), [one.item(DAY) for one in fetched(CursorApi(EVENTS))])
        assert (row.day, row.model, row.state) == ("2026-08-19", "gpt-5", "matched")
        assert (row.our_calls, row.their_calls, row.matched_calls) == (2, 2, 2)
        assert (row.our_cost_usd, row.value_usd, row.billed_usd) == (0.008875, 0.008875, 0.006075)

    def test_each_side_alone(self):
        one, other = Item(DAY, "a", Tokens(1), event=True), Item(DAY, "b", Tokens(1), event=True)
        assert [row.state for row in compare([one], [other])] == ["ours_only", "theirs_only"]

    def test_a_call_that_only_the_bill_has(self):
        same, more = (
            Item(DAY, "a", Tokens(5, 0, 0, None, 5), event=True),
            Item(DAY, "a", Tokens(7, 0, 0, None, 1), event=True),
        )
        (row,) = compare([same], [same, more])
        assert (row.state, row.matched_calls, row.ours_only_calls, row.theirs_only_calls) == ("differs", 1, 0, 1)
        assert row.difference_tokens["input_tokens"] == 7

    def test_a_figure_that_is_not_whole_has_no_difference_in_money(self):
        priced, not_priced = entry("m", Tokens(1), cost=5), entry("m", Tokens(1), status="tokens_only")
        (row,) = compare(ours([priced, not_priced], utc_day), [Item(DAY, "m", Tokens(2), 2, billed_pico=9)])
        assert (row.our_cost_status, row.difference_usd) == ("partial", None)

    def test_a_refused_call_is_on_no_bill(self):
        assert list(ours([entry("m", Tokens(), counted=False, status="unavailable")], utc_day)) == []

    def test_days_that_may_still_change_are_marked(self):
        rows = compare([Item(DAY, "a", Tokens(1)), Item(date(2026, 8, 20), "a", Tokens(1))], [], date(2026, 8, 20))
        assert [row.open for row in rows] == [False, True]

    items = st.lists(
        st.builds(
            Item,
            st.sampled_from([DAY, date(2026, 8, 20)]),
            st.sampled_from(["a", "b"]),
            st.builds(Tokens, st.integers(0, 3), st.integers(0, 3), st.just(0), st.none(), st.integers(0, 3)),
            event=st.just(True),
        ),
        max_size=12,
    )

    @given(items, items)
    def test_every_call_of_both_sides_is_matched_or_left_over_exactly_once(self, mine, theirs):
        rows = compare(mine, theirs)
        assert sum(row.matched_calls + row.ours_only_calls for row in rows) == len(mine)
        assert sum(row.matched_calls + row.theirs_only_calls for row in rows) == len(theirs)

    @given(items)
    def test_a_side_matches_itself(self, mine):
        assert {row.state for row in compare(mine, mine)} <= {"matched"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("GPT-5", "gpt-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4.5"),
        ("openai/gpt-5-2025-08-07", "gpt-5"),
        ("Claude 4.5 Sonnet", "claude-4.5-sonnet"),
    ],
)
def test_names_that_both_sides_spell_in_their_own_way(one, other):
    assert model_key(one) == model_key(other)


def test_other_models_stay_others():
    assert len({model_key(name) for name in ("gpt-5", "gpt-5-mini", "gpt-5.1", "gpt-4o", "o3")}) == 5


class TestFiles:
    def test_openais_input_contains_the_cached(self):
        first, second = reconcile_files.read(BILLS / "openai_usage.json", "openai")
        assert (first.day, first.model, first.calls) == (DAY, "gpt-5-2025-08-07", 2)
        assert first.tokens == Tokens(3400, 9000, None, None, 200, None)
        assert second.tokens.input_tokens == 500

    @pytest.mark.parametrize("name", ["anthropic_usage.json", "anthropic_usage.csv"])
    def test_anthropics_classes_are_apart(self, name):
        (one,) = reconcile_files.read(BILLS / name, "anthropic")
        assert (one.day, one.tokens, one.calls) == (DAY, Tokens(314, 2500, 2600, 500, 680, None), None)

    def test_openrouters_activity_by_day(self):
        (one,) = reconcile_files.read(BILLS / "openrouter_activity.json", "openrouter")
        assert (one.day, one.calls, one.billed_pico) == (DAY, 5, 15_000_000_000)
        assert (one.tokens.input_tokens, one.tokens.output_tokens) == (1050, 125)

    def test_openrouters_activity_by_call(self):
        (one,) = reconcile_files.read(BILLS / "openrouter_activity.csv", "openrouter")
        assert (one.event, one.calls, one.billed_pico) == (True, 1, 12_500_000_000)

    @pytest.mark.parametrize(
        ("data", "what"),
        [
            (b"", "is empty"),
            (b"{broken", "neither JSON nor CSV"),
            (b"name,age\nx,3\n", "row 1 has no token numbers"),
            (b'{"data": [{"start_time": 1, "input_tokens": 1, "input_cached_tokens": 2}]}', "larger than its input"),
            (b'{"data": [{"start_time": 1, "input_tokens": 1.5}]}', "not a number of tokens"),
            (b'{"data": [{"input_tokens": 1}]}', "it has no day"),
            (b"\xff\xfe", "not UTF-8"),
        ],
    )
    def test_what_is_no_export_is_refused(self, data, what):
        with pytest.raises(ReconcileError, match=what):
            reconcile_files.parse(data, "openai")

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(ReconcileError, match="cannot be read"):
            reconcile_files.read(tmp_path / "none.json", "openai")


@pytest.mark.parametrize(
    ("given", "provider"),
    [
        ({"runtime": "picoclaw", "upstream": "openai"}, "openai"),
        ({"runtime": "codex"}, "openai"),
        ({"runtime": "opencode", "source": "vendor", "upstream": "anthropic"}, "anthropic"),
        ({"runtime": "cursor", "upstream": "cursor", "rates": '{"provider":"openai"}'}, "cursor"),
        ({"runtime": "picoclaw", "upstream": "my-gateway"}, None),
    ],
)
def test_at_which_provider_a_call_was_made(given, provider):
    assert made_at(entry("gpt-5", Tokens(1), **given)) == provider


def test_a_redirect_is_not_followed_with_the_key():
    api = CursorApi(EVENTS, faults=[(302, [("location", "http://127.0.0.1:9/")])])
    with pytest.raises(ReconcileError, match="302"):
        fetched(api)
