"""Accepting connections, and TLS handshakes, with sockets of this process; real clients are tested in tests/e2e."""

import asyncio
import contextlib
import errno
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from headgate.proxy import listener as module
from headgate.proxy.listener import Handshake, Listener
from headgate.proxy.poller import READ, WRITE
from tests.e2e.tunnels import client_context, listener_context
from tests.unit.proxy.stubs import StubServices

PEER = ("192.0.2.1", 5000)


class RecordingPoller:
    """Records the events that a descriptor waits for."""

    def __init__(self) -> None:
        self.events: list[int] = []

    def register(self, _descriptor: int, events: int, _pollable: object) -> None:
        self.events.append(events)

    def modify(self, descriptor: int, events: int) -> None:
        assert descriptor >= 0
        self.events.append(events)

    def drop(self, _descriptor: int) -> None:
        self.events.append(0)


class ListeningSocket(socket.socket):
    """A listening socket whose `accept` raises `errors` first."""

    errors: tuple[int, ...] = ()

    def accept(self) -> tuple[socket.socket, Any]:
        if self.errors:
            number, *rest = self.errors
            self.errors = tuple(rest)
            raise OSError(number, "injected")
        return super().accept()


def listening(*errors: int) -> tuple[Listener, RecordingPoller, list[tuple[str, int]]]:
    """Return a listener on loopback, its poller, and the addresses of the clients that it has accepted."""
    sock = ListeningSocket()
    sock.errors = errors
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    poller, peers = RecordingPoller(), []

    def accepted(client: socket.socket, peer: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        assert (client.gettimeout(), tls) == (0, None)
        peers.append(peer)
        client.close()

    return Listener(sock, poller=poller, tls=None, on_accept=accepted), poller, peers  # type: ignore[arg-type]  # a stub


async def test_waiting_connections_are_accepted_in_one_turn() -> None:
    listener, _, peers = listening(errno.ECONNABORTED)  # the first client has left already
    clients = [socket.create_connection(listener.address) for _ in range(3)]
    listener.ready(READ)
    assert peers == [client.getsockname() for client in clients]
    for client in clients:
        client.close()
    listener.close()


async def test_accepting_pauses_without_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    listener, poller, peers = listening(errno.EMFILE)
    with socket.create_connection(listener.address):
        listener.ready(READ)
        assert (poller.events, peers) == ([READ, 0], [])
        await asyncio.sleep(0.01)
        assert poller.events == [READ, 0, READ]
        listener.ready(READ)
        assert len(peers) == 1
    listener.close()


@pytest.mark.parametrize("is_paused", [False, True])
async def test_a_closed_listener_does_not_resume(is_paused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    listener, poller, _ = listening(errno.EMFILE)
    if is_paused:
        listener.ready(READ)
    listener.close()
    await asyncio.sleep(0.01)
    assert (poller.events, errors) == ([READ, 0, 0], [])


class Server(StubServices):
    """A server that records the handshakes."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # nothing is decided
        self.poller = self.loop_state.poller = RecordingPoller()  # type: ignore[assignment]  # a stub
        self.started: list[object] = []
        self.finished: list[ssl.SSLSocket] = []

    def handshake_started(self, connection: object) -> None:
        self.started.append(connection)

    def handshake_finished(self, sock: ssl.SSLSocket, _peer: object, *, surplus: bool) -> None:
        assert surplus
        self.finished.append(sock)


def handshake(context: ssl.SSLContext) -> tuple[Handshake, Server, socket.socket]:
    """Return the handshake of a new connection, its server and the client's socket."""
    near, far = socket.socketpair()
    near.settimeout(0)
    far.settimeout(0)
    server = Server()
    return Handshake(server, near, PEER, context, surplus=True), server, far


def test_a_handshake_is_finished_once(tmp_path: Path) -> None:
    shaking, server, far = handshake(listener_context(tmp_path))
    shaking.ready(READ)  # nothing has arrived
    assert server.started == []
    client = client_context().wrap_socket(far, server_hostname="localhost", do_handshake_on_connect=False)
    for _ in range(2):
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        shaking.ready(READ)
    assert len(server.finished) == 1
    assert (server.started, server.closed) == ([shaking], [shaking])
    shaking.abort()
    assert server.closed == [shaking]
    client.close()
    server.finished[0].close()


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff", b""])
def test_a_connection_without_a_handshake_is_closed(first: bytes, tmp_path: Path) -> None:
    shaking, server, far = handshake(listener_context(tmp_path))
    far.send(first)
    shaking.ready(READ)
    if not first:
        assert shaking.deadline == server.loop_state.now + server.timeouts.handshake
        shaking.expire()
    assert (server.closed, server.finished, server.poller.events) == ([shaking], [], [0])
    assert len(server.started) == first.startswith(b"\x16")  # nothing is allocated for TLS before
    far.close()


def test_a_handshake_that_cannot_write_waits_for_that(tmp_path: Path) -> None:
    shaking, server, far = handshake(listener_context(tmp_path))

    class Blocked(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            raise ssl.SSLWantWriteError

    plain, shaking._socket = shaking._socket, Blocked.__new__(Blocked)
    shaking.ready(READ)
    shaking.ready(WRITE)
    assert server.poller.events == [WRITE]
    shaking._socket = plain
    shaking.abort()
    far.close()
