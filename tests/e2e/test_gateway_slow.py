"""Clients that read slowly and origins that pause: both are served for as long as bytes move."""

import asyncio
import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from headgate.config.tree import Timeouts
from headgate.origin.gateway import Gateway, ListenerSettings, TlsKeys
from tests.e2e.gateway_setup import PATIENCE, served, tls_keys, until

pytestmark = pytest.mark.usefixtures("run")

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
BODY = bytes(range(250)) * 800
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
HASTE = Timeouts(idle=0.5, response=0.5, response_body=0.5)  # half the time that `slow_client` takes

Contexts = tuple[TlsKeys | None, ssl.SSLContext | None]


@pytest.fixture(params=["plain", "tls"])
def contexts(request: pytest.FixtureRequest, tmp_path: Path) -> Contexts:
    """The listener's keys and the client's context."""
    if request.param == "plain":
        return None, None
    authority = trustme.CA()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return tls_keys(tmp_path, authority, "a.example"), trusting


async def small_listener(gateway: Gateway, tls: TlsKeys | None) -> int:
    """Have the gateway listen with small buffers in the system, so that its own are what a slow client leaves full."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
    await gateway.start(sock=listening, listener=ListenerSettings(tls))
    port: int = listening.getsockname()[1]
    return port


def slow_client(port: int, tls: ssl.SSLContext | None, request: bytes, stay: threading.Event | None = None) -> bytes:
    """Send a request and read the response at about 200 kB/s; return what came.

    With `stay` only the beginning is read, and the connection stays open until that is set.
    """
    found, pieces = b"", 5 if stay else 1000
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        plain.settimeout(PATIENCE)
        plain.connect(("127.0.0.1", port))
        sock = tls.wrap_socket(plain, server_hostname="a.example") if tls else plain
        sock.sendall(request)
        with suppress(ConnectionError, ssl.SSLError):
            for _ in range(pieces):
                found += (piece := sock.recv(4096))
                if not piece or found.endswith(b"\r\n\r\n" + BODY):
                    break
                time.sleep(0.02)
        if stay:
            stay.wait(2 * PATIENCE)
        if tls:
            sock.close()
    return found


async def answer_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a head, and read on until the gateway leaves."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(ANSWER)
    await reader.read()


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n", b"Content-Length: 99999\r\n"])
async def test_a_slow_client_gets_all_of_a_response(more: bytes, contexts: Contexts) -> None:
    """With the last of `more`, the origin answers before the request's body has come, and the connection ends."""
    async with served(answer_at_once, timeouts=HASTE, buffer_requests=False) as (_, gateway):
        port = await small_listener(gateway, contexts[0])
        found = await asyncio.to_thread(slow_client, port, contexts[1], GET[:-2] + more + b"\r\n")
        assert found.endswith(b"\r\n\r\n" + BODY)


async def test_a_client_that_stops_reading_is_closed(contexts: Contexts) -> None:
    timeouts = Timeouts(idle=0.3, response=0.3, response_body=0)
    async with served(answer_at_once, timeouts=timeouts) as (_, gateway):
        port = await small_listener(gateway, contexts[0])
        stay = threading.Event()
        client = asyncio.create_task(asyncio.to_thread(slow_client, port, contexts[1], GET, stay))
        try:
            await until(lambda: gateway.connections)
            await until(lambda: not gateway.connections)
        finally:
            stay.set()
            await client
