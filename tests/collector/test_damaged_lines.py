"""A damaged line that still tells its id is one finding: it is in quarantine, and not missing beside that."""

from __future__ import annotations

import pytest

from collector.lines import told_id
from shim.line import Tokens, encode
from tests.collector.worlds import BOOT, PRICED, START, Vm, line


@pytest.fixture
def machine(tmp_path):
    made = Vm(tmp_path)
    yield made
    made.ledger.close()


def written(number: int) -> bytes:
    return encode(line(number, "picoclaw", START + number, Tokens(5, 0, 0, 0, 2, None), PRICED))


def torn(number: int) -> bytes:
    return written(number)[:-20] + b"\n"


def test_a_quarantined_line_that_tells_its_id_is_no_gap_beside_that(machine):
    machine.take(b"".join([written(1), torn(2), written(3), torn(4), torn(6), written(8)]))
    assert [(gap.first_seq, gap.last_seq) for gap in machine.query.gaps()] == [(5, 5), (7, 7)]
    told = {row.line: row.reason for row in machine.query.quarantine()}
    assert told == {f"{BOOT}-{number}": "torn" for number in (2, 4, 6)}
    assert machine.query.vms()[0].missing_lines == 2


def test_a_quarantined_line_that_tells_no_id_leaves_the_gap(machine):
    machine.take(written(1) + torn(2)[40:] + written(3))
    assert [(gap.first_seq, gap.last_seq) for gap in machine.query.gaps()] == [(2, 2)]
    assert [row.line for row in machine.query.quarantine()] == [None]


def test_the_whole_line_from_elsewhere_counts_and_stays_no_gap(machine):
    machine.take(written(1) + torn(2) + written(3))
    machine.take(written(2))
    assert machine.query.gaps() == []
    assert machine.query.total().calls == 3


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"v":1,"id":"b-1","ts"', "b-1"),
        (b'{"v":1,"id" : "b-1"}', "b-1"),
        (b'{"id":"b-1"}{"id":"b-2"}', None),
        (b'{"id":"b-1"}{"id":"b-1"}', "b-1"),
        (b'{"response":"b-1"}', None),
        (b'{"id":"b-x"}', None),
        (b"", None),
    ],
)
def test_an_id_is_told_where_it_is_the_only_one(data, expected):
    assert told_id(data) == expected
