"""The key, references and the VM's name."""

from __future__ import annotations

import base64
import multiprocessing
import os
import stat
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim import identity
from shim.identity import _base32, existing_key, load_key, reference, vm_name
from shim.line import NAME
from shim.names import ConfigError

KEY = bytes(range(32))
MACHINE_ID = "0123456789abcdef0123456789abcdef"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def no_readers_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "READERS_GROUP", "no-such-group-here")


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    key = load_key(tmp_path / "state")
    assert len(key) == 32
    assert load_key(tmp_path / "state") == key == existing_key(tmp_path / "state")
    assert mode(tmp_path / "state" / identity.KEY_FILE) == 0o600
    assert [path.name for path in (tmp_path / "state").iterdir()] == [identity.KEY_FILE]


def test_a_reader_never_makes_a_key(tmp_path: Path) -> None:
    assert existing_key(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_everyone_may_read_is_mended(tmp_path: Path) -> None:
    load_key(tmp_path)
    (tmp_path / identity.KEY_FILE).chmod(0o644)
    load_key(tmp_path)
    assert mode(tmp_path / identity.KEY_FILE) == 0o600


@pytest.mark.interpreted
def test_the_key_is_handed_to_the_readers_group_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_group = tmp_path.stat().st_gid
    monkeypatch.setattr(identity, "_readers_group", lambda: own_group)
    load_key(tmp_path)
    assert mode(tmp_path / identity.KEY_FILE) == 0o640


@pytest.mark.interpreted
def test_the_key_is_shared_as_its_folder_is_where_groups_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a user namespace: the folder's group is shown as nobody's and may not be given to a file.
    monkeypatch.setattr(identity, "NOBODY", tmp_path.stat().st_gid)
    monkeypatch.setattr(identity, "_readers_group", lambda: 4_000_000)
    monkeypatch.setattr(identity, "_hand_over", lambda path, group: False)
    load_key(tmp_path)
    assert mode(tmp_path / identity.KEY_FILE) == 0o600
    tmp_path.chmod(0o3770)
    load_key(tmp_path)
    assert mode(tmp_path / identity.KEY_FILE) == 0o640


def test_whom_an_access_list_names_is_not_shut_out(tmp_path: Path) -> None:
    own, user, group, mask, other = 0x01, 0x02, 0x04, 0x10, 0x20  # tags of acl(5) entries
    entries = [(own, 7, -1), (user, 5, 65534), (group, 5, -1), (mask, 5, -1), (other, 0, -1)]
    inherited = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(tmp_path, "system.posix_acl_default", inherited)
    except OSError:
        pytest.skip("the file system keeps no access lists")
    load_key(tmp_path)
    data = os.getxattr(tmp_path / identity.KEY_FILE, "system.posix_acl_access")
    allowed = {tag: perm for tag, perm, _ in struct.iter_unpack("<HHi", data[4:])}
    assert allowed[user] & allowed[mask] & 4
    assert allowed[other] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_a_key_that_root_makes_belongs_to_the_folders_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, -1)
    load_key(tmp_path)
    assert (tmp_path / identity.KEY_FILE).stat().st_uid == 65534


def test_a_key_of_another_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / identity.KEY_FILE).write_bytes(b"short")
    with pytest.raises(ConfigError, match="32 bytes"):
        load_key(tmp_path)


def test_a_state_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="VM_USAGE_STATE"):
        load_key(tmp_path / "file" / "state")


def _load(folder: Path) -> bytes:
    return load_key(folder)


def test_processes_that_start_together_agree_on_one_key(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        keys = pool.map(_load, [tmp_path / "state"] * 8)
    assert len(set(keys)) == 1


@given(st.text(), st.text())
def test_a_reference_is_a_name_and_tells_values_apart(one: str, other: str) -> None:
    assert NAME.fullmatch(reference(KEY, "session", one))
    assert (reference(KEY, "session", one) == reference(KEY, "session", other)) == (one == other)


def test_references_differ_by_kind_and_by_key() -> None:
    values = {reference(KEY, "session", "x"), reference(KEY, "response", "x"), reference(KEY[::-1], "session", "x")}
    assert len(values) == 3
    assert all(len(value) == 24 for value in values)


@given(st.binary(min_size=15, max_size=15))
def test_references_are_written_in_lower_case_base32(digest: bytes) -> None:
    assert _base32(digest) == base64.b32encode(digest).decode().lower()


def test_a_lone_surrogate_has_a_reference() -> None:
    assert NAME.fullmatch(reference(KEY, "session", "\ud800"))


def test_the_given_name_wins(tmp_path: Path) -> None:
    assert vm_name({"VM_USAGE_VM": "build-7"}, tmp_path) == "build-7"


@pytest.mark.parametrize("name", ["a b", "x" * 65, "a/b", "\n"])
def test_a_name_that_a_line_cannot_hold_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="VM_USAGE_VM"):
        vm_name({"VM_USAGE_VM": name}, tmp_path)


def test_the_machine_id_names_the_vm_and_is_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "machine-id"
    path.write_text(MACHINE_ID + "\n")
    name = vm_name({}, tmp_path, path)
    assert name == vm_name({}, tmp_path / "elsewhere", path)
    assert NAME.fullmatch(name)
    assert not any(MACHINE_ID[i : i + 8] in name for i in range(25))


@pytest.mark.parametrize("content", ["", "uninitialized\n"])
def test_without_a_machine_id_a_random_name_is_kept(content: str, tmp_path: Path) -> None:
    path = tmp_path / "machine-id"
    path.write_text(content)
    name = vm_name({}, tmp_path / "state", path)
    assert vm_name({}, tmp_path / "state", path) == name
    assert vm_name({}, tmp_path / "other", path) != name
