"""One table of environment names: aliases, unknown names, upstreams."""

import pytest

from shim.names import ConfigError, resolve, upstream_urls


def test_empty_values_count_as_unset() -> None:
    assert resolve({"VM_USAGE_LOG": "", "HOME": "/h"}) == {}


def test_clawmetry_names_are_aliases_and_ours_win() -> None:
    environ = {"CLAWMETRY_VM_USAGE_LOG": "/a", "CLAWMETRY_VM_USAGE_RUNTIME": "picoclaw", "VM_USAGE_LOG": "/b"}
    assert resolve(environ) == {"VM_USAGE_LOG": "/b", "VM_USAGE_RUNTIME": "picoclaw"}


def test_an_unknown_name_is_an_error_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"VM_USAGE_RUNTIM .* did you mean VM_USAGE_RUNTIME"):
        resolve({"VM_USAGE_RUNTIM": "x"})


def test_upstream_names_turn_underscores_into_dashes() -> None:
    assert upstream_urls(resolve({"VM_USAGE_UPSTREAM_LLAMA_CPP": "http://127.0.0.1:1"})) == {
        "llama-cpp": "http://127.0.0.1:1"
    }


@pytest.mark.parametrize("name", ["VM_USAGE_UPSTREAM_", "VM_USAGE_UPSTREAM_a", "VM_USAGE_UPSTREAM_A__B"])
def test_a_malformed_upstream_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        resolve({name: "http://127.0.0.1:1"})
