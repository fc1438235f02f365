"""URLs to places: the three forms, what joins to what, and what leads nowhere."""

from __future__ import annotations

import pytest

from shim.allowlist import RUNTIMES
from shim.names import ConfigError
from shim.routes import NoRoute, Routes
from shim.upstreams import BASES, is_metadata, known_upstreams, parse

ROUTES = Routes(known_upstreams({"own-llm": "http://10.0.0.5:9000/base"}), RUNTIMES, "picoclaw")
NO_RUNTIME = Routes(known_upstreams({}), RUNTIMES)


def where(target: str, routes: Routes = ROUTES) -> tuple[str | None, str, str]:
    place, onward = routes.find(target)
    return place.runtime, place.upstream.name, onward


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/cursor/openai/v1/chat/completions", ("cursor", "openai", "/v1/chat/completions")),
        ("/picoclaw/zhipu/api/paas/v4/chat/completions", ("picoclaw", "zhipu", "/api/paas/v4/chat/completions")),
        ("/openai/v1/chat/completions", ("picoclaw", "openai", "/v1/chat/completions")),
        ("/groq/openai/v1/chat/completions", ("picoclaw", "groq", "/openai/v1/chat/completions")),
        ("/v1/chat/completions", ("picoclaw", "openai", "/v1/chat/completions")),
        ("/v1/responses", ("picoclaw", "openai", "/v1/responses")),
        ("/v1/messages?beta=true", ("picoclaw", "anthropic", "/v1/messages?beta=true")),
        ("/v1beta/models/g:generateContent", ("picoclaw", "gemini", "/v1beta/models/g:generateContent")),
        ("/api/chat", ("picoclaw", "ollama", "/api/chat")),
        ("/api/generate", ("picoclaw", "ollama", "/api/generate")),
        ("/api/anthropic/v1/messages", ("picoclaw", "zai", "/api/anthropic/v1/messages")),
        ("/apps/anthropic/v1/messages", ("picoclaw", "alibaba-coding", "/apps/anthropic/v1/messages")),
        ("/v1beta/openai/chat/completions", ("picoclaw", "gemini", "/v1beta/openai/chat/completions")),
        ("/own-llm/v1/models", ("picoclaw", "own-llm", "/base/v1/models")),
        ("/unheard-of/openai/v1/models", ("unheard-of", "openai", "/v1/models")),
        ("/picoclaw/openai", ("picoclaw", "openai", "/")),
        ("/picoclaw/openai?x=1", ("picoclaw", "openai", "/?x=1")),
        ("/picoclaw/openai/v1/x%2Fy?q=%20&q=%20", ("picoclaw", "openai", "/v1/x%2Fy?q=%20&q=%20")),
        ("/picoclaw/openai//v1/models", ("picoclaw", "openai", "//v1/models")),
    ],
)
def test_a_url_leads_where_it_says(target: str, expected: tuple[str, str, str]):
    assert where(target) == expected


def test_without_a_configured_runtime_only_the_url_names_one():
    assert where("/v1/messages", NO_RUNTIME)[0] is None
    assert where("/openai/v1/models", NO_RUNTIME)[0] is None
    assert where("/cursor/openai/v1/models", NO_RUNTIME)[0] == "cursor"


@pytest.mark.parametrize(("target", "named"), [("/picoclaw/nope/v1/x", "nope"), ("/nope/v1/x", "nope")])
def test_an_unknown_upstream_is_named(target: str, named: str):
    with pytest.raises(NoRoute, match=rf"upstream {named}: set VM_USAGE_UPSTREAM_NOPE"):
        ROUTES.find(target)


def test_an_upstream_without_an_address_says_how_to_give_one():
    with pytest.raises(NoRoute, match="VM_USAGE_UPSTREAM_AZURE"):
        ROUTES.find("/picoclaw/azure/openai/v1/responses")


@pytest.mark.parametrize("target", ["/", "/<script>/openai", "/picoclaw", "/picoclaw/%00"])
def test_what_is_no_name_is_not_repeated(target: str):
    with pytest.raises(NoRoute) as raised:
        ROUTES.find(target)
    assert "<" not in str(raised.value)


@pytest.mark.parametrize(
    ("base", "path", "joined"),
    [
        ("https://h", "/v1/x", "/v1/x"),
        ("https://h/", "/v1/x", "/v1/x"),
        ("https://h/base", "/v1/x", "/base/v1/x"),
        ("https://h/v1", "/v1/x", "/v1/x"),
        ("https://h/a/v1/", "/v1/x", "/a/v1/x"),
        ("https://h/v1", "/v2/x", "/v1/v2/x"),
        ("https://h/v1", "/v10/x", "/v1/v10/x"),
        ("https://h", "", "/"),
    ],
)
def test_a_base_path_comes_first_and_its_version_once(base: str, path: str, joined: str):
    assert parse("x", base).path(path) == joined


def test_the_authority_has_a_port_only_where_it_is_not_the_default():
    assert parse("x", "https://h").authority == "h"
    assert parse("x", "https://h:8443").authority == "h:8443"
    assert parse("x", "http://[::1]:80").authority == "[::1]"
    assert parse("x", "http://[::1]:9").authority == "[::1]:9"


@pytest.mark.parametrize(
    "base", ["ftp://h", "h", "https://", "https://u:p@h", "https://h?x", "https://h#x", "http://h:99999", "http://h/ a"]
)
def test_what_is_no_base_url_is_refused_by_the_name_of_its_variable(base: str):
    with pytest.raises(ConfigError, match="VM_USAGE_UPSTREAM_OWN_LLM"):
        parse("own-llm", base)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.170.2",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "::ffff:169.254.169.254",
        "metadata.google.internal",
        "METADATA.google.internal.",
        "100.100.100.200",
    ],
)
def test_cloud_metadata_is_no_upstream(host: str):
    assert is_metadata(host)
    url = f"http://[{host.partition('%')[0]}]" if ":" in host else f"http://{host}"
    with pytest.raises(ConfigError, match="metadata"):
        parse("x", url)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.0.0.1", "api.openai.com", "fd00::1"])
def test_other_addresses_are(host: str):
    assert not is_metadata(host)


def test_every_known_upstream_can_be_parsed():
    assert known_upstreams({}).keys() >= BASES.keys()


def test_paths_are_remembered_within_a_bound():
    routes = Routes(known_upstreams({}), RUNTIMES)
    for n in range(2000):
        routes.find(f"/cursor/openai/v1/files/{n}")
    assert len(routes._known) <= 512
