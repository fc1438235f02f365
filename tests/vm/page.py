"""Commands of the operations page, to be run as they stand there: what an operator copies at night has been run."""

from __future__ import annotations

import re
from typing import Final

from tests.vm.packages import ROOT

PAGE: Final = ROOT / "deploy/README.md"


def commands(heading: str) -> list[str]:
    """The blocks of commands under a heading of ``deploy/README.md``, in order, as shell scripts."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?m)(?:^    .*\n)+", section)
    assert blocks, f"there are no commands under {heading!r}"
    return [re.sub(r"(?m)^    ", "", block) for block in blocks]
