"""A Debian machine with systemd as its first process, on loopback alone, made from nothing in a folder of its own.

Needs root, mmdebstrap and systemd-nspawn. The root file system is made once a day and kept in the cache folder, since
fetching its packages takes longer than everything else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vm-usage"
PACKAGES: Final = (
    "systemd,systemd-sysv,dbus,python3,python3-venv,logrotate,ca-certificates,curl,procps,acl,passwd,tzdata"
)
FLEET: Final = PACKAGES + ",ansible-core,ansible-lint,cloud-init,python3-apt"
BOOT_SECONDS: Final = 120
ENVIRON: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}
KEPT_SECONDS: Final = 24 * 3600
# Runs a command in the control groups that $0 lists.
INTO_CGROUPS: Final = 'for group in $0; do echo $$ > "$group/cgroup.procs"; done; exec "$@"'


def base_image(packages: str = PACKAGES) -> Path:
    """The tar file of a fresh Debian 12 with these packages, made unless there is one of today."""
    image = CACHE / f"bookworm-{hashlib.sha256(packages.encode()).hexdigest()[:8]}.tar"
    if not image.exists() or time.time() - image.stat().st_mtime > KEPT_SECONDS:
        image.parent.mkdir(parents=True, exist_ok=True)
        draft = image.with_suffix(".draft.tar")
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", "bookworm", str(draft)]
        subprocess.run(command, check=True)
        draft.replace(image)
    return image


class Machine:
    """A machine below ``folder``. ``network``: give it the host's network, for what has to be fetched."""

    def __init__(self, folder: Path, *, packages: str = PACKAGES, network: bool = False) -> None:
        self.root = folder / "root"
        self._log = folder / "console.log"
        self._network = network
        self.root.mkdir(parents=True)
        subprocess.run(["tar", "-xf", base_image(packages), "-C", self.root], check=True)
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self._cgroups: list[Path] = []

    def boot(self) -> None:
        """Start it and wait until systemd says that all is running (or that something failed)."""
        command = ["systemd-nspawn", "--register=no", "--keep-unit", "--quiet", "-D", str(self.root), "-b"]
        if not self._network:
            command.insert(1, "--private-network")
        self._cgroups = cgroups_of_its_own(f"vm-usage-{os.getpid()}-{self.root.parent.name}")
        command = ["sh", "-c", INTO_CGROUPS, " ".join(map(str, self._cgroups)), *command]
        with open(self._log, "ab") as log:
            self._nspawn = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < until:
            time.sleep(0.2)
            children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
            self._leader = int(children[0]) if children else 0
            if self._leader and self.run("systemctl", "is-system-running", check=False).stdout.strip() in (
                "running",
                "degraded",
            ):
                return
        raise TimeoutError(f"the machine did not boot, see {self._log}")

    def command(self, *words: str, user: str | None = None, **environ: str) -> list[str]:
        """The command of the host that runs ``words`` in the machine."""
        variables = [f"{name}={value}" for name, value in {**ENVIRON, **environ}.items()]
        become = ["runuser", "-u", user, "--"] if user else []
        return ["nsenter", "-t", str(self._leader), "-a", "env", "-i", *variables, *become, *words]

    def run(
        self, *words: str, user: str | None = None, check: bool = True, text: str | None = None, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the machine; standard output and error are in the result. Fails if it fails."""
        done = subprocess.run(
            self.command(*words, user=user, **environ), input=text, capture_output=True, text=True, timeout=300
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def out(self, *words: str, user: str | None = None, **environ: str) -> str:
        """What a command prints, without the newline at its end."""
        return self.run(*words, user=user, **environ).stdout.rstrip("\n")

    def sh(self, script: str, user: str | None = None, **environ: str) -> str:
        """What a shell script prints."""
        return self.out("sh", "-euc", script, user=user, **environ)

    def write(self, path: str, text: str, owner: str = "root", mode: int = 0o644) -> None:
        """Put a file there, with its folders."""
        self.run("install", "-D", "-o", owner, "-m", f"{mode:o}", "/dev/stdin", path, text=text)

    def copy(self, source: Path, target: str) -> None:
        """Copy a file or folder of the host into the machine, as root's."""
        place = self.root / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, place)

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.out("systemctl", "show", "-P", name, unit)

    def journal(self, *units: str) -> str:
        """What units wrote to the journal."""
        return self.out("journalctl", "--no-pager", "-o", "cat", *(word for unit in units for word in ("-u", unit)))

    def stop(self) -> None:
        """Power it off."""
        if self._nspawn is not None:
            self.run("systemctl", "poweroff", "--force", check=False)
            try:
                self._nspawn.wait(30)
            except subprocess.TimeoutExpired:
                self._nspawn.kill()
                self._nspawn.wait()
        for cgroup in self._cgroups:
            subprocess.run(["find", cgroup, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], capture_output=True)


def cgroups_of_its_own(name: str) -> list[Path]:
    """New control groups below ours, in each hierarchy that systemd keeps units in.

    Machines that boot at the same time would else have one group for units of one name, and a systemd that finds
    processes there which it cannot see fails to kill what it can.
    """
    made = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kind, own = line.split(":", 2)
        mounts = {"": ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"), "name=systemd": ("/sys/fs/cgroup/systemd",)}
        for mount in mounts.get(kind, ()):
            folder = Path(mount + own)
            if (folder / "cgroup.procs").exists():
                (folder / name).mkdir()
                made.append(folder / name)
                break
    return made


def missing() -> Sequence[str]:
    """What this computer lacks to boot a machine."""
    lacking = [name for name in ("mmdebstrap", "systemd-nspawn", "nsenter", "dpkg-deb") if shutil.which(name) is None]
    return lacking if os.geteuid() == 0 else [*lacking, "root"]
