"""What the collector's service is shown of homes: every place a reader looks into, and no place beside them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from collector import stores
from collector.runtimes import Reader
from collector.runtimes.table import READERS
from shim.allowlist import RUNTIMES

CASES = Path(__file__).parent.parent / "runtimes"
# Folders with keys in them, of which the store's own files alone may be granted.
WITH_KEYS = (".copilot", ".config/Cursor/User/globalStorage", ".local/share/opencode", ".local/share/devin/cli")


def test_every_runtime_has_its_places() -> None:
    assert stores.RUNTIMES - {stores.CAPTURE} == RUNTIMES


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.runtime)
def test_every_source_of_a_reader_is_shown(reader: Reader) -> None:
    homes = [CASES / reader.runtime / "home", *(CASES / "stores" / reader.runtime).glob("*")]
    for home in (home for home in homes if home.is_dir()):
        shown = [home / store.folder for store in stores.stores(home, [reader.runtime])]
        for source in reader.sources(home, {}):
            assert any(source.path == place or place in source.path.parents for place in shown), source.path


@pytest.mark.parametrize(
    "file",
    [
        ".gemini/tmp/p/chats/s.jsonl.unreadable-1786900000000",
        ".kimi/sessions/0/s/state.json",
        ".kimi/sessions/0/s/metadata.json",
        ".kimi/sessions/0/s/subagents/a/meta.json",
        ".kimi-code/sessions/wd_d_0/session_s/state.json",
    ],
)
def test_what_a_reader_looks_up_beside_a_log_is_granted_too(tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.touch(mode=0o600)
    (found,) = [line for line in stores.grants(tmp_path) if " -type f " in line]
    listed = subprocess.run(["sh", "-c", found.partition(" -exec ")[0]], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == [str(path)]


@pytest.mark.parametrize("folder", WITH_KEYS)
def test_a_folder_with_keys_is_granted_by_file_and_not_in_depth(folder: str) -> None:
    for store in (store for store in stores.STORES if store.folder == folder):
        assert not store.deep
        assert "*" not in store.names


def test_no_place_is_a_home_or_a_whole_configuration() -> None:
    for store in stores.STORES:
        assert store.folder not in ("", ".", ".config", ".local", ".local/share", ".claude", ".codex", ".ssh")
        assert ".." not in store.folder


def test_the_drop_in_binds_read_only_and_forgives_what_is_missing(tmp_path: Path) -> None:
    lines = stores.drop_in([tmp_path]).splitlines()
    binds = [line for line in lines if line.startswith("Bind")]
    assert binds
    assert all(line.startswith(("BindReadOnlyPaths=-/", 'BindReadOnlyPaths="-/')) for line in binds)
    assert f"Environment=VM_USAGE_HOMES={tmp_path}" in lines


def test_a_store_that_leads_out_of_the_home_is_not_shown(tmp_path: Path) -> None:
    home, other = tmp_path / "agent", tmp_path / "other"
    (home / ".claude").mkdir(parents=True)
    other.mkdir()
    (home / ".claude/projects").symlink_to(other)
    assert ".claude/projects" not in {store.folder for store in stores.stores(home)}


def test_grants_cover_stores_that_exist_and_can_be_taken_back(tmp_path: Path) -> None:
    (tmp_path / ".codex/sessions").mkdir(parents=True)
    given, taken = stores.grants(tmp_path), stores.grants(tmp_path, take_back=True)
    assert [".codex/sessions" in line for line in given] == [True, True]
    assert [line.replace(" -m ", " -x ").split(" setfacl")[0] for line in given] == [
        line.split(" setfacl")[0] for line in taken
    ]
