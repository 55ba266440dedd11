"""The context of a TLS listener; handshakes are tested in tests/e2e."""

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme

from headgate.errors import ConfigurationError
from headgate.proxy.net.tls import record_overhead, server_context


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


def test_a_client_ca_requires_client_certificates(files: tuple[str, str], tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    assert server_context(*files, client_ca=str(tmp_path / "ca.pem")).verify_mode == ssl.CERT_REQUIRED


def test_unusable_files_are_named(files: tuple[str, str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(ConfigurationError, match=r"missing\.pem.*give PEM files that match"):
        server_context(missing, files[1])
    with pytest.raises(ConfigurationError, match=r"missing\.pem.*give a PEM file of certificates"):
        server_context(*files, client_ca=missing)
    other = tmp_path / "other.pem"
    other.write_bytes(trustme.CA().issue_cert("localhost").private_key_pem.bytes())
    with pytest.raises(ConfigurationError, match=r"other\.pem"):
        server_context(files[0], str(other))


def shaken(files: tuple[str, str], version: ssl.TLSVersion) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Give both ends of a connection inside TLS."""
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
