"""The recipe of deploy/cursor-tunnel.md, run: nginx as the public end, a real shim and a provider behind it."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.programs import Shim, free_port, running_shim
from tests.fake_upstream import FakeUpstream, chunked, stream_head, whole
from tests.shim.raw import eventually, exchange, read_until, request, rest_of, status_of

CONF = Path(__file__).parents[2] / "deploy" / "cursor-tunnel.nginx.conf"
NAME = "agent-vm.example.com"
SECRET = "s3cret-of-the-tunnel-0123456789"
PATH = "/cursor/openai/v1/chat/completions"
ANSWER = b'{"id":"c-1","model":"gpt-5","usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'
NGINX = "daemon off; pid {folder}/pid; error_log stderr; events {{}} http {{ {temp} include {folder}/tunnel.conf; }}"

pytestmark = pytest.mark.skipif(
    not (shutil.which("nginx") and shutil.which("openssl")), reason="needs Debian's nginx and openssl"
)


class Tunnel:
    """The public end: its port, and calls to it over TLS."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self) -> ssl.SSLSocket:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), 10), server_hostname=NAME)

    def call(self, path: str, *headers: str, host: str = NAME, method: str = "POST") -> bytes:
        body = b'{"model":"gpt-5","messages":[{"role":"user","content":"hi"}]}' if method == "POST" else b""
        sent = request(f"https://{host}", body, "Connection: close", *headers, path=path, method=method)
        with self.connect() as connection:
            connection.sendall(sent)
            return rest_of(connection)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeUpstream]:
    with FakeUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def shim(provider: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shim]:
    folder = tmp_path_factory.mktemp("tunnel")
    secret = folder / "tunnel.secret"
    secret.write_text(SECRET + "\n")
    secret.chmod(0o600)
    more = {"VM_USAGE_ALLOWED_HOSTS": NAME, "VM_USAGE_TUNNEL_SECRET_FILE": str(secret)}
    with running_shim(folder, {"OPENAI": provider.url}, **more) as running:
        yield running


@pytest.fixture(scope="module")
def tunnel(shim: Shim, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tunnel]:
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj"
    made = ["openssl", *new.split(), f"/CN={NAME}", "-keyout", key, "-out", certificate]
    subprocess.run(made, check=True, capture_output=True)
    conf = CONF.read_text()
    for old, here in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/agent-vm.pem": str(certificate),
        "/etc/ssl/agent-vm.key": str(key),
        "http://127.0.0.1:4141": shim.url,
    }.items():
        assert old in conf
        conf = conf.replace(old, here)
    (folder / "tunnel.conf").write_text(conf)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temp = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, temp=temp))
    nginx = subprocess.Popen(["nginx", "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: _listens(port))
        yield Tunnel(port)
    finally:
        nginx.terminate()
        nginx.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(autouse=True)
def fresh(provider: FakeUpstream) -> None:
    provider.got.clear()
    provider.answers(whole(ANSWER))


def test_a_call_with_the_secret_in_its_path_is_served_and_metered(
    tunnel: Tunnel, shim: Shim, provider: FakeUpstream
) -> None:
    answer = tunnel.call(f"/{SECRET}{PATH}")
    assert (status_of(answer), answer.endswith(ANSWER)) == (200, True)
    line = eventually(shim.lines)[-1]
    assert (line["runtime"], line["upstream"], line["input_tokens"]) == ("cursor", "openai", 3)
    assert provider.got[0].target == "/v1/chat/completions"


def test_the_secret_reaches_neither_provider_nor_log(tunnel: Tunnel, shim: Shim, provider: FakeUpstream) -> None:
    tunnel.call(f"/{SECRET}{PATH}")
    padding = "a" * 20
    tunnel.call(f"/{padding}{PATH}", f"x-vm-usage-secret: {SECRET}")
    assert SECRET.encode() not in b"".join(got.head + got.body for got in provider.got)
    traces = [path for path in shim.log.parent.rglob("*") if path.is_file() and path.name != "tunnel.secret"]
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in traces)


@pytest.mark.parametrize("path", [f"/{SECRET[:-1]}x{PATH}", f"/{SECRET}x{PATH}", f"/{SECRET.upper()}{PATH}"])
def test_a_wrong_secret_is_refused(tunnel: Tunnel, provider: FakeUpstream, path: str) -> None:
    assert status_of(tunnel.call(path)) == 403
    assert provider.got == []


@pytest.mark.parametrize(
    "path",
    [PATH, "/v1/chat/completions", "/-/status", f"/{SECRET}/-/status", f"/{SECRET}/picoclaw/openai/v1/models", "/"],
)
def test_nothing_but_the_calls_passes(tunnel: Tunnel, provider: FakeUpstream, path: str) -> None:
    assert status_of(tunnel.call(path)) in (403, 404)
    assert provider.got == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.example.com"])
def test_no_host_that_a_caller_names_makes_it_local(tunnel: Tunnel, provider: FakeUpstream, host: str) -> None:
    assert status_of(tunnel.call(f"/{'x' * 20}{PATH}", host=host)) == 403
    assert provider.got == []


def test_a_stream_arrives_as_it_is_sent(tunnel: Tunnel, provider: FakeUpstream) -> None:
    provider.answers(stream_head(), chunked(b"data: one\n\n"), 1.0, chunked(b"data: two\n\n") + b"0\r\n\r\n")
    with tunnel.connect() as connection:
        began = time.monotonic()
        connection.sendall(request(f"https://{NAME}", b'{"stream":true}', path=f"/{SECRET}{PATH}"))
        read_until(connection, b"one")
        assert time.monotonic() - began < 0.8
        read_until(connection, b"two")


def test_straight_to_the_shim_other_names_are_refused(shim: Shim, provider: FakeUpstream) -> None:
    body = b"{}"
    for host, path, status in (
        (NAME, f"/{SECRET}{PATH}", 200),
        (NAME, PATH, 403),
        ("other.example.com", f"/{SECRET}{PATH}", 403),
    ):
        sent = request(f"http://{host}", body, "Connection: close", path=path)
        assert status_of(exchange(shim.url, sent)) == status
    assert len(provider.got) == 1
