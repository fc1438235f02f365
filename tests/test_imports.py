"""The shape of the project: who imports whom, and that no module has grown past reading."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "shim").rglob("*.py")) + sorted((ROOT / "collector").rglob("*.py"))
# What the collector may take from the shim: the contract, and nothing of the proxy.
CONTRACT = {
    "shim",
    "shim.line",
    "shim.allowlist",
    "shim.names",
    "shim.places",
    "shim.identity",
    "shim.notify",
    "shim.provision",
}
PURE = ("record", "rows", "money", "honesty", "merge", "rates", "ranges")
IO = {"socket", "sqlite3", "aiohttp", "httpx", "asyncio", "subprocess", "os", "click"}
LONGEST = 400


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules_of(path: Path) -> set[str]:
    known = {name_of(module) for module in MODULES}
    return {name for name in imports(path) if name in known or name.split(".")[0] not in ("shim", "collector")}


@pytest.mark.parametrize("path", [m for m in MODULES if m.is_relative_to(ROOT / "shim")], ids=name_of)
def test_the_shim_never_imports_the_collector_or_prices(path: Path) -> None:
    assert {name for name in imports(path) if name.split(".")[0] in ("collector", "genai_prices")} == set()


@pytest.mark.parametrize("path", [m for m in MODULES if m.is_relative_to(ROOT / "collector")], ids=name_of)
def test_the_collector_takes_only_the_contract_from_the_shim(path: Path) -> None:
    assert {name for name in modules_of(path) if name.split(".")[0] == "shim"} <= CONTRACT


@pytest.mark.parametrize("path", sorted((ROOT / "shim/wires").glob("*.py")), ids=name_of)
def test_wire_readers_are_sans_io(path: Path) -> None:
    assert {name.split(".")[0] for name in imports(path)} & (IO | {"structlog", "time"}) == set()


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_import_no_io(name: str) -> None:
    found = {imported.split(".")[0] for imported in imports(ROOT / "collector" / f"{name}.py")}
    assert found & IO == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_starts_with_what_is_true_in_it_and_can_be_read_at_once(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text))
    assert text.count("\n") <= LONGEST
