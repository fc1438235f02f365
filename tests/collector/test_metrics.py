"""/metrics of the collector: disjoint kinds, bounded labels, nothing unknown counted as money."""

import re
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector import metrics
from collector.money import to_usd
from collector.rows import GapRow, RefusedRow
from shim.allowlist import RUNTIMES
from tests.collector.memory_ledger import entry, every_state, query, store
from tests.collector.priced import tokens

ENTRIES = every_state()
BOOK = "genai-prices 0.2.3"


def scraped(entries, **rest):
    text = metrics.Exposition(BOOK)(query(entries, **rest)).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def total(family, **labels):
    return sum(one.value for one in family.samples if labels.items() <= one.labels.items())


def test_token_kinds_add_up_to_all_tokens():
    assert total(scraped(ENTRIES)["usage_tokens"]) == query(ENTRIES).total().total_tokens


def test_kinds_do_not_overlap():
    found = scraped([entry(count=tokens(1000, 5000, 2000, 500, 700, 200))])["usage_tokens"]
    assert {one.labels["kind"]: one.value for one in found.samples} == {
        "input_uncached": 1000,
        "cache_read": 5000,
        "cache_write_5m": 1500,
        "cache_write_1h": 500,
        "output_text": 500,
        "output_reasoning": 200,
    }


def test_each_kind_of_money_has_its_own_family():
    found = scraped(ENTRIES)
    listed = sum(one.cost_pico for one in ENTRIES if one.kind.cost_basis == "list_price")
    assert total(found["usage_list_cost_usd"]) == pytest.approx(to_usd(listed))
    assert total(found["usage_billed_cost_usd"]) == to_usd(12_345_678)
    assert total(found["usage_runtime_cost_usd"]) == to_usd(77)


def test_unknown_cost_is_counted_by_reason_and_never_as_money():
    found = scraped(ENTRIES)
    reasons = {one.labels["reason"]: one.value for one in found["usage_unpriced_calls"].samples}
    assert reasons == {"no_provider": 1, "no_usage": 1}
    assert total(found["usage_incomplete_calls"]) == query(ENTRIES).total().unknown_calls


def test_a_call_without_a_cost_has_no_cost_sample():
    assert scraped([entry(upstream="my-gateway")])["usage_list_cost_usd"].samples == []


def test_every_call_is_counted_by_its_outcome():
    calls = scraped(ENTRIES)["usage_calls"]
    assert total(calls) == len(ENTRIES)
    assert total(calls, outcome="rejected") == 1


def test_models_beyond_the_bound_are_counted_together():
    many = [entry(number, model=f"m{number:03}", count=tokens(1)) for number in range(metrics.MAX_MODELS + 7)]
    many += [entry(1000 + number, model="m000", count=tokens(1)) for number in range(3)]
    found = scraped(many)["usage_tokens"]
    assert len({one.labels["model"] for one in found.samples}) == metrics.MAX_MODELS + 1
    assert total(found, model="other") == 7
    assert total(found) == len(many)


def test_sources_are_named_by_kind_and_runtime_and_never_by_path():
    sources = [store("/home/a"), store("/home/b", ok=False, lag=5), store("/var/x", runtime="pi", read=None)]
    found = scraped([], sources=sources)
    success = {one.labels["source"]: one.value for one in found["usage_source_success"].samples}
    assert success == {"store:claude_code": 0, "store:pi": 1}
    assert total(found["usage_source_lag_bytes"]) == 5
    (read,) = found["usage_source_last_read_timestamp_seconds"].samples
    assert read.value == 1796039940


def test_refusals_and_missing_lines():
    refused = [
        RefusedRow(reason="twin", runtime=runtime, vm="vm1", count=2, first_at=None, last_at=None, examples=())
        for runtime in ("picoclaw", "cursor")
    ]
    found = scraped([], refused=refused, gaps=[GapRow(vm="vm1", boot="b", first_seq=4, last_seq=6, lines=3)])
    assert total(found["usage_refused_records"], reason="twin") == 4
    assert total(found["usage_missing_lines"]) == 3


def test_the_price_book_in_use():
    (one,) = scraped([])["usage_price_book_info"].samples
    assert (one.labels, one.value) == ({"book": BOOK}, 1)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_finds_nothing_to_mend():
    text = metrics.Exposition(BOOK)(query(ENTRIES, sources=[store()]))
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_local_server_is_its_own_provider_and_a_gateway_is_unknown():
    found = scraped([entry(upstream="ollama", model="qwen3:8b"), entry(upstream="gw-of-a-user")])["usage_calls"]
    assert {one.labels["provider"] for one in found.samples} == {"ollama", "unknown"}


def test_a_scrape_after_a_call_of_one_of_all_runtimes_writes_that_runtimes_text_alone(monkeypatch):
    before = [entry(number, runtime=runtime) for number, runtime in enumerate(sorted(RUNTIMES))]
    after = [*before, entry(99, runtime="codex")]
    sources = [store(runtime=runtime) for runtime in RUNTIMES]
    answer = metrics.Exposition(BOOK)
    want = metrics.Exposition(BOOK)(query(after, sources=sources))
    answer(query(before, sources=sources))
    written, text = [], metrics._text
    monkeypatch.setattr(metrics, "_text", lambda *of: written.append(of) or text(*of))
    assert answer(query(after, sources=sources)) == want
    assert {family.name for family, _ in written} == {"usage_tokens", "usage_calls", "usage_list_cost_usd"}
    assert {labels[0] for _, part in written for labels, _ in part} == {"codex"}


def test_no_label_is_a_session_a_path_or_an_id():
    text = metrics.Exposition(BOOK)(query(ENTRIES, sources=[store()])).decode()
    assert not re.search(r'="[^"]*(s1|/home|b-\d)', text)
    assert {label for family in metrics.FAMILIES for label in family.labels} == {
        "runtime", "provider", "model", "kind", "outcome", "reason", "source", "book",
    }  # fmt: skip
