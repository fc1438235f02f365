"""Exports: every format carries the ledger's own numbers, to the last digit, and no unknown ever as a zero."""

import csv
import io
import threading
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from pyarrow import parquet

from collector.export import csv as csv_export
from collector.export import focus, otlp, otlp_send
from collector.export import parquet as parquet_export
from collector.export.records import NAMES
from collector.honesty import BASES, STATUSES
from collector.money import PICO, to_pico
from collector.rates import Card, Rates, from_data
from collector.windows import UTC, Calendar
from shim.line import TOKEN_CLASSES, Tokens
from shim.names import ConfigError
from tests.collector.memory_ledger import NOW, entry, every_state, query
from tests.collector.priced import BOOK, NOON, record, tokens

CALENDAR = Calendar(UTC)
ENTRIES = every_state()
TOTAL = query(ENTRIES).total()
PRICED_IN_THREE_WAYS = [
    ("anthropic", "claude-sonnet-4-5"),
    ("perplexity", "sonar-deep-research"),
    ("openrouter", "openai/gpt-5.4"),
]


def day_of(ts):
    return CALENDAR.today(ts)


def csv_rows(entries):
    out = io.StringIO()
    csv_export.write(entries, day_of, out)
    return list(csv.DictReader(io.StringIO(out.getvalue())))


def focus_rows(entries):
    out = io.StringIO()
    focus.write(entries, out)
    return list(csv.DictReader(io.StringIO(out.getvalue())))


def test_the_records_of_these_tests_are_in_every_state():
    assert {one.kind.cost_status for one in ENTRIES} == set(STATUSES)


class TestCsv:
    def test_the_costs_add_up_to_the_query_layers_total(self):
        costs = [row["cost_usd"] for row in csv_rows(ENTRIES) if row["counted"] == "true"]
        assert to_pico(sum(Decimal(cost) for cost in costs if cost)) == TOTAL.cost_pico

    def test_tokens_add_up_too(self):
        for name in TOKEN_CLASSES:
            assert sum(int(row[name]) for row in csv_rows(ENTRIES) if row[name]) == getattr(TOTAL, name)

    def test_what_is_unknown_is_empty(self):
        missing = next(row for row in csv_rows(ENTRIES) if row["id"] == "b-6")
        assert {missing[name] for name in ("cost_usd", "cost_source", "price_book", *TOKEN_CLASSES)} == {""}
        assert (missing["cost_status"], missing["unpriced_reason"]) == ("unavailable", "no_usage")

    def test_a_real_zero_is_a_zero(self):
        local = next(row for row in csv_rows(ENTRIES) if row["id"] == "b-9")
        assert (local["cost_usd"], local["cost_status"]) == ("0", "exact")

    @pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"])
    def test_no_name_is_a_formula(self, name):
        assert csv_export.cell("text", name) == f"'{name}"

    def test_the_header_is_there_without_records(self):
        out = io.StringIO()
        assert csv_export.write([], day_of, out) == 0
        assert out.getvalue().strip().split(",") == list(NAMES)


class TestParquet:
    def table(self, entries):
        out = io.BytesIO()
        parquet_export.write(entries, day_of, out)
        return parquet.read_table(io.BytesIO(out.getvalue()))

    def test_money_is_exact_and_unknown_is_null(self):
        table = self.table(ENTRIES)
        counted = [row for row in table.to_pylist() if row["counted"]]
        costs = [row["cost_usd"] for row in counted if row["cost_usd"] is not None]
        assert to_pico(sum(costs)) == TOTAL.cost_pico
        assert table.column("cost_usd").null_count == sum(one.cost_pico is None for one in ENTRIES)

    def test_it_says_what_the_csv_says(self):
        for parquet_row, csv_row in zip(self.table(ENTRIES).to_pylist(), csv_rows(ENTRIES), strict=True):
            assert list(parquet_row) == list(csv_row)
            assert (parquet_row["id"], parquet_row["cost_status"]) == (csv_row["id"], csv_row["cost_status"])

    def test_records_go_out_in_groups(self, monkeypatch):
        monkeypatch.setattr(parquet_export, "ROW_GROUP", 4)
        out = io.BytesIO()
        assert parquet_export.write(ENTRIES, day_of, out) == len(ENTRIES)
        assert parquet.ParquetFile(io.BytesIO(out.getvalue())).num_row_groups == 3


class TestFocus:
    def test_list_cost_is_unit_price_times_quantity(self):
        priced = [row for row in focus_rows(ENTRIES) if row["ListCost"]]
        assert priced
        for row in priced:
            assert Decimal(row["ListCost"]) == Decimal(row["ListUnitPrice"]) * Decimal(row["PricingQuantity"])

    def test_all_money_is_in_x_cost(self):
        assert to_pico(sum(Decimal(row["x_Cost"]) for row in focus_rows(ENTRIES) if row["x_Cost"])) == TOTAL.cost_pico

    def test_list_cost_is_the_list_price_part_of_it(self):
        listed = sum(one.cost_pico for one in ENTRIES if one.kind.cost_basis == "list_price")
        assert to_pico(sum(Decimal(row["ListCost"]) for row in focus_rows(ENTRIES) if row["ListCost"])) == listed

    def test_calls_and_tokens_add_up(self):
        rows = focus_rows(ENTRIES)
        assert sum(int(row["x_Calls"]) for row in rows) == sum(one.kind.counted for one in ENTRIES)
        used = sum(int(row["ConsumedQuantity"]) for row in rows if row["ConsumedUnit"] == "Tokens")
        assert used == TOTAL.total_tokens

    def test_no_column_claims_a_bill(self):
        assert not {"BilledCost", "EffectiveCost", "ContractedCost"} & set(focus.COLUMNS)

    def test_an_unknown_cost_is_empty(self):
        unknown = [row for row in focus_rows(ENTRIES) if row["x_HonestyState"] in ("tokens_only", "unavailable")]
        assert {(row["ListCost"], row["x_Cost"]) for row in unknown} == {("", "")}

    def test_one_hour_is_one_period(self):
        row = next(row for row in focus_rows(ENTRIES) if row["SkuMeter"] == "Input tokens (cache read)")
        assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == ("2026-11-18T12:00:00Z", "2026-11-18T13:00:00Z")
        assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
        assert (row["ListUnitPrice"], row["PricingUnit"]) == ("0.3", "1000000 Tokens")

    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def test_the_parts_of_any_record_are_its_cost(self, data):
        fresh, read, write, output = (data.draw(st.integers(0, 300_000)) for _ in range(4))
        count = Tokens(fresh, read, write, data.draw(st.integers(0, write)), output, data.draw(st.integers(0, output)))
        upstream, model = data.draw(
            st.sampled_from(
                [
                    ("anthropic", "claude-sonnet-4-5"),
                    ("perplexity", "sonar-deep-research"),
                    ("openrouter", "openai/gpt-5.4"),
                ]
            )
        )
        made = entry(1, upstream, model=model, count=count)
        assert sum(pico or 0 for _, _, pico in focus.parts(made)) == (made.cost_pico or 0)


def test_rates_can_be_read_back_from_what_is_kept():
    card = BOOK.find("anthropic", "claude-sonnet-4-5", None).at(NOON)
    assert from_data(card.data) == card
    free = Card(((0, Rates(input=0, output=5)),), "any", "m", "prices.yaml")
    assert from_data(free.data) == free  # a price of zero is a price
    with pytest.raises(ValueError, match="no rates of ours"):
        from_data("{}")


class Receiver:
    """What an OTLP receiver got, decoded; ``answers`` are given first: (status, headers, body)."""

    def __init__(self, answers=()):
        self.requests, self.headers, self.answers = [], [], list(answers)

    def points(self):
        found = []
        for request in self.requests:
            for resource in request.resource_metrics:
                names = {one.key: one.value.string_value for one in resource.resource.attributes}
                for metric in resource.scope_metrics[0].metrics:
                    kind = metric.WhichOneof("data")
                    for point in getattr(metric, kind).data_points:
                        attributes = {one.key: one.value.string_value for one in point.attributes}
                        found.append((metric.name, names["host.name"], attributes, point, getattr(metric, kind)))
        return found

    def total(self, name, **attributes):
        chosen = [
            one for metric, _, found, one, _ in self.points() if metric == name and attributes.items() <= found.items()
        ]
        return sum(one.sum if hasattr(one, "bucket_counts") else one.as_int or one.as_double for one in chosen)


@contextmanager
def receiving(receiver):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.headers.append((self.path, dict(self.headers)))
            status, headers, answer = receiver.answers.pop(0) if receiver.answers else (200, {}, None)
            if status == 200:
                receiver.requests.append(self.decoded(body))
            kind = "application/x-protobuf" if answer is None else headers.pop("content-type", "application/json")
            answer = ExportMetricsServiceResponse().SerializeToString() if answer is None else answer
            self.send_response(status)
            for name, value in {**headers, "content-type": kind, "content-length": str(len(answer))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def decoded(self, body):
            if self.headers["content-type"] == "application/x-protobuf":
                return ExportMetricsServiceRequest.FromString(body)
            return ExportMetricsServiceRequest.FromString(otlp.protobuf(orjson.loads(body)))

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/metrics"
    finally:
        server.shutdown()
        server.server_close()


def sent(entries, names="latest", encoding="protobuf", answers=(), waits=None):
    receiver = Receiver(answers)
    groups = query(entries).groups()
    with receiving(receiver) as url:
        made = otlp.requests(groups, names, NOON, NOW)
        result = otlp_send.send(made, url, {"x-key": "v"}, encoding, (waits if waits is not None else []).append)
    return receiver, result


class TestOtlp:
    @pytest.mark.parametrize("encoding", ["protobuf", "json"])
    def test_a_receiver_gets_the_latest_names_with_subsets_inside(self, encoding):
        receiver, (taken, rejected) = sent(ENTRIES, encoding=encoding)
        usage = "gen_ai.client.inference.usage"
        known = TOTAL.input_tokens + TOTAL.cache_read_tokens + TOTAL.cache_write_tokens
        assert receiver.total(f"{usage}.input_tokens") == known
        assert receiver.total(f"{usage}.cache_read.input_tokens") == TOTAL.cache_read_tokens
        assert receiver.total(f"{usage}.reasoning.output_tokens") == TOTAL.reasoning_tokens
        assert (taken, rejected) == (len(receiver.points()), 0)

    def test_a_receiver_gets_the_names_of_1_41(self):
        receiver, _ = sent(ENTRIES, "1.41")
        name = "gen_ai.client.token.usage"
        assert receiver.total(name, **{"gen_ai.token.type": "output"}) == TOTAL.output_tokens
        point = next(point for metric, _, _, point, _ in receiver.points() if metric == name)
        assert sum(point.bucket_counts) == point.count > 0

    def test_money_is_one_metric_per_basis(self):
        assert set(otlp.COSTS) == set(BASES)
        receiver, _ = sent(ENTRIES)
        listed = sum(one.cost_pico for one in ENTRIES if one.kind.cost_basis == "list_price")
        assert receiver.total("usage.cost.list") == pytest.approx(listed / PICO, rel=1e-12)
        assert receiver.total("usage.cost.billed") == 12_345_678 / PICO
        assert receiver.total("usage.cost.runtime") == 77 / PICO

    def test_calls_and_what_is_missing_from_the_money(self):
        receiver, _ = sent(ENTRIES)
        assert receiver.total("usage.calls") == len(ENTRIES)
        assert receiver.total("usage.calls", **{"usage.outcome": "rejected"}) == 1
        assert receiver.total("usage.calls.unknown_cost") == TOTAL.unknown_calls

    def test_an_unknown_class_has_no_point(self):
        receiver, _ = sent([entry(1, count=Tokens(), usage="missing")])
        assert {metric for metric, *_ in receiver.points()} == {"usage.calls", "usage.calls.unknown_cost"}

    def test_sums_are_cumulative_from_their_start(self):
        receiver, _ = sent(ENTRIES)
        for _, host, _, point, form in receiver.points():
            assert form.aggregation_temporality == 2
            assert (point.start_time_unix_nano, point.time_unix_nano) == (int(NOON * 1e9), int(NOW * 1e9))
            assert host == "vm1"

    def test_large_ledgers_go_in_parts(self, monkeypatch):
        monkeypatch.setattr(otlp, "POINTS_PER_REQUEST", 5)
        receiver, (taken, _) = sent(ENTRIES)
        assert len(receiver.requests) == -(-taken // 5)

    def test_it_comes_back_when_told_to(self):
        waits = []
        receiver, _ = sent(ENTRIES, answers=[(503, {"retry-after": "7"}, b"{}"), (429, {}, b"{}")], waits=waits)
        assert waits == [7.0, 2.0]
        assert len(receiver.requests) == 1

    def test_a_refusal_is_not_tried_again(self):
        with pytest.raises(otlp_send.ExportError, match="said 401"):
            sent(ENTRIES, answers=[(401, {}, b"{}")])

    def test_rejected_points_are_counted(self):
        partial = orjson.dumps({"partialSuccess": {"rejectedDataPoints": "3"}})
        _, (taken, rejected) = sent(ENTRIES, encoding="json", answers=[(200, {}, partial)])
        assert rejected == 3
        assert taken > 3

    def test_headers_and_path(self):
        receiver, _ = sent(ENTRIES[:1])
        path, headers = receiver.headers[0]
        assert (path, headers["x-key"]) == ("/v1/metrics", "v")

    @pytest.mark.parametrize(
        ("given", "environ", "url"),
        [
            ("http://h:4318", {}, "http://h:4318/v1/metrics"),
            ("http://h/v1/metrics", {}, "http://h/v1/metrics"),
            (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://h/x/"}, "https://h/x/v1/metrics"),
            (None, {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "https://h/own"}, "https://h/own"),
        ],
    )
    def test_endpoints(self, given, environ, url):
        assert otlp_send.endpoint(given, environ) == url

    @pytest.mark.parametrize("given", [None, "h:4318"])
    def test_no_endpoint(self, given):
        with pytest.raises(ConfigError):
            otlp_send.endpoint(given, {})

    def test_headers_of_the_environment(self):
        environ = {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20x, a=b=c"}
        assert otlp_send.headers(environ) == {"authorization": "Bearer x", "a": "b=c"}


def test_the_seller_is_the_provider_and_not_the_maker_whose_list_gave_the_price():
    made = entry(1, "cursor", model="GPT-5", runtime="cursor")
    assert {(sku.provider, from_data(made.rates).provider) for sku, _, _ in focus.parts(made)} == {("cursor", "openai")}


def test_a_record_of_a_store_has_no_upstream_and_still_a_provider():
    made = replace(entry(1, call=record(runtime="claude_code", count=tokens(5))), upstream=None, rates=None)
    assert {sku.provider for sku, _, _ in focus.parts(made)} == {"anthropic"}
