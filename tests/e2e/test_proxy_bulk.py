"""A gigabyte in each direction at once through one tunnel of the real program, which is asked to end meanwhile."""

import asyncio
import hashlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest
import uvloop

from tests.e2e import programs

PIECE = os.urandom(1 << 20)
GIGABYTE = 1 << 30
HALF = GIGABYTE // len(PIECE) // 2
PATIENCE = 120.0  # seconds for all of it; only ever reached by a failing test


def pieces() -> Iterator[tuple[int, bytes]]:
    for number in range(GIGABYTE // len(PIECE)):
        yield number, number.to_bytes(8, "big") + PIECE[8:]


def poured(sock: socket.socket) -> str:
    """Send a gigabyte; returns its hash."""
    digest = hashlib.sha256()
    for _, piece in pieces():
        sock.sendall(piece)
        digest.update(piece)
    return digest.hexdigest()


def drunk(sock: socket.socket) -> str:
    """Receive a gigabyte; returns its hash."""
    digest, left = hashlib.sha256(), GIGABYTE
    buffer = memoryview(bytearray(1 << 18))
    while left:
        count = sock.recv_into(buffer[: min(left, len(buffer))])
        assert count, f"cut with {left} bytes to come"
        digest.update(buffer[:count])
        left -= count
    return digest.hexdigest()


async def opened(port: int, target: int, *, tls: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 20)
    writer.write(f"CONNECT 127.0.0.1:{target} HTTP/1.1\r\nHost: 127.0.0.1:{target}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return reader, writer


async def client(port: int, target: int, *, tls: bool, half: threading.Event) -> tuple[str, str]:
    """Send and receive a gigabyte at once; returns the hashes of what was sent and of what came."""
    reader, writer = await opened(port, target, tls=tls)

    async def pour() -> str:
        digest = hashlib.sha256()
        for number, piece in pieces():
            writer.write(piece)
            await writer.drain()
            digest.update(piece)
            if number == HALF:
                half.set()
        return digest.hexdigest()

    async def drink() -> str:
        digest, left = hashlib.sha256(), GIGABYTE
        while left:
            piece = await reader.read(min(left, 1 << 18))
            assert piece, f"cut with {left} bytes to come"
            digest.update(piece)
            left -= len(piece)
        return digest.hexdigest()

    async with asyncio.timeout(PATIENCE):
        sent, came = await asyncio.gather(pour(), drink())
    writer.close()
    with suppress(OSError):  # how it ends is the other tests' matter
        await writer.wait_closed()
    return sent, came


def accepted(listener: socket.socket) -> socket.socket:
    """Take the connection of the tunnel, behind the one that asks for advice and gets none."""
    while True:
        sock, _ = listener.accept()
        sock.settimeout(PATIENCE)
        first = sock.recv(1, socket.MSG_PEEK)
        if first not in {b"\x16", b""}:
            return sock
        sock.close()


@pytest.mark.parametrize("way", ["--plaintext", "--self-signed"])
def test_a_gigabyte_each_way_arrives_whole_while_the_proxy_ends(way, tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor(5) as pool,
        programs.headgate(
            tmp_path, "proxy", way, "--listen", "127.0.0.1:0", "--allow-address", "127.0.0.0/8", "--allow-port",
            listener.getsockname()[1], "--unreachable", "permit", "--drain", PATIENCE,
        ) as proxy,
    ):  # fmt: skip
        listener.settimeout(PATIENCE)
        taken: Future[socket.socket] = pool.submit(accepted, listener)
        port = int(proxy.wait_for(r"^ready \S+:(\d+)$")[1])
        half = threading.Event()
        near = pool.submit(uvloop.run, client(port, listener.getsockname()[1], tls=way == "--self-signed", half=half))
        with taken.result(PATIENCE) as far:
            down, up = pool.submit(poured, far), pool.submit(drunk, far)
            assert half.wait(PATIENCE)
            proxy.process.terminate()
            assert near.result(PATIENCE) == (up.result(PATIENCE), down.result(PATIENCE))
        assert proxy.process.wait(PATIENCE) == 0
        assert "were cut" not in proxy.said()
