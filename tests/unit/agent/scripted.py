"""Servers on loopback that do what they are told to whoever connects, each connection in a thread of its own."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

PATIENCE = 30.0  # seconds; only ever reached by a failing test


class Server:
    """Where a server listens, and what its connections are to know."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.over = threading.Event()
        """Set when the test is over."""
        self.failures: list[BaseException] = []


@contextmanager
def serving(script: Callable[[socket.socket, Server], None], *, host: str = "127.0.0.1") -> Iterator[Server]:
    """Run `script` for each connection; what it raises, unless the connection broke, fails the test."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:
        server = Server(listening.getsockname()[1])
        threads: list[threading.Thread] = []

        def run(connection: socket.socket) -> None:
            connection.settimeout(PATIENCE)
            try:
                with connection, suppress(ConnectionError):
                    script(connection, server)
            except BaseException as failure:
                server.failures.append(failure)

        def accept() -> None:
            while True:
                connection, _ = listening.accept()
                if server.over.is_set():
                    connection.close()
                    return
                threads.append(threading.Thread(target=run, args=(connection,)))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield server
        finally:
            server.over.set()
            socket.create_connection((host, server.port)).close()
            for thread in (accepting, *threads):
                thread.join(PATIENCE)
        assert not server.failures, server.failures


def tickets(connection: socket.socket, tls: ssl.SSLContext, count: int, log: Path) -> bytes:
    """Shake hands over TLS 1.3, and give so many records, each a session ticket, to be sent next.

    They are what a server may send as often as it likes, and is never to be read on for.
    """
    tls.minimum_version, tls.num_tickets, tls.keylog_filename = ssl.TLSVersion.TLSv1_3, 0, str(log)
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = tls.wrap_bio(coming, going, server_side=True)
    while True:
        try:
            server.do_handshake()
            break
        except ssl.SSLWantReadError:
            connection.sendall(going.read())
            coming.write(connection.recv(1 << 16))
    connection.sendall(going.read())
    cipher = server.cipher()
    assert cipher is not None
    assert cipher[0] == "TLS_AES_256_GCM_SHA384"
    (secret,) = [line.split()[2] for line in log.read_text().splitlines() if line.startswith("SERVER_TRAFFIC_SECRET_0")]
    seal = AESGCM(_derived(bytes.fromhex(secret), b"key", 32))
    start = int.from_bytes(_derived(bytes.fromhex(secret), b"iv", 12), "big")
    # RFC 8446, 4.6.1: lifetime, age_add, an empty nonce, a ticket of one byte, no extensions.
    ticket = struct.pack(">IIBHcH", 100, 0, 0, 1, b"t", 0)
    message = b"\x04" + len(ticket).to_bytes(3, "big") + ticket + b"\x16"
    head = struct.pack(">BHH", 23, 0x303, len(message) + 16)
    return b"".join(head + seal.encrypt((start ^ number).to_bytes(12, "big"), message, head) for number in range(count))


def _derived(secret: bytes, label: bytes, length: int) -> bytes:
    """RFC 8446, 7.1: HKDF-Expand-Label without a context."""
    label = b"tls13 " + label
    return HKDFExpand(SHA384(), length, struct.pack(">HB", length, len(label)) + label + b"\0").derive(secret)
