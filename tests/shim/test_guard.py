"""The guard as a table: who may speak, and what is said to the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from shim.guard import Door, Refusal, admit, refuse

DOOR = Door.of(4141, frozenset({"tunnel.example", "exact.example:8443"}))
SECRET = b"0123456789abcdef"


def refused(
    host: str | None = "127.0.0.1:4141",
    method: str = "POST",
    target: str = "/picoclaw/openai/v1/chat/completions",
    version: tuple[int, int] = (1, 1),
    **headers: str,
) -> int | None:
    fields = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    if host is not None:
        fields.add("Host", host)
    refusal = refuse(method, target, version, fields, DOOR)
    return None if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host", ["127.0.0.1:4141", "localhost:4141", "LocalHost:4141", "[::1]:4141", "tunnel.example", "exact.example:8443"]
)
def test_our_own_names_and_the_listed_ones_are_served(host: str):
    assert refused(host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1",
        "127.0.0.1:80",
        "localhost:4142",
        "127.0.0.1.evil.example:4141",
        "evil.example:4141",
        "127.0.0.1:4141@evil.example",
        "exact.example",
        "",
        "127.0.0.2:4141",
        "0.0.0.0:4141",
    ],
)
def test_any_other_host_is_refused(host: str):
    assert refused(host) == 403


def test_a_listed_name_is_served_on_any_port():
    assert refused("tunnel.example:443") is None


def test_on_port_80_a_host_needs_no_port():
    door = Door.of(80, frozenset())
    assert refuse("GET", "/", (1, 1), CIMultiDict({"Host": "localhost"}), door) is None


def test_exactly_one_host_is_needed():
    assert refused(None) == 400
    twice = CIMultiDict([("Host", "127.0.0.1:4141"), ("host", "127.0.0.1:4141")])
    refusal = refuse("GET", "/", (1, 1), twice, DOOR)
    assert refusal is not None
    assert refusal.status == 400


@pytest.mark.parametrize("origin", ["null", "http://127.0.0.1:4141", "http://localhost", "https://evil.example", ""])
def test_any_origin_is_refused(origin: str):
    assert refused(Origin=origin) == 403


@pytest.mark.parametrize("site", ["cross-site", "same-origin", "none"])
def test_any_sec_fetch_site_is_refused(site: str):
    assert refused(Sec_Fetch_Site=site) == 403


@pytest.mark.parametrize("method", ["OPTIONS", "CONNECT", "TRACE"])
def test_methods_of_browsers_and_tunnels_are_refused(method: str):
    assert refused(method=method) == 405


@pytest.mark.parametrize("target", ["http://127.0.0.1:4141/x", "*", "127.0.0.1:4141", "", "//x#y", "/a#b"])
def test_only_an_absolute_path_is_a_target(target: str):
    assert refused(target=target) == 400


def test_other_versions_are_refused():
    assert refused(version=(2, 0)) == 505
    assert refused(version=(1, 0)) is None
    assert refused(version=(1, 0), Transfer_Encoding="chunked") == 400


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip", "chunked, chunked", "identity", ""])
def test_only_chunks_are_a_transfer_coding(coding: str):
    assert refused(Transfer_Encoding=coding) == 501
    assert refused(Transfer_Encoding="Chunked") is None


def test_a_listed_host_needs_the_secret_and_loopback_does_not():
    assert admit("/x", CIMultiDict(Host="localhost:4141"), DOOR, SECRET) == "/x"
    assert isinstance(admit("/x", CIMultiDict(Host="tunnel.example"), DOOR, SECRET), Refusal)


def test_the_secret_is_taken_from_the_header_or_the_first_segment():
    with_header = CIMultiDict({"Host": "tunnel.example", "X-VM-Usage-Secret": SECRET.decode()})
    assert admit("/openai/v1/models", with_header, DOOR, SECRET) == "/openai/v1/models"
    in_path = CIMultiDict(Host="tunnel.example")
    assert admit(f"/{SECRET.decode()}/openai/v1/models", in_path, DOOR, SECRET) == "/openai/v1/models"


@given(st.text(max_size=40))
def test_no_other_secret_opens(guess: str):
    headers = CIMultiDict({"Host": "tunnel.example", "x-vm-usage-secret": guess})
    refusal = admit("/x", headers, DOOR, SECRET)
    assert (guess.encode("utf-8", "surrogatepass") == SECRET) == (refusal == "/x")


@given(st.text(max_size=60))
def test_no_host_but_the_table_is_served(host: str):
    served = refused(host) is None
    assert served == (
        host.lower() in DOOR.own or host.lower() in DOOR.extra or host.lower().rpartition(":")[0] in DOOR.extra
    )
