"""One shim under soak: its process, its disk, its upstream, and the damage that can be done to it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.e2e.programs import BIN, Shim, clean_environment, free_port, wait_until_healthy
from tests.faults.shapes import SHAPES
from tests.faults.upstream import Upstream

ALLOWLIST: Final = 'version: 1\ntoken_blind:\n  picoclaw: {why: "keeps no record of tokens"}\n'
BROKEN: Final = "version: 1\ntoken_blind: [broken\n"
DISK_MIB: Final = 64


class Lane:
    """A shim that is damaged for as long as the soak goes on. ``restarts``: whether it may be killed and stopped."""

    def __init__(self, folder: Path, dice: random.Random, *, restarts: bool) -> None:
        self.folder = folder
        self.dice = dice
        self.restarts = restarts
        self.upstream = Upstream()
        self.done: dict[str, int] = {}
        self.archive = folder / "archive"
        self.archive.mkdir(parents=True)
        self.disk = folder / "disk"
        self.disk.mkdir()
        self.has_disk = os.geteuid() == 0 and self._mount()
        self.log = self.disk / "logs" / "usage.jsonl"
        self.allowlist = folder / "allowlist.yaml"
        self.allowlist.write_text(ALLOWLIST)
        self.port = free_port()
        self.shim: Shim | None = None

    @property
    def pid(self) -> int:
        assert self.shim is not None
        return self.shim.process.pid

    def start(self) -> None:
        """Start the shim, over whatever the one before it left."""
        names = {shape.upstream.upper() for shape in SHAPES}
        environ = clean_environment(
            self.folder,
            VM_USAGE_LOG=str(self.log),
            VM_USAGE_SHIM_PORT=str(self.port),
            VM_USAGE_ALLOWLIST=str(self.allowlist),
            VM_USAGE_DRAIN_SECONDS="2",
            **{f"VM_USAGE_UPSTREAM_{name}": self.upstream.url for name in names},
        )
        with (self.folder / "shim.err").open("ab") as err:
            process = subprocess.Popen([BIN / "usage-shim", "run"], env=environ, stderr=err)
        url = f"http://127.0.0.1:{self.port}"
        self.shim = Shim(url, self.log, process, environ)
        wait_until_healthy(process, url + "/-/healthz", self.folder / "shim.err")

    def stop(self, number: int) -> None:
        """End the shim with a signal and wait for it."""
        assert self.shim is not None
        self.shim.process.send_signal(number)
        self.shim.process.wait(60)

    def damage(self) -> str:
        """Do one thing at random; its name."""
        choices: list[Callable[[], None]] = [self.rotate, self.reload, self.break_allowlist, self.move_folder]
        choices += [self.fill_disk] if self.has_disk else []
        choices += [self.kill, self.kill, self.term] if self.restarts else []
        chosen = self.dice.choice(choices)
        chosen()
        self.done[chosen.__name__] = self.done.get(chosen.__name__, 0) + 1
        return chosen.__name__

    def kill(self) -> None:
        self.stop(signal.SIGKILL)
        self.start()

    def term(self) -> None:
        self.stop(signal.SIGTERM)
        self.start()

    def reload(self) -> None:
        os.kill(self.pid, signal.SIGHUP)

    def break_allowlist(self) -> None:
        """Broken for a while, then mended; the old one stays in force."""
        self.allowlist.write_text(BROKEN)
        time.sleep(2.5)
        self.allowlist.write_text(ALLOWLIST)

    def rotate(self) -> None:
        """As logrotate does it: rename, and take the old file away once its writer has let go."""
        with contextlib.suppress(FileNotFoundError):
            old = self.log.rename(self.log.with_name(f"usage.jsonl.{time.time_ns()}"))
            time.sleep(0.5)
            shutil.move(old, self.archive / old.name)

    def move_folder(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            moved = self.log.parent.rename(self.disk / f"moved-{time.time_ns()}")
            time.sleep(0.5)
            for file in moved.iterdir():
                shutil.move(file, self.archive / f"{moved.name}.{file.name}")

    def fill_disk(self) -> None:
        """No room at all for two seconds, with a kill in the middle of it now and then."""
        ballast = self.disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            for block in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * block):
                        pass
        time.sleep(2)
        if self.restarts and self.dice.random() < 0.3:
            self.stop(signal.SIGKILL)
            ballast.unlink()
            self.start()
        else:
            ballast.unlink()

    def logs(self) -> list[Path]:
        """Every file that was ever the log."""
        return [*self.archive.iterdir(), *self.disk.rglob("usage.jsonl*")]

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def close(self) -> None:
        """End everything that was started or mounted."""
        if self.shim is not None and self.shim.process.poll() is None:
            self.stop(signal.SIGKILL)
        if self.has_disk:
            subprocess.run(["umount", "-l", self.disk], check=False)

    def _mount(self) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(self.disk)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
