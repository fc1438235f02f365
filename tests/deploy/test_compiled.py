"""The compiled wheel: where it can be built, its modules pass their own tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.deploy.tools import ROOT

COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.so", "dist")
# Those that pass through compiled modules: calls from end to end, and what such modules do by themselves.
TESTS = (
    *(f"tests/shim/test_{name}.py" for name in ("guard", "identity", "ids", "inflight", "inject", "line")),
    *(f"tests/shim/test_{name}.py" for name in ("metered_calls", "no_content", "nobody_let_in", "response", "routes")),
    *(f"tests/shim/test_{name}.py" for name in ("session", "shim_errors", "sink", "sink_properties", "transparency")),
    *(f"tests/collector/test_{name}.py" for name in ("ingest", "lines")),
    "tests/faults/test_hang_ups.py",
    "tests/faults/test_signals.py",
    "tests/wires/test_whole.py",
)
SCRIPT = "#!{python}\nfrom {package}.__main__ import main\n\nmain()\n"

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="needs hatchling"),
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason="needs a C compiler: apt-get install gcc"),
    pytest.mark.skipif(
        not Path(sysconfig.get_paths()["include"], "Python.h").exists(), reason="needs apt-get install python3-dev"
    ),
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project."""
    folder = tmp_path_factory.mktemp("compiled") / "checkout"
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> zipfile.ZipFile:
    """The wheel that is built of it."""
    environ = {name: value for name, value in os.environ.items() if name != "VM_USAGE_PURE"}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(command, cwd=checkout, env=environ, check=True, capture_output=True, timeout=600)
    return zipfile.ZipFile(next((checkout / "dist").glob("*.whl")))


@pytest.mark.timeout(600)
def test_the_modules_that_the_project_names_are_compiled(checkout: Path, wheel: zipfile.ZipFile) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    modules = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    built = {name for name in wheel.namelist() if name.endswith(".so")}
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert built == {"vm_usage__mypyc" + suffix, *(name.removesuffix(".py") + suffix for name in modules)}
    assert set(modules) <= set(wheel.namelist())
    assert [path.name for path in (checkout / "dist").iterdir()] == [Path(wheel.filename or "").name]


@pytest.mark.timeout(600)
def test_they_pass_their_tests(checkout: Path, wheel: zipfile.ZipFile) -> None:
    """In an environment of their own, whose other packages are those of this one."""
    environment = checkout.parent / "venv"
    venv.create(environment, symlinks=True)
    paths = {"base": str(environment), "platbase": str(environment)}
    site = Path(sysconfig.get_path("purelib", "venv", paths))
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    wheel.extractall(site)
    python = environment / "bin/python"
    for package, program in (("shim", "usage-shim"), ("collector", "usage-collector")):
        script = environment / "bin" / program
        script.write_text(SCRIPT.format(python=python, package=package))
        script.chmod(0o755)
    wheel.extractall(checkout, [name for name in wheel.namelist() if name.endswith(".so")])
    found = subprocess.run(
        [python, "-c", "import shim.relay; print(shim.relay.__file__)"], cwd="/", capture_output=True, text=True
    )
    assert found.stdout.strip().endswith(".so")
    command = [python, "-m", "pytest", "-n", "2", "-m", "not interpreted", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:]
    assert int(done.stdout.rpartition(" passed")[0].split()[-1]) > 300
