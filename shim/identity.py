"""Who a line is about, without saying who: the VM's key, opaque references and the VM's name.

A reference is a keyed hash of something that identifies (a session id, a provider's response id). The key is random per
VM, readable by the shim and the collector alone, never logged and never sent: without it nobody can test a guess,
with it both programs recognise the same call in a line and in a runtime's store. Both programs import this module,
so it imports only the standard library and the contract modules.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from shim.line import NAME
from shim.names import ConfigError

KEY_FILE: Final = "reference.key"
KEY_BYTES: Final = 32
VM_NAME_FILE: Final = "vm-name"
READERS_GROUP: Final = "usage-collector"
NOBODY: Final = 65534  # what the kernel shows of a group that a user namespace does not map
MACHINE_ID: Final = Path("/etc/machine-id")
# Fixed for this product, so that no other program that hashes the machine id gets the same name. See machine-id(5):
# https://www.freedesktop.org/software/systemd/man/latest/sd_id128_get_machine_app_specific.html
VM_NAME_APP: Final = bytes.fromhex("6f2f0a5f1c5e4a0fb1d37d1b9a4c8e21")

_REFERENCE_BYTES: Final = 15  # 24 characters of base32: one number for all kinds, no padding
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS: Final = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS: Final = range(8 * _REFERENCE_BYTES - 10, -1, -10)
_MACHINE_ID: Final = re.compile(r"[0-9a-f]{32}")


def load_key(state_folder: Path) -> bytes:
    """The VM's 32-byte key from the state folder, made there if it is missing; safe to call from several processes.

    The file is 0600, or 0640 for the group ``usage-collector`` where that group exists and we may hand it over, and
    where an access list names who else may read. A mode that lets anyone else in is mended. Raises ``ConfigError``
    where the key cannot be read, made or protected.
    """
    path = state_folder / KEY_FILE
    try:
        if not path.exists():
            _create(path)
        _protect(path)
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the key {path} cannot be used ({error.strerror}): give VM_USAGE_STATE a folder of yours."
        ) from error
    if len(key) != KEY_BYTES:
        raise ConfigError(f"the key {path} is not {KEY_BYTES} bytes long: remove it and a new one is made.")
    return key


def existing_key(state_folder: Path) -> bytes | None:
    """The VM's key if there is one that we may read, else ``None``; for readers who must not make one."""
    with contextlib.suppress(OSError):
        key = (state_folder / KEY_FILE).read_bytes()
        if len(key) == KEY_BYTES:
            return key
    return None


def reference(key: bytes, kind: str, value: str) -> str:
    """The opaque reference of ``value``: 24 characters of lower-case base32, the same for the same key and kind.

    ``kind`` (``session``, ``response``, ``conversation``, ``gap``) keeps equal values of different kinds apart.
    """
    digest = _begun(key, kind).copy()
    # Lone surrogates come out of JSON escapes and must not fail the call.
    digest.update(value.encode("utf-8", "surrogatepass"))
    return _base32(digest.digest())


@lru_cache(16)
def _begun(key: bytes, kind: str) -> hashlib.blake2b:
    """A digest that has taken key and kind."""
    return hashlib.blake2b(key=key, person=kind.encode()[:16], digest_size=_REFERENCE_BYTES)


def _base32(digest: bytes) -> str:
    """Lower-case base32 of 15 bytes, as ``base64.b32encode`` has it in capitals, in half of its time."""
    pairs, number = _PAIRS, int.from_bytes(digest, "big")
    return "".join([pairs[number >> shift & 1023] for shift in _SHIFTS])


def vm_name(environ: Mapping[str, str], state_folder: Path, machine_id: Path = MACHINE_ID) -> str:
    """The name of this VM in lines, ledger and hub.

    ``VM_USAGE_VM``, else a keyed hash of the machine id for this product alone, else (no machine id yet) a random
    name that is kept in the state folder. Raises ``ConfigError`` for a name that a line cannot hold.
    """
    if given := environ.get("VM_USAGE_VM"):
        if not NAME.fullmatch(given):
            raise ConfigError("VM_USAGE_VM may hold letters, digits and _ . : - up to 64: choose another name.")
        return given
    raw = _read(machine_id)
    if _MACHINE_ID.fullmatch(raw):
        return "vm-" + hmac.new(bytes.fromhex(raw), VM_NAME_APP, hashlib.sha256).hexdigest()[:20]
    return _kept_name(state_folder)


def _kept_name(state_folder: Path) -> str:
    path = state_folder / VM_NAME_FILE
    name = _read(path)
    if not NAME.fullmatch(name):
        try:
            _publish(path, f"vm-{secrets.token_hex(10)}".encode())
        except OSError as error:
            raise ConfigError(f"{path} cannot be written ({error.strerror}): set VM_USAGE_VM.") from error
        name = _read(path)
    return name


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _create(path: Path) -> None:
    _publish(path, secrets.token_bytes(KEY_BYTES))


def _publish(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` whole and 0600, unless another process was first: then theirs stays."""
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    if os.geteuid() == 0:  # what root makes in a service's folder is the service's
        os.fchown(fd, path.parent.stat().st_uid, -1)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _protect(path: Path) -> None:
    """Leave the key to its owner and, where it can be, to the readers' group; mend what is wider."""
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid() and os.geteuid() != 0:
        if mode & 0o007:
            raise ConfigError(f"the key {path} is readable by everyone: have its owner run chmod 0640 on it.")
        return
    group = _readers_group()
    shared = group is not None and (found.st_gid == group or _shared_by_folder(path, found) or _hand_over(path, group))
    # With an access list the group's bits are its mask: 0600 would shut out whom it names.
    shared = shared or "system.posix_acl_access" in os.listxattr(path)
    wanted = 0o640 if shared else 0o600
    if mode != wanted:
        path.chmod(wanted)


def _shared_by_folder(path: Path, found: os.stat_result) -> bool:
    """Whether the key has the group of a folder that hands its group down, and we cannot see which group that is.

    So it is in a service with ``PrivateUsers=``: every group but its own looks like nobody's there and cannot be given
    to a file. The folder's group was chosen by whoever set the machine up (tmpfiles.d).
    """
    folder = path.parent.stat()
    return bool(folder.st_mode & stat.S_ISGID) and found.st_gid == folder.st_gid == NOBODY


def _readers_group() -> int | None:
    try:
        return grp.getgrnam(READERS_GROUP).gr_gid
    except KeyError:
        return None


def _hand_over(path: Path, group: int) -> bool:
    try:
        os.chown(path, -1, group)
    except PermissionError:  # not a member of that group: the key stays ours alone
        return False
    return True
