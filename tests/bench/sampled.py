"""The shim with a sampler in it: ``python -m tests.bench.sampled FILE``.

The running line is noted every half a millisecond of processor time; when the shim stops, the shares of functions (with
what they call) and of lines are written to FILE.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

PERIOD = 0.0005
ROWS = 40


class Sampler:
    """Counts of functions and lines."""

    def __init__(self) -> None:
        self.samples = 0
        self.functions: Counter[str] = Counter()
        self.lines: Counter[str] = Counter()

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, PERIOD, PERIOD)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, number: int, frame: FrameType | None) -> None:
        self.samples += 1
        if frame is not None:
            self.lines[f"{_name(frame)}:{frame.f_lineno}"] += 1
        seen = set()
        while frame is not None:
            seen.add(_name(frame))
            frame = frame.f_back
        self.functions.update(seen)

    def report(self) -> str:
        """Two tables, largest shares first."""
        rows = [f"{self.samples} samples"]
        for title, counts in (("function, with what it calls", self.functions), ("line", self.lines)):
            rows += ["", f"share   {title}"]
            rows += [f"{100 * n / max(self.samples, 1):5.1f} %  {name}" for name, n in counts.most_common(ROWS)]
        return "\n".join(rows) + "\n"


def _name(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name} {frame.f_code.co_name}"


if __name__ == "__main__":
    from shim.daemon import start

    sampler = Sampler()
    sampler.start()
    try:
        start(os.environ)
    finally:
        sampler.stop()
        Path(sys.argv[1]).write_text(sampler.report())
