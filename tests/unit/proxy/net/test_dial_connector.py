"""Connecting sockets with a poller."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Awaitable, Callable

import pytest

from headgate.proxy.net.dial import Connector
from headgate.proxy.net.poller import WRITE, EpollPoller, LoopPoller, Poller
from headgate.proxy.net.sockets import receive_buffer_size

NOW = 1000.0


class Counting:
    """A poll that counts what it watches."""

    def __init__(self, poll: Poller) -> None:
        self._poll = poll
        self.watched: set[int] = set()

    def register(self, descriptor: int, wanted: int, ready: object) -> None:
        self.watched.add(descriptor)
        self._poll.register(descriptor, wanted, ready)

    def unregister(self, descriptor: int) -> None:
        self.watched.discard(descriptor)
        self._poll.unregister(descriptor)


def trying(check: Callable[[Connector, Counting], Awaitable[None]], kind: type[Poller] = LoopPoller) -> None:
    """Run a check, after which nothing is watched any more."""

    async def run() -> None:
        poll = kind()
        counting = Counting(poll)
        connector = Connector(counting, now=NOW)
        await check(connector, counting)
        assert not counting.watched
        assert not connector._attempts
        poll.close()

    asyncio.run(run())


def new_socket() -> socket.socket:
    sock = socket.socket()
    sock.settimeout(0)
    return sock


@contextlib.contextmanager
def silent():
    """A listener whose queue is full: the system drops whatever asks to be let in."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            sockets.enter_context(new_socket()).connect_ex(listener.getsockname())
        yield listener.getsockname()


@pytest.mark.parametrize("kind", [LoopPoller, EpollPoller])
def test_connecting_leaves_the_socket_to_its_owner(kind: type[Poller]) -> None:
    async def check(connector: Connector, poll: Counting) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener, new_socket() as sock:
            await connector.connect(sock, listener.getsockname(), 10)
            assert sock.getpeername() == listener.getsockname()
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= receive_buffer_size()
            poll.register(sock.fileno(), WRITE, object())
            poll.unregister(sock.fileno())

    trying(check, kind)


def test_a_refused_connection_is_an_error() -> None:
    async def check(connector: Connector, _poll: Counting) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = listener.getsockname()
        with new_socket() as sock, pytest.raises(ConnectionRefusedError, match=os.strerror(errno.ECONNREFUSED)):
            await connector.connect(sock, address, 10)

    trying(check)


def test_connecting_times_out() -> None:
    async def check(connector: Connector, poll: Counting) -> None:
        with silent() as address, new_socket() as sock:
            connecting = asyncio.ensure_future(connector.connect(sock, address, 10))
            await asyncio.sleep(0.01)
            if connecting.done():
                pytest.skip("this system queues whatever comes")
            assert poll.watched
            connector.expire(NOW + 9)
            await asyncio.sleep(0)
            assert not connecting.done()
            connector.expire(NOW + 10)
            connector.expire(NOW + 11)
            with pytest.raises(TimeoutError) as raised:
                await connecting
            assert raised.value.errno is None

    trying(check)


def test_connecting_can_be_cancelled() -> None:
    async def check(connector: Connector, _poll: Counting) -> None:
        with silent() as address, new_socket() as sock:
            connecting = asyncio.ensure_future(connector.connect(sock, address, 10))
            await asyncio.sleep(0.01)
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            connector.expire(NOW + 100)
            assert sock.fileno() >= 0

    trying(check)
