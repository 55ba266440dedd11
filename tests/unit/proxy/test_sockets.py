"""Listening sockets, their options, TLS contexts, and local addresses."""

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path

import pytest
import trustme

from headgate.errors import ConfigurationError
from headgate.proxy.sockets import (
    is_local_address,
    listening_socket,
    receive_buffer_size,
    record_overhead,
    reset,
    server_context,
    set_inherited_options,
)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_both_families_can_listen_at_one_port() -> None:
    with listening_socket("::", 0) as six, listening_socket("0.0.0.0", six.getsockname()[1]) as four:
        assert [sock.getsockname()[0] for sock in (six, four)] == ["::", "0.0.0.0"]


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="told in another way here")
def test_accepted_sockets_inherit_what_tunnels_need() -> None:
    listener = listening_socket("127.0.0.1", 0)
    with listener, socket.socket() as client:
        set_inherited_options(listener)
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= receive_buffer_size()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.44.5.6", "::1"])
def test_an_address_of_this_machine_is_local(address: str) -> None:
    assert is_local_address(ip_address(address))


@pytest.mark.parametrize("address", ["192.0.2.77", "8.8.8.8", "2001:db8::77", "2606:4700::1111"])
def test_other_addresses_are_not_local(address: str) -> None:
    assert not is_local_address(ip_address(address))


def test_an_interface_address_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    class Routed(socket.socket):
        def connect(self, address: tuple[str, int]) -> None:
            self.asked = address[0]

        def getsockname(self) -> tuple[str, int]:
            return ("198.51.100.7" if self.family == socket.AF_INET else "2001:db8::7"), 40_000

    monkeypatch.setattr(socket, "socket", Routed)
    assert [is_local_address(ip_address(one)) for one in ("198.51.100.7", "198.51.100.8")] == [True, False]
    assert [is_local_address(ip_address(one)) for one in ("2001:db8::7", "2001:db8::8")] == [True, False]


def test_a_reset_of_a_closed_connection_closes_it() -> None:
    one, other = socket.socketpair()
    other.close()
    one.close()
    reset(one)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    issued = trustme.CA().issue_cert("localhost", key_type=trustme.KeyType.ECDSA)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(issued.cert_chain_pems[0].bytes())
    key.write_bytes(issued.private_key_pem.bytes())
    return str(cert), str(key)


def test_the_tls_context_is_strict(files: tuple[str, str]) -> None:
    context = server_context(*files)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert not context.options & ssl.OP_NO_TICKET
    assert context.verify_mode == ssl.CERT_NONE


def test_unusable_files_are_named(files: tuple[str, str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(ConfigurationError, match=r"missing\.pem.*give PEM files that match"):
        server_context(missing, files[1])
    other = tmp_path / "other.pem"
    other.write_bytes(trustme.CA().issue_cert("localhost").private_key_pem.bytes())
    with pytest.raises(ConfigurationError, match=r"other\.pem"):
        server_context(files[0], str(other))


def shaken(files: tuple[str, str], version: ssl.TLSVersion) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Return both ends of a connection inside TLS."""
    near, far = socket.socketpair()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    trusting.maximum_version = version
    client = trusting.wrap_socket(far, do_handshake_on_connect=False)
    with ThreadPoolExecutor() as other:
        shaking = other.submit(client.do_handshake)
        server = server_context(*files).wrap_socket(near, server_side=True)
        shaking.result()
    return server, client


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_overhead_of_a_record(files: tuple[str, str], version: ssl.TLSVersion) -> None:
    server, client = shaken(files, version)
    with server, client:
        client.send(b"x" * 100)
        record = socket.socket.recv(server, 1000, socket.MSG_PEEK)
        assert len(record) == 100 + record_overhead(server)


def test_without_tls_the_overhead_is_zero() -> None:
    with socket.socket() as sock:
        assert record_overhead(sock) == 0
