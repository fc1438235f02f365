"""Who may read the API: our own page and this machine's programs; no other site, no rebinding, nothing that writes."""

import pytest

from collector.api.access import Access, is_loopback

LOCAL = Access.of()


def status(
    access: Access = LOCAL, method: str = "GET", hosts: tuple[str, ...] = ("127.0.0.1:8900",), **headers: str
) -> int:
    denial = access.deny(method, list(hosts), {name.replace("_", "-"): value for name, value in headers.items()})
    return denial.status if denial else 200


@pytest.mark.parametrize("host", ["127.0.0.1:8900", "localhost:8900", "LOCALHOST", "[::1]:8900", "[::1]"])
def test_loopback_names_are_served(host: str) -> None:
    assert status(hosts=(host,)) == 200


@pytest.mark.parametrize(
    "hosts", [("evil.example:8900",), ("127.0.0.1.evil.example",), (), ("localhost", "localhost"), ("",)]
)
def test_any_other_host_is_refused(hosts: tuple[str, ...]) -> None:
    assert status(hosts=hosts) == 403


def test_a_named_host_is_served() -> None:
    assert status(Access.of(("usage.example",)), hosts=("usage.example:443",)) == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999"])
def test_a_foreign_origin_is_refused(origin: str) -> None:
    assert status(Origin=origin) == 403


def test_our_own_page_is_served() -> None:
    assert status(Origin="http://127.0.0.1:8900", Sec_Fetch_Site="same-origin") == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_to_the_page_and_not_read_it(site: str) -> None:
    assert status(Sec_Fetch_Site=site, Sec_Fetch_Mode="cors") == 403
    assert status(Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate") == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_writes(method: str) -> None:
    assert status(method=method) == 405


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", 401), ("Bearer wrong", 401), ("Basic right", 401), ("Bearer right", 200), ("bearer right", 200)],
)
def test_a_token_is_needed_where_one_is_set(given: str, expected: int) -> None:
    assert status(Access.of(token=b"right"), Authorization=given) == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.0.0.1", False), ("x", False)],
)
def test_loopback_addresses_are_told_from_others(address: str, expected: bool) -> None:
    assert is_loopback(address) == expected
