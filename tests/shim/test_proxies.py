"""The proxy variables, as a table."""

from __future__ import annotations

import pytest

from shim.names import ConfigError
from shim.proxies import Proxies, Proxy
from shim.upstreams import parse

OPENAI = parse("openai", "https://api.openai.com")


def proxy_of(base: str, **environ: str) -> Proxy | None:
    return Proxies.from_env(environ).of(parse("x", base))


def test_each_scheme_has_its_variable_and_both_have_one():
    assert proxy_of("https://h", https_proxy="http://p:3128") == Proxy("p", 3128)
    assert proxy_of("https://h", HTTPS_PROXY="p:3128") == Proxy("p", 3128)
    assert proxy_of("https://h", http_proxy="http://p:3128") is None
    assert proxy_of("http://h", HTTP_PROXY="http://p") == Proxy("p", 80)
    assert proxy_of("http://h", ALL_PROXY="http://p:1") == Proxy("p", 1)
    assert proxy_of("https://h", https_proxy="http://low:1", HTTPS_PROXY="http://up:2") == Proxy("low", 1)


def test_the_user_of_a_proxy_is_its_authorization_and_is_not_shown():
    proxy = proxy_of("https://h", https_proxy="http://u:p%40ss@p:1")
    assert proxy is not None
    assert proxy.authorization == "Basic dTpwQHNz"
    assert "dTpw" not in repr(proxy)


@pytest.mark.parametrize("base", ["http://127.0.0.1:9", "http://127.1.2.3", "http://[::1]:9", "http://localhost:9"])
def test_loopback_is_never_proxied(base: str):
    assert proxy_of(base, http_proxy="http://p:1") is None


@pytest.mark.parametrize(
    ("exceptions", "base", "direct"),
    [
        ("*", "https://h", True),
        ("h", "https://h", True),
        ("h", "https://a.h", True),
        (".h", "https://a.h", True),
        ("*.h", "https://a.h", True),
        ("h", "https://ah", False),
        ("x, h", "https://h", True),
        ("H", "https://h", True),
        ("h:8443", "https://h:8443", True),
        ("h:8443", "https://h", False),
        ("10.0.0.0/8", "https://10.1.2.3", True),
        ("10.0.0.0/8", "https://11.1.2.3", False),
        ("10.1.2.3", "https://10.1.2.3", True),
        ("fd00::/8", "https://[fd00::5]", True),
        ("", "https://h", False),
    ],
)
def test_exceptions(exceptions: str, base: str, direct: bool):
    assert (proxy_of(base, https_proxy="http://p:1", no_proxy=exceptions) is None) is direct


@pytest.mark.parametrize("url", ["socks5://p:1", "https://p:1", "http://", "http://p:99999"])
def test_other_proxies_are_refused(url: str):
    with pytest.raises(ConfigError, match="HTTPS_PROXY"):
        Proxies.from_env({"https_proxy": url})
