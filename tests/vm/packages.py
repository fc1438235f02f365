"""The Debian package of this checkout, and the next release of it, which differs in its version."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
NEXT: Final = "99.0.0"
MIGRATION: Final = '''

@migration
def m999_of_the_next_release(db: sqlite3.Connection) -> None:
    """What an older release does not know."""
    db.execute("CREATE TABLE of_the_next_release (a)")
'''


def build(folder: Path) -> Path:
    """Build the package into ``folder``, or take the one that ``VM_TEST_DEB`` names."""
    if given := os.environ.get("VM_TEST_DEB"):
        return Path(given)
    command = ["sh", str(ROOT / "deploy/build_deb"), str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip().splitlines()[-1])


def next_release(package: Path, folder: Path, version: str = NEXT, *, migrates: bool = False) -> Path:
    """The same package with a higher version, in its control file and in what ``--version`` says, and a setting more.

    ``migrates``: it has a migration of the ledger more.
    """
    tree = folder / version
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    (site,) = tree.glob("opt/vm-usage/venv/lib/*/site-packages")
    for path, pattern, new in (
        (tree / "DEBIAN/control", r"(?m)^Version: .*$", f"Version: {version}"),
        (site / "shim/__init__.py", r'__version__(.*)= ".*"', rf'__version__\1= "{version}"'),
    ):
        path.write_text(re.sub(pattern, new, path.read_text()))
    with (tree / "etc/default/usage-shim").open("a") as file:
        file.write(f"\n# A setting that came with {version}.\n#VM_USAGE_OF_THE_NEXT_RELEASE=\n")
    if migrates:
        with (site / "collector/ledger/migrations.py").open("a") as file:
            file.write(MIGRATION)
    target = folder / f"vm-usage_{version}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, target], check=True, capture_output=True)
    return target
