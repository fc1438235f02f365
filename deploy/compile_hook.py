"""Build hook: the modules that every call or line passes as C extensions by mypyc, where that can be done.

They are made from the same sources. A wheel gets them if this Python can build extensions (a C compiler and
``Python.h``); else it is a pure one, which does the same and takes a quarter more processor time for a plain call or
for a line that is ingested. ``VM_USAGE_PURE=1`` asks for a pure one. Editable installations stay pure. The compiled
modules lie beside their sources, which tracebacks show.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Beside the compiler, the libraries whose types the modules use: they are compiled alike wherever a wheel is built.
COMPILER = ["mypy>=1.13", "setuptools>=68", "aiohttp>=3.14,<4", "msgspec>=0.18", "orjson>=3.10"]
# The group's name, which mypyc would else make from the paths; debug level 0: no path of the build in the result.
SETUP = """
from setuptools import setup
from mypyc.build import mypycify
setup(name="vm_usage", packages=[], ext_modules=mypycify(
    ["--ignore-missing-imports", "--no-warn-unused-ignores", *{modules!r}],
    opt_level="3", debug_level="0", group_name="vm_usage"))
"""


class CompileHook(BuildHookInterface[Any]):
    """``modules`` of the hook's configuration are compiled."""

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling: nothing for a pure wheel."""
        return COMPILER if self._why_not() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add what came out to the wheel."""
        why = "it is an editable installation" if version == "editable" else self._why_not()
        if why is None and not all(map(importlib.util.find_spec, ("mypyc", "setuptools"))):
            why = "mypy or setuptools is missing"
        if why is not None:
            self.app.display_info(f"A pure wheel, as {why}.")
            return
        with TemporaryDirectory() as folder:
            built = self._compile(Path(folder))
            if not built:
                self.app.display_warning("The modules could not be compiled: a pure wheel.")
                return
            kept = Path(self.directory) / ".compiled"
            shutil.rmtree(kept, ignore_errors=True)
            for path in built:
                target = kept / path.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                build_data["force_include"][str(target)] = str(path.relative_to(folder))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing but the wheel."""
        shutil.rmtree(Path(self.directory) / ".compiled", ignore_errors=True)

    def _why_not(self) -> str | None:
        """Why a wheel made here is pure, ``None`` where it is compiled."""
        compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
        if os.environ.get("VM_USAGE_PURE"):
            return "VM_USAGE_PURE asks for one"
        if self.target_name != "wheel" or sys.implementation.name != "cpython":
            return "only wheels for CPython are compiled"
        if shutil.which(compiler) is None:
            return f"there is no C compiler {compiler}"
        if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
            return "Python.h is missing"
        return None

    def _compile(self, folder: Path) -> list[Path]:
        """The extension modules, made in ``folder``; none where that failed, which is said on the error output."""
        for package in self.build_config.packages:
            left_out = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(Path(self.root) / package, folder / package, ignore=left_out)
        (folder / "setup.py").write_text(SETUP.format(modules=self.config["modules"]), encoding="utf-8")
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write((done.stdout + done.stderr)[-4000:])
            return []
        return sorted(path for path in folder.rglob("*.so") if "build" not in path.relative_to(folder).parts)
