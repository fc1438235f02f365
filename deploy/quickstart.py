"""The main job, shown: calls through usage-shim, their usage lines, and the collector's report, page and API.

Calls go to the real provider where OPENAI_API_KEY or ANTHROPIC_API_KEY is set, else to a bundled loopback upstream.
Everything lives in a temporary folder; nothing of the machine is read or changed.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import httpx
from loopback_upstream import serve

BIN = Path(sys.executable).parent
PICOCLAW = {"User-Agent": "PicoClaw/0.2"}
CLAUDE_CODE = {"User-Agent": "claude-cli/2.1 (external, cli)"}


def fail(sentence: str) -> NoReturn:
    sys.exit(sentence)


def check_port(port: int, variable: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            fail(f"Port {port} is in use: stop what listens there, or choose another: {variable}={port + 1000} ...")


class Demo:
    """Both programs over a temporary folder, and the calls that are made through them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shim_port = int(os.environ.get("VM_USAGE_SHIM_PORT", "4141"))
        self.api_port = int(os.environ.get("VM_USAGE_API_PORT", "8900"))
        self.log = folder / "usage.jsonl"
        self.processes: list[subprocess.Popen[bytes]] = []
        kept = {name: value for name, value in os.environ.items() if "VM_USAGE_" not in name}
        self.environ = kept | {
            "VM_USAGE_LOG": str(self.log),
            "VM_USAGE_RUNTIME": "picoclaw",
            "VM_USAGE_VM": "quickstart",
            "VM_USAGE_STATE": str(folder),
            "VM_USAGE_HOMES": str(folder / "home"),
            "VM_USAGE_SHIM_PORT": str(self.shim_port),
            "VM_USAGE_API_PORT": str(self.api_port),
        }
        (folder / "home").mkdir()

    def upstreams(self) -> None:
        """Point the shim at the real providers there are keys for, else at the loopback upstream."""
        keys = [name for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY") if os.environ.get(name)]
        if keys:
            print(f"{' and '.join(keys)} set: calls go to the real provider.")
            return
        print(
            "No OPENAI_API_KEY or ANTHROPIC_API_KEY: calls go to a bundled loopback upstream that replays wire streams."
        )
        server = serve()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        self.environ |= {"VM_USAGE_UPSTREAM_OPENAI": url, "VM_USAGE_UPSTREAM_ANTHROPIC": url}

    def start(self, *command: str, health: str) -> None:
        output = (self.folder / f"{command[0]}.log").open("wb")
        process = subprocess.Popen([BIN / command[0], *command[1:]], env=self.environ, stdout=output, stderr=output)
        self.processes.append(process)
        for _ in range(300):
            if process.poll() is not None:
                fail(f"{command[0]} ended: {Path(output.name).read_text()[-500:]}")
            try:
                if httpx.get(health, timeout=2).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        fail(f"{command[0]} did not answer in 30 s; its output is in {output.name}")

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(30)

    def call(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        url = f"http://127.0.0.1:{self.shim_port}{path}"
        key = os.environ.get("ANTHROPIC_API_KEY" if "anthropic" in path else "OPENAI_API_KEY", "none")
        auth = {"Authorization": f"Bearer {key}", "x-api-key": key, "anthropic-version": "2023-06-01"}
        response = httpx.post(url, json=body, headers=headers | auth, timeout=120)
        what = f"{'streamed' if body.get('stream') else 'plain'} call, {body['model']}, {headers['User-Agent']}"
        print(f"  {what}: HTTP {response.status_code}, {len(response.content)} bytes")

    def calls(self) -> None:
        """A plain and a streamed call; on the loopback upstream also one that is refused and one without a price."""
        question = {"messages": [{"role": "user", "content": "Say hello."}]}
        openai = {"model": "gpt-5-mini", **question}
        anthropic = {"model": "claude-sonnet-4-5", "max_tokens": 200, **question}
        real = {name for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY") if os.environ.get(name)}
        if not real or "OPENAI_API_KEY" in real:
            self.call("/picoclaw/openai/v1/chat/completions", openai, PICOCLAW)
            self.call("/picoclaw/openai/v1/chat/completions", openai | {"stream": True}, PICOCLAW)
        if not real or "ANTHROPIC_API_KEY" in real:
            self.call("/picoclaw/anthropic/v1/messages", anthropic, PICOCLAW)
            self.call("/picoclaw/anthropic/v1/messages", anthropic | {"stream": True}, PICOCLAW)
        if not real:
            self.call("/picoclaw/openai/v1/chat/completions", openai | {"model": "acme-unlisted-1"}, PICOCLAW)
            self.call("/picoclaw/anthropic/v1/messages", anthropic, CLAUDE_CODE)

    def wait_for_lines(self, count: int) -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if self.log.exists() and self.log.read_bytes().count(b"\n") >= count:
                return
            time.sleep(0.05)

    def collector(self, *arguments: str) -> None:
        if subprocess.run([BIN / "usage-collector", *arguments], env=self.environ).returncode:
            fail(f"usage-collector {' '.join(arguments)} failed")


def main() -> None:
    parser = argparse.ArgumentParser(prog="sh deploy/quickstart", description=__doc__)
    parser.add_argument("--once", action="store_true", help="end by itself instead of waiting for Ctrl-C")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vm-usage-quickstart-") as folder:
        demo = Demo(Path(folder))
        try:
            show(demo, options.once)
        except KeyboardInterrupt:
            print()
        finally:
            demo.stop()


def show(demo: Demo, once: bool) -> None:
    check_port(demo.shim_port, "VM_USAGE_SHIM_PORT")
    check_port(demo.api_port, "VM_USAGE_API_PORT")
    demo.upstreams()
    demo.start("usage-shim", "run", health=f"http://127.0.0.1:{demo.shim_port}/-/healthz")
    print(f"\nusage-shim on http://127.0.0.1:{demo.shim_port}; calls through it:")
    demo.calls()
    demo.wait_for_lines(2)
    print(f"\nThe usage lines it wrote ({demo.log}):")
    print(demo.log.read_text(), end="")
    print("\nIngested and priced:", flush=True)
    demo.collector("ingest")
    for by in ("session", "model"):
        print(f"\nusage-collector report --by {by}", flush=True)
        demo.collector("report", "--by", by)
    demo.start("usage-collector", "run", health=f"http://127.0.0.1:{demo.api_port}/healthz")
    print(f"\nPage and API on http://127.0.0.1:{demo.api_port}; try:")
    print(f"  curl -s 127.0.0.1:{demo.api_port}/api/local/aggregates | jq '.rows[-14:]'")
    print(f"  curl -s 127.0.0.1:{demo.api_port}/api/local/refused | jq .rows")
    if once:
        rows = httpx.get(f"http://127.0.0.1:{demo.api_port}/api/local/summary").json()["rows"]
        print(f"\nThe API answers with {len(rows)} rows of the summary. Done.")
        return
    print("\nCtrl-C ends both.", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
