"""How upstreams are reached: TLS that is verified and resumed, proxies, and addresses that are refused."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.e2e.programs import running_shim
from tests.fake_upstream import CLOSE, EMPTY, FakeUpstream
from tests.shim.raw import PATH

CHAT = {"model": "m", "messages": []}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback test")])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    )
    signed = builder.sign(key, hashes.SHA256())
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[FakeUpstream]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with FakeUpstream(ssl=context) as running:
        yield running


def https(upstream: FakeUpstream) -> str:
    return f"https://127.0.0.1:{upstream.port}"


def test_tls_is_verified(tmp_path: Path, secure: FakeUpstream):
    with running_shim(tmp_path, {"OPENAI": https(secure)}) as shim:
        answer = httpx.post(shim.url + PATH, json=CHAT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_tls")
    assert "certificate not accepted" in answer.json()["error"]["message"]
    assert secure.got == []


def test_an_authority_of_ones_own_is_trusted_and_sessions_are_resumed(
    tmp_path: Path, secure: FakeUpstream, certificate: Path
):
    secure.answers(EMPTY, CLOSE)
    with running_shim(tmp_path, {"OPENAI": https(secure)}, VM_USAGE_CA_FILE=str(certificate)) as shim:
        for _ in range(4):
            assert httpx.post(shim.url + PATH, json=CHAT).status_code == 200
    assert secure.connections == 4
    assert [got.resumed for got in secure.got] == [False, True, True, True]


class Connect:
    """A proxy that makes tunnels, or passes requests on in absolute form; what it was asked is in ``heads``."""

    def __init__(self, target: int) -> None:
        self.heads: list[bytes] = []
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://u:p@127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096)
            self.heads.append(head)
            upstream = socket.create_connection(("127.0.0.1", self._target))
            if head.startswith(b"CONNECT"):
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                upstream.sendall(head)
            for source, sink in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.close()


def test_https_goes_through_a_proxys_tunnel(tmp_path: Path, secure: FakeUpstream, certificate: Path):
    proxy = Connect(secure.port)
    base = {"OPENAI": "https://api.openai.invalid"}
    with running_shim(tmp_path, base, HTTPS_PROXY=proxy.url, VM_USAGE_CA_FILE=str(certificate)) as shim:
        answer = httpx.post(shim.url + PATH, json=CHAT)
    proxy.close()
    # The certificate is for 127.0.0.1, so the name is what fails, behind the tunnel.
    assert answer.json()["error"]["code"] == "upstream_tls"
    assert proxy.heads[0].startswith(b"CONNECT api.openai.invalid:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dTpw\r\n" in proxy.heads[0]


def test_http_goes_through_a_proxy_in_absolute_form(tmp_path: Path, upstream: FakeUpstream):
    proxy = Connect(upstream.port)
    with running_shim(tmp_path, {"OPENAI": "http://llm.invalid:8000"}, HTTP_PROXY=proxy.url) as shim:
        assert httpx.post(shim.url + PATH, json=CHAT).status_code == 200
    proxy.close()
    assert proxy.heads[0].startswith(b"POST http://llm.invalid:8000/v1/chat/completions HTTP/1.1\r\n")
    assert b"\r\nHost: llm.invalid:8000\r\n" in proxy.heads[0]


def test_a_name_that_leads_to_metadata_is_refused_when_it_is_connected_to(monkeypatch: pytest.MonkeyPatch):
    import asyncio

    from shim.dial import Dialer, Unreachable
    from shim.proxies import Proxies
    from shim.upstreams import parse

    async def dial() -> None:
        loop = asyncio.get_running_loop()

        async def resolved(host: str, port: int, **_: object) -> list[object]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", port))]

        monkeypatch.setattr(loop, "getaddrinfo", resolved)
        dialer = Dialer(loop, Proxies({}), None)
        with pytest.raises(Unreachable, match="metadata"):
            await dialer.connect(parse("x", "http://rebound.example"), asyncio.Protocol)

    asyncio.run(dial())
