"""Every recorded case is read right: as recorded, in one read, byte by byte, and through its content coding."""

from __future__ import annotations

import pytest

from shim.wires.paths import counting_endpoint, wire_of
from shim.wires.table import READERS
from tests.wires.recorded import CASES, cut, decoded, differences, read, reads_of, wire_bytes

COUNTING = {name for name, case in CASES.items() if "not_usage" in name}
every_case = pytest.mark.parametrize("name", CASES)


@every_case
def test_case_is_read_right_as_recorded(name: str) -> None:
    case = CASES[name]
    assert differences(case, read(case, reads_of(case))) == []


@every_case
def test_case_is_read_right_in_one_read(name: str) -> None:
    case = CASES[name]
    assert differences(case, read(case, [b"".join(reads_of(case))])) == []


@every_case
def test_case_is_read_right_byte_by_byte(name: str) -> None:
    case = CASES[name]
    assert differences(case, read(case, cut(b"".join(reads_of(case)), 1))) == []


@every_case
def test_case_is_read_right_through_its_content_coding(name: str) -> None:
    case = CASES[name]
    assert differences(case, read(case, decoded(case, cut(wire_bytes(case), 97)))) == []


@every_case
def test_path_tells_the_wire_and_whether_it_only_counts(name: str) -> None:
    case = CASES[name]
    assert wire_of(case["request_path"]) == case["wire"]
    assert counting_endpoint(case["request_path"]) == (name in COUNTING)


def test_every_wire_has_a_case_that_reports() -> None:
    reporting = {case["wire"] for case in CASES.values() if case["expect"]["status"] == "ok"}
    assert reporting == set(READERS)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["expect"]["status"] == "ok"])
def test_a_cut_body_never_reports_another_total(name: str) -> None:
    case = CASES[name]
    body = b"".join(reads_of(case))
    whole = read(case, [body])
    for end in range(0, len(body), max(1, len(body) // 25)):
        reading = read(case, [body[:end]], complete=False)
        assert reading.usage != "reported" or reading.tokens.total == whole.tokens.total
