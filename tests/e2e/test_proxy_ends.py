"""How a tunnel ends: one direction, both, by a limit, by a reset, or with the proxy."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from headgate.proxy.http1 import Http1Connection
from headgate.proxy.server import TunnelServer
from tests.e2e.tunnels import (
    Encryption,
    StubDecision,
    Target,
    client_at,
    client_context,
    listener_context,
    open_tunnel,
    proxy_running,
    target_running,
    until,
)

pytestmark = pytest.mark.usefixtures("run")


async def connections(server: TunnelServer) -> list[Http1Connection]:
    """Return the connections that are not tunnels, when there are any."""
    await until(lambda: server.connections)
    return list(server.connections)


async def test_a_client_may_close_its_sending_side_with_its_head() -> None:
    async def answer(target: Target) -> None:
        target.writer.write(await target.reader.read())

    decision = StubDecision()
    decision.gate = asyncio.Event()
    async with target_running(answer) as port, proxy_running(decision) as server, client_at(server) as client:
        await client.send(b"CONNECT a:%d HTTP/1.1\r\n\r\nthat is all" % port)
        client.writer.write_eof()
        [connection] = await connections(server)
        await until(lambda: connection._client_ended)
        decision.gate.set()
        assert (await client.rest()).endswith(b"\r\n\r\nthat is all")


async def test_inside_tls_a_client_that_closes_its_sending_side_receives_the_answer(tmp_path: Path) -> None:
    async def answer(target: Target) -> None:
        target.writer.write(b"you said " + await target.reader.read())

    def talk(address: tuple[str, int], port: int) -> bytes:
        with InTls(address) as client:
            client.send(b"CONNECT a:%d HTTP/1.1\r\n\r\n" % port)
            assert client.receive().startswith(b"HTTP/1.1 200 ")
            client.send(b"that is all")
            client.shutdown_write()
            return client.rest()

    decision = StubDecision()
    async with target_running(answer) as port, proxy_running(decision, tls=listener_context(tmp_path)) as server:
        assert await asyncio.to_thread(talk, server.addresses[0], port) == b"you said that is all"
        await until(lambda: decision.closed)
    assert decision.closed == [(20, 11, "ended")]


async def test_inside_tls_a_target_that_closes_its_sending_side_receives_further_data(tmp_path: Path) -> None:
    is_told = threading.Event()

    def talk(address: tuple[str, int], port: int) -> bytes:
        with InTls(address) as client:
            client.send(b"CONNECT a:%d HTTP/1.1\r\n\r\n" % port)
            assert client.receive().startswith(b"HTTP/1.1 200 ")
            answer = client.rest()
            is_told.wait()
            for _ in range(100):
                client.send(b"x" * 10_000)
            client.shutdown_write()
            return answer

    heard = asyncio.get_running_loop().create_future()

    async def first(target: Target) -> None:
        target.writer.write(b"that is all")
        target.writer.write_eof()
        heard.set_result(await target.reader.read())

    decision = StubDecision()
    async with target_running(first) as port, proxy_running(decision, tls=listener_context(tmp_path)) as server:
        talking = asyncio.create_task(asyncio.to_thread(talk, server.addresses[0], port))
        await until(lambda: any(tunnel.client_end.finished for tunnel in server.tunnels.open))
        is_told.set()
        assert await talking == b"that is all"
        assert len(await heard) == 1_000_000
        await until(lambda: decision.closed)
    assert decision.closed == [(11, 1_000_000, "ended")]


class InTls:
    """A client that can say its end inside TLS and go on reading, which neither event loop can."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=5)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client_context().wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._do(self._tls.do_handshake)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _do(self, what: Callable[[], object], *, waits: bool = True) -> object:
        while True:
            try:
                result = what()
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())
                if not waits:
                    return None
                piece = self._socket.recv(65536)
                if piece:
                    self._incoming.write(piece)
                else:
                    self._incoming.write_eof()
            else:
                self._socket.sendall(self._outgoing.read())
                return result

    def send(self, raw: bytes) -> None:
        """Send everything."""
        self._do(lambda: self._tls.write(raw))

    def receive(self) -> bytes:
        """Receive something, or b"" at the end."""
        try:
            piece = self._do(lambda: self._tls.read(65536))
        except ssl.SSLZeroReturnError:
            return b""
        assert isinstance(piece, bytes)
        return piece

    def shutdown_write(self) -> None:
        """Send close_notify, and do not wait for the other's."""
        self._do(self._tls.unwrap, waits=False)

    def rest(self) -> bytes:
        """Receive to the end that is inside TLS."""
        whole = b""
        while piece := self.receive():
            whole += piece
        return whole


async def test_a_reset_of_the_client_resets_the_target(encryption: Encryption) -> None:
    lost = asyncio.Event()

    async def pour(target: Target) -> None:
        try:
            while True:
                target.writer.write(b"x" * 100_000)
                await target.writer.drain()
        except ConnectionError:
            lost.set()
            raise

    decision = StubDecision()
    async with target_running(pour) as port, proxy_running(decision, tls=encryption.listener) as server:
        async with client_at(server, tls=encryption.client) as client:
            await open_tunnel(client, port)
            await client.read(1_000_000)
            client.reset()
        async with asyncio.timeout(5):
            await lost.wait()
        await until(lambda: decision.closed)
        assert server.loop_state.buffered == 0
    [(received, sent, why)] = decision.closed
    assert (sent, why) == (0, "client_gone")
    assert received >= 1_000_000
