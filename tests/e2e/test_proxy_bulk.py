"""Bulk data in both directions of a tunnel, also during a drain: every byte arrives, in order."""

import asyncio
import hashlib
import random
import select
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import proxy_setup
from tests.e2e.http2_client import Http2Client, Tunnel, http2_at
from tests.e2e.programs import PATIENCE
from tests.e2e.proxy_setup import Proxy

PIECE = 1 << 18
MUCH, LESS = 1_000_000_000, 300_000_000
"""Bytes in each direction; in HTTP/2 less, since the client of these tests takes its time for each frame."""
UP, DOWN = 1, 2
PATIENT = 120
"""Seconds for what takes ten; only ever reached by a failing test."""
WAITS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def pieces(seed: int, total: int) -> Iterator[memoryview]:
    """Return so many bytes without repeated pieces, whose beginning is not that of a TLS record."""
    block = b"\0" + random.Random(seed).randbytes((1 << 21) - 1)
    view = memoryview(block + block[:PIECE])
    for number, start in enumerate(range(0, total, PIECE)):
        offset = number * 4099 % len(block)
        yield view[offset : offset + min(PIECE, total - start)]


def digest(seed: int, total: int) -> str:
    """Return the hash of `pieces`."""
    whole = hashlib.sha256()
    for piece in pieces(seed, total):
        whole.update(piece)
    return whole.hexdigest()


def exchange(sock: socket.socket, seed: int, total: int, midway: Callable[[], object] = lambda: None) -> str:
    """Send that much while as much is received, whose hash is given; `midway` is called after a quarter of it."""
    sock.settimeout(0)
    going, received, count, buffer = pieces(seed, total), hashlib.sha256(), 0, memoryview(bytearray(PIECE))
    piece = next(going, None)
    while piece is not None or count < total:
        sent = got = 0
        try:
            sent = sock.send(piece) if piece is not None else 0
            piece = piece[sent:] if piece is not None and sent < len(piece) else next(going, None)
        except WAITS:
            pass
        try:
            got = sock.recv_into(buffer)
            assert got, f"it ended after {count}"
        except WAITS:
            pass
        received.update(buffer[:got])
        if count < total // 4 <= count + got:
            midway()
        count += got
        if not sent and not got:
            assert any(select.select([sock], [] if piece is None else [sock], [], PATIENCE)), f"stuck after {count}"
    assert count == total
    return received.hexdigest()


class Origin(proxy_setup.Origin):
    """An origin that sends much data to connections without TLS and receives as much; `heard` has the hash of that."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.heard: list[str] = []
        self.is_through = threading.Event()
        super().__init__()

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
        if sock.recv(1, socket.MSG_PEEK) == b"\x16":
            super()._serve(sock)
            return
        with sock:
            self.heard.append(exchange(sock, DOWN, self.total))
            self.is_through.set()


def ending(proxy: Proxy) -> Callable[[], object]:
    """Return what sends SIGTERM to a proxy."""
    return partial(proxy.program.process.send_signal, signal.SIGTERM)


def ends_well(proxy: Proxy, origin: Origin) -> bool:
    """Check that the proxy stops by itself, has counted every byte, and the origin has received all; return True."""
    assert proxy.program.process.wait(PATIENT) == 0
    assert origin.is_through.wait(PATIENCE)
    assert origin.heard == [digest(UP, origin.total)]
    assert "cut" not in proxy.program.said()
    (line,) = proxy.log()
    assert {"accepted": 1, "received": origin.total, "sent": origin.total, "open": 0}.items() <= line.items()
    return True


@pytest.mark.deep
@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_a_gigabyte_in_each_direction_survives_a_drain(tls: bool, tmp_path: Path) -> None:
    origin = Origin(MUCH)
    with proxy_setup.proxy(tmp_path, "--drain", PATIENT, origin=origin, tls=tls, admin=False) as proxy:
        with proxy.client() as client:
            assert client.ask(f"www.example.org:{origin.port}").status == 200
            assert exchange(client.sock, UP, MUCH, ending(proxy)) == digest(DOWN, MUCH)
            with pytest.raises(ConnectionRefusedError):
                proxy.client()
        assert ends_well(proxy, origin)
    origin.close()


async def exchange_in_h2(client: Http2Client, tunnel: Tunnel, total: int, midway: Callable[[], object]) -> str:
    """Do as `exchange` does, in a stream."""

    async def send() -> None:
        for piece in pieces(UP, total):
            await client.send_data(tunnel, bytes(piece))

    sending, received = asyncio.create_task(send()), hashlib.sha256()
    for start in range(0, total, PIECE):
        received.update(await client.receive(tunnel, min(PIECE, total - start)))
        if start <= total // 4 < start + PIECE:
            midway()
    await sending
    return received.hexdigest()


@pytest.mark.deep
def test_bulk_in_both_directions_of_a_stream_survives_a_drain(tmp_path: Path) -> None:
    origin = Origin(LESS)

    async def talk(proxy: Proxy) -> None:
        async with http2_at(("127.0.0.1", proxy.port), proxy.tls) as client:
            tunnel = await client.open(f"www.example.org:{origin.port}")
            assert await exchange_in_h2(client, tunnel, LESS, ending(proxy)) == digest(DOWN, LESS)
            assert client.goaways[0].error_code == 0
            client.end(tunnel)
            await client.ended(tunnel)

    with proxy_setup.proxy(tmp_path, "--drain", PATIENT, origin=origin, admin=False) as proxy:
        asyncio.run(talk(proxy))
        assert ends_well(proxy, origin)
    origin.close()
