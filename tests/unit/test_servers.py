"""The proxies that benchmarks compare with: bytes go to a port of loopback and back."""

import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from tests import servers

PATIENCE = 10.0  # seconds; only ever reached by a failing test
BODY = b"there and back again, " * 5000


class Echo(socketserver.BaseRequestHandler):
    """Sends back what comes."""

    def handle(self) -> None:
        while piece := self.request.recv(65536):
            self.request.sendall(piece)


@pytest.fixture
def echo() -> Iterator[int]:
    """Port of a server that sends back what comes."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        yield connection


def tunnelled(connection: socket.socket, target: int) -> bytes:
    """Open a tunnel, send the body through it, and return what came back of it."""
    connection.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (target, target))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, head
        head += byte
    assert head.split()[1] == b"200", head
    connection.sendall(BODY)
    returned = b""
    while len(returned) < len(BODY) and (piece := connection.recv(65536)):
        returned += piece
    return returned


@pytest.mark.needs("nghttpx", "squid")
@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
def test_nghttpx_terminates_tls_in_front_of_another_proxy(tmp_path: Path, echo: int, protocol: str) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    issued.private_key_pem.write_to_path(str(key))
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    trust.set_alpn_protocols([protocol])
    with (
        servers.squid(tmp_path) as behind,
        servers.nghttpx(tmp_path, backend=behind.port, key=key, certificate=certificate) as proxy,
        connected(proxy.port) as bare,
        trust.wrap_socket(bare, server_hostname="localhost") as connection,
    ):
        assert connection.selected_alpn_protocol() == protocol
        assert protocol == "h2" or tunnelled(connection, echo) == BODY
