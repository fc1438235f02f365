"""Ids are unique, sort by start and have no holes."""

from shim.ids import JUMP_SECONDS, Boot, boot_name
from shim.line import ID


class Clock:
    """A wall clock and an uptime that move together until the wall clock is set."""

    def __init__(self) -> None:
        self.now = 1_796_000_000.0
        self.up = 1_000.0

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.up += seconds

    def boot(self) -> Boot:
        return Boot(lambda: self.now, lambda: self.up)


def test_seq_counts_from_one_without_a_gap():
    boot = Boot()
    assert [boot.next() for _ in range(3)] == [f"{boot.name}-{n}" for n in (1, 2, 3)]


def test_an_id_is_what_the_contract_reads():
    line_id = Boot().next()
    assert ID.fullmatch(line_id)
    assert line_id.count("-") == 1


def test_boots_sort_as_text_by_start_time():
    times = [0.0, 999.999, 1_796_000_000.001, 1_796_000_000.5, 1_796_000_001.0, 4_000_000_000.0]
    names = [boot_name(at) for at in times]
    assert sorted(names) == names


def test_two_starts_in_the_same_millisecond_differ():
    assert len({boot_name(1_796_000_000.0) for _ in range(1000)}) == 1000


def test_time_that_passes_keeps_the_boot():
    clock = Clock()
    boot = clock.boot()
    clock.pass_time(10 * JUMP_SECONDS)
    assert not boot.renew()


def test_a_clock_set_back_begins_a_new_boot_and_counts_from_one():
    clock = Clock()
    boot = clock.boot()
    before = boot.next()
    clock.now -= 3600
    assert boot.renew()
    assert boot.next() != before
    assert boot.issued == 1
    assert not boot.renew()


def test_both_copies_of_a_vm_restored_from_a_snapshot_get_ids_of_their_own():
    """The restored copy resumes with the seq of the one that went on; its clock is then set forward."""
    clock = Clock()
    went_on, restored = clock.boot(), clock.boot()
    restored.name, restored.issued = went_on.name, went_on.issued
    clock.now += 600
    restored.renew()
    assert went_on.next() != restored.next()
