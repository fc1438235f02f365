"""What the hub takes, what it refuses and why; one bad record never costs the others."""

import asyncio
import dataclasses
import json
import time

import orjson
import pytest
import zstandard

from collector.hub.batch import MAX_BODY, MAX_PLAIN, Facts, Gap, Refused
from collector.ledger.sqlite_fleet import SqliteFleet
from tests.hub.conftest import BORN, batch
from tests.ledger.records import line, record

NOW_MS = int(time.time() * 1000)


def altered(*changes, entries=()):
    """A batch whose records are a good line with some keys changed, each in its own record."""
    plain = zstandard.ZstdDecompressor().stream_reader(batch([line(), *entries])).read().split(b"\n")
    good = orjson.loads(plain[1])
    lines = [plain[0], *plain[1:]]
    for place, change in enumerate(changes, start=100):
        lines.append(
            change if isinstance(change, bytes) else json.dumps(good | {"id": f"boot-{place}"} | change).encode()
        )
    return zstandard.ZstdCompressor().compress(b"\n".join(lines))


async def test_a_batch_is_durable_when_it_is_acknowledged(hub):
    status, answer = await hub.push([line(1), line(2), record()], after=77)
    assert (status, answer) == (200, {"after": 77, "refused": []})
    ledger = SqliteFleet(hub.file, "UTC")
    assert ledger.select("PRAGMA synchronous") == [(2,)]
    assert ledger.select("SELECT count(*) FROM record") == [(3,)]
    ledger.close()


async def test_a_batch_again_is_a_no_op(hub):
    for _ in range(3):
        await hub.push([line(1), record()])
    (row,) = await hub.rows("vms")
    assert row["calls"] == 2


async def test_a_batch_that_comes_late_does_not_undo_a_later_one(hub):
    await hub.push([line(1)], 0, 1)
    await hub.push([line(1, session_id="found")], 1, 2)
    await hub.push([line(1)], 0, 1)
    (row,) = await hub.rows("sessions")
    assert row["session_id"] == "found"


async def test_a_hub_that_lost_something_asks_for_it(hub):
    assert (await hub.push([line(9)], before=50, after=60))[1]["after"] == 0
    assert await hub.rows("vms") == []
    await hub.push([line(1)], 0, 50)
    assert (await hub.push([line(9)], before=50, after=60))[1]["after"] == 60
    assert (await hub.push([line(10)], before=60, after=61, born=BORN + 1))[1]["after"] == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"vm": "other"}, "other_vm"),
        ({"v": 2, "input_tokens": "new meaning"}, "version"),
        ({"input_tokens": -1}, "field:input_tokens"),
        ({"output_tokens": 10**14}, "field:output_tokens"),
        ({"cost_pico": 2**70}, "field:cost_pico"),
        ({"cost_pico": 1.5}, "field:cost_pico"),
        ({"cost_status": "certain"}, "field:cost_status"),
        ({"ts_ms": NOW_MS + 3 * 86_400_000}, "future"),
        ({"counted": None}, "field:counted"),
        ({"session_id": "a\nb"}, "field:session_id"),
        (b"no json", "not_json"),
        (b"[1]", "not_json"),
    ],
)
async def test_a_bad_record_is_refused_with_a_reason_and_the_rest_is_kept(hub, change, reason):
    status, answer = await hub.post(altered(change, entries=[line(2)]))
    assert status == 200
    assert [found for _, found in answer["refused"]] == [reason]
    (row,) = await hub.rows("vms")
    assert (row["calls"], row["quarantined"]) == (2, 1)
    (aside,) = await hub.rows("quarantine")
    assert aside["reason"] == reason
    assert (await hub.rows("refused"))[0]["reason"] == f"hub:{reason}"


async def test_a_clock_a_day_ahead_is_no_future_and_is_shown(hub):
    ahead = time.time() + 86_000
    await hub.push([line(ts_ms=int(ahead * 1000))], sent_at=ahead)
    (row,) = await hub.rows("vms")
    assert row["calls"] == 1
    assert abs(row["clock_skew_ms"] - 86_000_000) < 60_000


async def test_unknown_keys_of_a_newer_vm_are_ignored(hub):
    status, answer = await hub.post(altered({"colour": "blue"}))
    assert (status, answer["refused"]) == (200, [])


@pytest.mark.parametrize("scheme", ["wrong", "revoked", "expired", "none"])
async def test_a_token_that_is_not_valid_opens_nothing(hub, scheme):
    token = {"wrong": "vmu_guess", "revoked": hub.enrol("vm2"), "none": "?"}.get(scheme)
    if scheme == "expired":
        token = hub.enrol("vm1", days=1, now=time.time() - 90_000)
    if scheme == "revoked":
        ledger = SqliteFleet(hub.file, "UTC")
        assert ledger.revoke("vm2", 1) == 1
        ledger.close()
    status, answer = await hub.push([line()], token=token)
    assert status == 401
    assert "token create" in answer["error"]["message"]
    assert await hub.rows("vms") == []


async def test_tokens_are_not_stored_in_clear(hub):
    assert hub.token.encode() not in hub.file.read_bytes()
    assert hub.token.encode() not in hub.file.with_name("hub.db-wal").read_bytes()


async def test_a_vm_can_only_write_as_itself(hub):
    status, answer = await hub.push([line(vm="vm2")], vm="vm2")
    assert (status, await hub.rows("vms")) == (403, [])
    assert "only write as itself" in answer["error"]["message"]


async def test_a_start_of_a_shim_belongs_to_the_vm_that_reported_it_first(hub):
    await hub.push([line(1)])
    thief = hub.enrol("thief")
    _, answer = await hub.push([line(1, vm="thief", cost=10**15)], vm="thief", token=thief)
    assert answer["refused"] == [["boot-1", "other_vm"]]
    assert [row["vm"] for row in await hub.rows("vms") if row["calls"]] == ["vm1"]


async def test_a_vm_that_was_renamed_may_bring_what_it_recorded_before(hub):
    token = hub.enrol("new", "old")
    _, answer = await hub.push([line(vm="old"), line(1, boot="b2", vm="new")], vm="new", token=token)
    assert answer["refused"] == []


async def test_bodies_are_bounded_before_and_after_they_are_unpacked(hub):
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(4 * MAX_PLAIN))
    assert len(bomb) < 20_000
    assert (await hub.post(bomb))[0] == 413
    assert (await hub.post(bytes(MAX_BODY + 1)))[0] == 413
    wide = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=27))
    unsized = wide.compressobj()
    assert (await hub.post(unsized.compress(b"x" * 100) + unsized.flush()))[0] == 400


@pytest.mark.parametrize("body", [b"", b"plain", zstandard.compress(b""), zstandard.compress(b'{"v":1}\n{}')])
async def test_what_is_no_batch_is_refused_whole(hub, body):
    assert (await hub.post(body))[0] == 400


async def test_a_batch_of_a_newer_version_stays_with_its_vm(hub):
    head = orjson.dumps({"v": 2, "vm": "vm1", "born": 1, "before": 0, "after": 1, "sent_at": 1.0})
    status, answer = await hub.post(zstandard.compress(head))
    assert (status, "upgrade the hub" in answer["error"]["message"]) == (400, True)
    assert (await hub.post(batch([]), kind="application/json"))[0] == 415


async def test_a_vm_that_sends_too_much_is_asked_to_wait_and_others_are_not(hub):
    other = hub.enrol("vm2")
    statuses = [(await hub.push([line(seq) for seq in range(1, 2000)]))[0] for _ in range(4)]
    assert statuses[0] == 200
    assert statuses[-1] == 429
    assert int(hub.last_headers["Retry-After"]) >= 1
    assert (await hub.push([], vm="vm2", token=other))[0] == 200


async def test_what_a_vm_tells_of_itself_is_shown(hub):
    facts = Facts("9.9", 12, [Gap("boot", 4, 6)], [Refused("twin", "picoclaw", 3)])
    await hub.push([line()], facts=facts)
    (row,) = await hub.rows("vms")
    assert (row["version"], row["waiting"], row["missing_lines"], row["refused"]) == ("9.9", 12, 3, 3)
    assert (await hub.rows("gaps"))[0]["first_seq"] == 4
    assert [(one["reason"], one["count"]) for one in await hub.rows("refused")] == [("twin", 3)]
    assert [(one["path"], one["kind"]) for one in await hub.rows("sources")] == [("vm1", "vm")]


async def test_a_vm_without_records_is_shown(hub):
    await hub.push([])
    (row,) = await hub.rows("vms")
    assert (row["vm"], row["calls"], row["cost_usd"]) == ("vm1", 0, None)


def test_every_field_of_an_entry_may_be_sent():
    from collector.entries import NAMES
    from collector.hub.accept import Sent

    assert set(NAMES) <= set(Sent.__struct_fields__)
    assert dataclasses.is_dataclass(line())


async def test_a_client_that_leaves_does_not_stop_the_writer(hub):
    posts = [asyncio.create_task(hub.push([line(seq)])) for seq in range(1, 30)]
    await asyncio.sleep(0.01)
    for post in posts:
        post.cancel()
    await asyncio.gather(*posts, return_exceptions=True)
    assert (await hub.push([line(100)]))[0] == 200
