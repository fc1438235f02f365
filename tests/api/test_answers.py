"""The API over HTTP: rows, paging, errors with names, ETag, compression, and the document that describes it all."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from collector.api.endpoints import ENDPOINTS, PREFIX
from tests.api.conftest import TODAY, YESTERDAY
from tests.page.conftest import Collector


def get(served: Collector, path: str, **headers: str) -> httpx.Response:
    return httpx.get(served.url + path, headers=headers)


@pytest.mark.parametrize("name", sorted(ENDPOINTS))
def test_every_endpoint_answers_in_json(served: Collector, name: str) -> None:
    answer = get(served, PREFIX + name + ("?session_id=s1" if name == "session" else ""))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/json")


def test_pages_of_sessions_hold_every_session_once(served: Collector) -> None:
    seen: list[str] = []
    cursor = ""
    while True:
        body = get(served, f"/api/local/sessions?limit=7{cursor and '&cursor=' + cursor}").json()
        seen += [row["session_id"] for row in body["rows"]]
        if body["next_cursor"] is None:
            break
        cursor = body["next_cursor"]
    assert sorted(seen) == sorted({f"s{number}" for number in range(40)})


@pytest.mark.parametrize("sort", ["cost", "tokens", "calls"])
def test_sessions_are_sorted_as_asked(served: Collector, sort: str) -> None:
    key = {"cost": "cost_usd", "tokens": "total_tokens", "calls": "calls"}[sort]
    rows = get(served, f"/api/local/sessions?limit=1000&sort={sort}").json()["rows"]
    values = [row[key] or 0 for row in rows]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(
    "narrow", ["runtime=picoclaw", "model=gpt-5", "vm=vm-7", f"since={TODAY}", f"until={YESTERDAY}"]
)
def test_what_is_narrowed_adds_up_over_the_days(served: Collector, narrow: str) -> None:
    days = get(served, f"/api/local/aggregates?{narrow}").json()["rows"]
    models = get(served, f"/api/local/models?{narrow}").json()["rows"]
    for name in ("calls", "unknown_calls", "input_tokens", "output_tokens"):
        assert sum(row[name] for row in days) == sum(row[name] for row in models)
    assert sum(row["calls"] for row in days) > 0


def test_a_breakdown_adds_up_to_its_days(served: Collector) -> None:
    days = {row["day"]: row["cost_pico"] or 0 for row in get(served, "/api/local/aggregates").json()["rows"]}
    parts: dict[str, int] = {}
    for row in get(served, "/api/local/aggregates?by=model").json()["rows"]:
        parts[row["day"]] = parts.get(row["day"], 0) + (row["cost_pico"] or 0)
    assert parts == days


def test_pages_of_a_breakdown_are_whole_days_in_order(served: Collector) -> None:
    whole = get(served, "/api/local/aggregates?by=model").json()
    assert whole["next_cursor"] is None
    rows: list[dict[str, Any]] = []
    cursor = ""
    while True:
        body = get(served, f"/api/local/aggregates?by=model&limit=1{cursor and '&cursor=' + cursor}").json()
        assert len({row["day"] for row in body["rows"]}) == 1
        rows += body["rows"]
        if body["next_cursor"] is None:
            break
        cursor = body["next_cursor"]
    assert rows == whole["rows"]


def test_days_that_are_not_broken_down_come_all_at_once(served: Collector) -> None:
    assert get(served, "/api/local/aggregates").json()["next_cursor"] is None
    refused = get(served, "/api/local/aggregates?limit=1")
    assert (refused.status_code, refused.json()["error"]["parameter"]) == (400, "limit")


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("widow=today", "widow"),
        ("since=soon", "since"),
        ("limit=0", "limit"),
        ("sort=up", "sort"),
        ("cursor=%3C", "cursor"),
    ],
)
def test_a_wrong_parameter_gets_400_with_its_name_and_what_is_allowed(
    served: Collector, query: str, parameter: str
) -> None:
    answer = get(served, f"/api/local/sessions?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["parameter"] == parameter
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("cursor", ["9" * 40, "-" + "9" * 40, "-1", "x"])
def test_a_cursor_that_no_page_of_records_gave_gets_400(served: Collector, cursor: str) -> None:
    answer = get(served, f"/api/local/records?cursor={cursor}")
    assert (answer.status_code, answer.json()["error"]["parameter"]) == (400, "cursor")


def test_an_unchanged_answer_is_304(served: Collector) -> None:
    first = get(served, "/api/local/models")
    again = get(served, "/api/local/models", **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_long_answers_are_compressed(served: Collector) -> None:
    answer = get(served, "/api/local/sessions?limit=40", **{"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.json()["rows"]) == 40


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_other_sites_are_refused(served: Collector, headers: dict[str, str], status: int) -> None:
    assert get(served, "/api/local/summary", **headers).status_code == status


def test_nothing_is_written_over_http(served: Collector) -> None:
    answer = httpx.post(served.url + "/api/local/summary")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path", ["/page/../server.py", "/page/..%2fserver.py", "/page/none.js", "/api/local/none", "/api"]
)
def test_nothing_else_is_served(served: Collector, path: str) -> None:
    assert get(served, path).status_code == 404


def test_the_page_is_served_under_a_strict_policy(served: Collector) -> None:
    policy = get(served, "/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_openapi_document_is_true(served: Collector) -> None:
    """Every operation, asked with what the document allows and with what it does not, answers as it says."""
    schema = schemathesis.openapi.from_url(served.url + "/openapi.json")
    checks = [not_a_server_error, status_code_conformance, response_schema_conformance]
    asked = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        asked.add(operation.path)

        @settings(
            max_examples=10,
            deadline=None,
            derandomize=True,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def agree(case: Any) -> None:
            case.call_and_validate(checks=checks)

        agree()
    assert asked == {PREFIX + name for name in ENDPOINTS}
