"""What a process has used, from /proc: CPU seconds and its highest resident memory."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """User and system time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def forget_peak() -> None:
    """Begin anew with this process's highest resident memory."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_mib(pid: int) -> float:
    """The most memory (MiB) that a process had resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
