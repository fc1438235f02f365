"""Stores that lie, block or lead elsewhere: one broken source costs itself, never another, never the reader."""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.runtimes import SourceError
from tests.runtimes.databases import RUNTIMES, build, reader
from tests.runtimes.transcripts import Read

READERS = Path(__file__).parents[2] / "collector" / "runtimes"


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return {runtime: build(runtime, tmp_path_factory.mktemp(runtime))[0] for runtime in RUNTIMES}


@pytest.fixture
def home(originals, runtime, tmp_path):
    return Path(shutil.copytree(originals[runtime], tmp_path / "home", symlinks=True))


def collect(runtime: str, home: Path) -> tuple[Read, list[SourceError]]:
    """What can be read of a home, and what could not: only ``SourceError`` may say so."""
    read, errors = Read(), []
    started = time.monotonic()
    for source in reader(runtime).sources(home, {}):
        try:
            read.take(reader(runtime), source)
        except SourceError as error:
            errors.append(error)
    assert time.monotonic() - started < 10
    return read, errors


def files(home: Path) -> list[Path]:
    return sorted(path for path in home.rglob("*") if path.is_file())


def as_link(path: Path, outside: Path) -> None:
    shutil.move(path, outside)
    path.symlink_to(outside)


# Keys of what counts only where the first form of a session cannot be read.
SECOND_FORMS = ("rest:", ":step ", "shutdown:")
DAMAGES = {
    "a link out of the home": as_link,
    "a FIFO": lambda path, _: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path, _: (path.unlink(), path.mkdir()),
    "nothing": lambda path, _: path.write_bytes(b""),
    "noise": lambda path, _: path.write_bytes(os.urandom(5000)),
    "half of itself": lambda path, _: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "deep JSON": lambda path, _: path.write_bytes(b'{"messages":' + b"[" * 100_000),
    "another JSON": lambda path, _: path.write_bytes(b'[1, {"messages": 7, "data": [], "steps": {}}, "x"]'),
    "gone": lambda path, _: path.unlink(),
    "closed": lambda path, _: path.chmod(0),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_damaged_file_costs_only_what_it_held(runtime, home, damage, tmp_path):
    whole, none = collect(runtime, home)
    assert not none
    for number, path in enumerate(files(home)):
        spare = tmp_path / f"spare-{number}"
        shutil.copy2(path, spare)
        DAMAGES[damage](path, tmp_path / f"outside-{number}")
        read, errors = collect(runtime, home)
        if not damage.startswith("another"):
            new = read.records.keys() - whole.records.keys()
            assert all(any(form in key for form in SECOND_FORMS) for key in new)
        assert all(str(error.path).startswith(str(home)) for error in errors)
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        shutil.copy2(spare, path)
    assert collect(runtime, home)[0].facts() == whole.facts()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_file_replaced_by_a_link_or_fifo_leaves_no_record(runtime, home, tmp_path):
    for damage in (as_link, DAMAGES["a FIFO"]):
        for number, path in enumerate(files(home)):
            damage(path, tmp_path / f"outside-{number}")
    assert not collect(runtime, home)[0].records


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_folder_that_leads_out_of_the_home_is_not_read(runtime, home, depth, tmp_path):
    folders = sorted(path for path in home.rglob("*") if path.is_dir())
    inside = [path for path in folders if len(path.relative_to(home).parts) == depth]
    for number, path in enumerate(inside):
        shutil.move(path, tmp_path / f"outside-{number}")
        path.symlink_to(tmp_path / f"outside-{number}")
    linked, _ = collect(runtime, home)
    for path in inside:
        path.unlink()
    gone, _ = collect(runtime, home)
    assert (linked.facts(), linked.sessions) == (gone.facts(), gone.sessions)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_home_below_a_link_is_still_a_home(runtime, originals, tmp_path):
    (tmp_path / "home").symlink_to(originals[runtime])
    whole, _ = collect(runtime, originals[runtime])
    read, errors = collect(runtime, tmp_path / "home")
    assert (read.facts(), errors) == (whole.facts(), [])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_empty_or_missing_home_has_no_sources(runtime, tmp_path):
    assert not list(reader(runtime).sources(tmp_path, {}))
    assert not list(reader(runtime).sources(tmp_path / "none", {}))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_bytes_in_any_place_end_in_numbers_or_a_source_error(data, originals, tmp_path_factory):
    runtime = data.draw(st.sampled_from(RUNTIMES))
    home = Path(shutil.copytree(originals[runtime], tmp_path_factory.mktemp("home") / "home"))
    path = data.draw(st.sampled_from(files(home)))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    path.write_bytes(bytes(content))
    read, _ = collect(runtime, home)
    for record in read.records.values():
        assert all(count is None or count >= 0 for count in vars_of(record.tokens))
        assert record.vendor_pico is None or record.vendor_pico >= 0


def vars_of(tokens):
    return list(tokens)


# Values that only a whole message, prompt or document could be.
RAW = {"record", "message", "line", "entry", "event", "row", "data", "value", "payload", "step", "usage"}
CONTENT = {"content", "text", "prompt", "message_text", "title", "summary", "system_prompt", "reasoning_content"}
# Where a key of that name holds a number or JSON of numbers, or names a set.
ALLOWED = {("cline_tasks.py", "text")}


def bound_keys(tree: ast.AST) -> set[str]:
    """Keys that code takes out of a mapping: ``x["key"]`` and ``x.get("key")``; ``**x`` of what JSON gave is ``**``."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            found.add(node.slice.value)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
                found |= {arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)}
            spread = [keyword.value for keyword in node.keywords if keyword.arg is None]
            found |= {"**" for value in spread if isinstance(value, ast.Name) and value.id in RAW}
    return found


@pytest.mark.parametrize("module", sorted(READERS.glob("*.py")), ids=lambda path: path.name)
def test_no_reader_binds_content_or_a_whole_record(module):
    bound = {key for key in bound_keys(ast.parse(module.read_text())) if (module.name, key) not in ALLOWED}
    assert not bound & (CONTENT | {"**"})


CLOSED = """
import os, sys
from pathlib import Path
from collector.runtimes import SourceError, copilot, goose
home = Path(sys.argv[1])
os.setuid(65534)
for reader in (copilot.READER, goose.READER):
    for source in reader.sources(home, {}):
        try:
            list(reader.read(source, None))
        except SourceError as error:
            print(source.path.name, error.reason)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_store_whose_folder_may_not_be_entered_says_so(originals):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        home = Path(shutil.copytree(originals["copilot"], Path(folder, "home")))
        shutil.copytree(originals["goose"], home, dirs_exist_ok=True)
        for path in (home / ".copilot", home / ".local"):
            path.chmod(0)
        command = [sys.executable, "-c", CLOSED, str(home)]
        run = subprocess.run(command, capture_output=True, text=True, cwd=READERS.parents[1], check=True)
    assert run.stdout == "session-store.db Permission denied\n"
