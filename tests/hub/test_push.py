"""The VM's side: nothing leaves unless asked, nothing is lost, and doctor says what is wrong."""

import json
import os
import ssl

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.hub.settings import HubSettings, PushSettings
from collector.hub.trends import BEFORE, GREW, LATEST, QUIET, SILENT, trend
from collector.ledger import Use
from collector.ledger.sqlite import SqliteLedger
from collector.push import LONGEST_WAIT, Pusher, PushError, backoff, client
from collector.push_state import oldest_waiting
from shim.names import ConfigError
from tests.ledger.records import line

HUB = "http://127.0.0.1:1"


@pytest.fixture
def vm(tmp_path):
    token = tmp_path / "hub.token"
    token.touch(mode=0o600)
    token.write_text("vmu_x\n")
    ledger = SqliteLedger(tmp_path / "ledger.db", "UTC")
    yield ledger, PushSettings(HUB, token, None, 1000)
    ledger.close()


def answering(handle):
    return httpx.Client(transport=httpx.MockTransport(handle))


def test_nothing_leaves_unless_a_hub_is_set():
    assert PushSettings.from_env({}) is None


@pytest.mark.parametrize("url", ["http://hub.example", "ftp://127.0.0.1", "hub", "https://", "https://u:p@h"])
def test_a_url_that_would_not_be_safe_is_refused(url):
    with pytest.raises(ConfigError, match="VM_USAGE_HUB"):
        PushSettings.from_env({"VM_USAGE_HUB": url})


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8901", "http://[::1]:8901", "http://localhost", "https://hub.example"]
)
def test_loopback_and_tls_are_served(url):
    assert PushSettings.from_env({"VM_USAGE_HUB": url + "/"}).url == url


def test_tls_on_the_hub_needs_both_files():
    with pytest.raises(ConfigError, match="VM_USAGE_HUB_KEY"):
        HubSettings.from_env({"VM_USAGE_HUB_CERT": "/x"})


@pytest.mark.parametrize("dsn", ["http://ch.example:8123/db", "clickhouse://h", "/path", "http://[::1"])
def test_a_clickhouse_that_would_be_asked_in_clear_is_refused(dsn):
    with pytest.raises(ConfigError, match="VM_USAGE_CLICKHOUSE"):
        HubSettings.from_env({"VM_USAGE_CLICKHOUSE": dsn})


def test_certificates_are_verified_and_an_own_authority_is_allowed(tmp_path):
    with client(PushSettings("https://hub.example", tmp_path, None, 1)) as http:
        assert http._transport._pool._ssl_context.verify_mode == ssl.CERT_REQUIRED
    with pytest.raises(ConfigError, match="VM_USAGE_HUB_CA_FILE"):
        client(PushSettings("https://hub.example", tmp_path, tmp_path / "none.pem", 1))


def test_a_token_that_others_can_read_is_not_sent(vm):
    ledger, settings = vm
    os.chmod(settings.token_file, 0o640)
    with answering(lambda _: pytest.fail("sent")) as http, pytest.raises(PushError, match="chmod 600"):
        Pusher(ledger, "vm1", settings, http).step()


@pytest.mark.parametrize("status", [401, 403, 413, 429, 500, 503])
def test_what_the_hub_does_not_take_is_sent_again(vm, status):
    ledger, settings = vm
    ledger.append([line(seq) for seq in range(1, 4)])
    bodies = []

    def handle(request):
        bodies.append(request.content)
        if len(bodies) == 1:
            return httpx.Response(status, headers={"Retry-After": "7"}, json={"error": {"message": "no"}})
        return httpx.Response(200, json={"after": 10**9, "refused": [["boot-2", "future"]]})

    with answering(handle) as http:
        pusher = Pusher(ledger, "vm1", settings, http)
        with pytest.raises(PushError) as caught:
            pusher.step()
        assert caught.value.wait == 7
        assert pusher.cursor == 0
        assert pusher.step().sent == (3 if status != 413 else 1)
    assert pusher.cursor == 10**9
    assert ledger.select("SELECT id, reason FROM push_refused") == [("boot-2", "future")]


def test_one_long_run_of_the_journal_goes_in_bounded_batches(vm):
    ledger, settings = vm
    ledger.append([line(seq) for seq in range(1, 2501)])
    sent = []
    with answering(lambda request: httpx.Response(200, json={"after": after_of(request)})) as http:
        pusher = Pusher(ledger, "vm1", settings, http)
        while True:
            pushed = pusher.step()
            sent.append(pushed.sent)
            if not pushed.waiting:
                break
    assert sent == [1000, 1000, 500]


def after_of(request):
    import zstandard

    return json.loads(zstandard.ZstdDecompressor().stream_reader(request.content).read().split(b"\n")[0])["after"]


def test_what_is_not_pushed_yet_does_not_expire(vm):
    ledger, settings = vm
    ledger.append([line(1)])
    assert str(oldest_waiting(ledger, settings)) == "2026-11-18"
    with answering(lambda request: httpx.Response(200, json={"after": after_of(request)})) as http:
        Pusher(ledger, "vm1", settings, http).step()
    assert oldest_waiting(ledger, settings) is None


@given(st.integers(1, 10_000), st.floats(0, 600))
def test_the_wait_grows_is_bounded_and_honours_the_hub(failures, asked):
    wait = backoff(failures, asked)
    assert asked <= wait <= max(asked, LONGEST_WAIT)
    assert wait >= min(LONGEST_WAIT, 2.0 ** min(failures, 20)) / 2


@pytest.mark.parametrize(
    ("days", "contact", "expected"),
    [
        ({80: 10, 81: 10, 82: 10, 99: 12}, 0, None),
        ({80: 10, 85: 10, 90: 10, 99: 100}, 0, None),
        ({90: 10, 91: 10, 92: 10, 100: 99}, 0, None),
        ({90: 10, 91: 10, 92: 10, 100: 100}, 0, GREW),
        ({90: 10, 91: 10, 92: 10}, 0, QUIET),
        ({90: 10, 91: 10}, 0, None),
        ({90: 10, 91: 10, 92: 10, 100: 12}, 2 * 3600_000, SILENT),
    ],
)
def test_vms_that_went_quiet_or_grew_stand_out(days, contact, expected):
    before, *latest = ([days[day] for day in days if first <= day - 100 <= last] for first, last in (BEFORE, *LATEST))
    latest = [Use(1, *tokens) for tokens in latest if tokens]
    assert trend(Use(len(before), sum(before)), latest, 10**12 - contact, 10**12) == expected
