"""The page in Debian's Chromium over a real collector whose ledger holds every honesty state."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from shim.line import Tokens, encode
from tests.e2e.programs import BIN, clean_environment, collector, free_port, wait_until_healthy
from tests.shim.test_line import LINE

FIXTURES = Path(__file__).parent.parent / "runtimes"
HOMES = ("claude_code", "pi", "kimi_cli", "picoclaw", "cline", "openclaw", "cursor")
SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",
)


@dataclass(frozen=True, slots=True)
class Collector:
    """A running collector: its base URL and the environment it runs in."""

    url: str
    environ: dict[str, str]
    process: subprocess.Popen[bytes]

    def rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = httpx.get(f"{self.url}/api/local/{name}").json()["rows"]
        return rows


@contextlib.contextmanager
def running_collector(folder: Path) -> Iterator[Collector]:
    port = free_port()
    environ = clean_environment(
        folder,
        VM_USAGE_STATE=str(folder / "state"),
        VM_USAGE_LOG=str(folder / "usage.jsonl"),
        VM_USAGE_HOMES=str(folder / "home"),
        VM_USAGE_VM="vm-7",
        VM_USAGE_TZ="UTC",
        VM_USAGE_API_PORT=str(port),
        VM_USAGE_INTERVAL="0.2",
    )
    output = folder / "collector.err"
    with output.open("ab") as stderr:
        process = subprocess.Popen([BIN / "usage-collector", "run"], env=environ, stdout=stderr, stderr=stderr)
    try:
        wait_until_healthy(process, f"http://127.0.0.1:{port}/healthz", output)
        yield Collector(f"http://127.0.0.1:{port}", environ, process)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A collector over several runtimes' stores and 150 sessions of usage lines."""
    folder = tmp_path_factory.mktemp("page")
    for name in HOMES:
        if (FIXTURES / name / "home").is_dir():
            shutil.copytree(FIXTURES / name / "home", folder / "home", dirs_exist_ok=True)
    lines = [
        replace(LINE, id=f"b-{seq}", session=f"ref{seq:04}", response=None, tokens=Tokens(seq, 2, None, None, 3, 0))
        for seq in range(1, 151)
    ]
    lines.append(replace(LINE, id="b-160", model="acme-unlisted-1", response=None))
    (folder / "usage.jsonl").write_bytes(b"".join(map(encode, lines)))
    with running_collector(folder) as found:
        collector(found.environ, "ingest")
        yield found


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("Debian's chromium and chromium-driver are not installed")
    try:
        socket.gethostbyname("localhost")
    except OSError:
        pytest.skip("chromedriver needs the name localhost: it is not in /etc/hosts")
    options = Options()
    options.binary_location = binary
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver, log_output=os.devnull))
    browser.set_window_size(1280, 1000)
    yield browser
    browser.quit()


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser at its first size, with nothing open; a message on its console fails the test."""
    chromium.set_window_size(1280, 1000)
    chromium.get("about:blank")
    chromium.get_log("browser")
    yield chromium
    assert [entry["message"] for entry in chromium.get_log("browser")] == []


def opened(browser: webdriver.Chrome, url: str, choices: str = "window=all") -> webdriver.Chrome:
    """The page once it has shown its first answers."""
    browser.get("about:blank")
    browser.get(f"{url}/#{choices}")
    WebDriverWait(browser, 20).until(lambda page: page.execute_script("return document.body.dataset.ready") == "yes")
    return browser
