"""Commands as someone whom the modes of files stop, also where the tests are root's."""

from __future__ import annotations

import os
from typing import Final

POWERS: Final = "-dac_override,-dac_read_search,-fowner,-chown"


def bound_by_modes() -> list[str]:
    """What to put before a command: root runs it without root's power over files; for anyone else nothing.

    Others than root might not even enter the folder that the program lies in (a clone in /root).
    """
    return ["setpriv", f"--inh-caps={POWERS}", f"--bounding-set={POWERS}"] if os.geteuid() == 0 else []
