"""Connecting to listeners that answer, refuse or are silent."""

import asyncio
import errno
import os
import select
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from headgate.proxy import dial as module
from headgate.proxy.dial import MAX_ATTEMPTS, Connector, dial, interleaved
from headgate.proxy.poller import WRITE, EpollPoller, Poller
from headgate.proxy.refusal import Refusal
from headgate.proxy.sockets import Endpoint, receive_buffer_size

LONG = 60.0
"""Seconds that no test waits for."""


def endpoint(sock: socket.socket) -> Endpoint:
    host, port = sock.getsockname()[:2]
    return Endpoint(ip_address(host), port)


class LocalEndpoints:
    """Endpoints on loopback, of each kind; the listeners are closed at the end."""

    def __init__(self) -> None:
        self.open = ExitStack()
        self.listeners: list[socket.socket] = []

    def answering(self, host: str = "127.0.0.1") -> Endpoint:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = self.open.enter_context(socket.create_server((host, 0), family=family))
        self.listeners.append(listener)
        return endpoint(listener)

    def refusing(self) -> Endpoint:
        """Return an endpoint whose port is bound, but not listening."""
        bound = self.open.enter_context(socket.socket())
        bound.bind(("127.0.0.1", 0))
        return endpoint(bound)

    def silent(self) -> Endpoint:
        """Return a listener whose queue is full: the system answers no further connection."""
        listener = self.open.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(16):
            waiting = self.open.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
            if not select.select([], [waiting], [], 0.05)[1]:
                return endpoint(listener)
        pytest.fail("the queue of a listener does not fill")


@pytest.fixture
def local() -> Iterator[LocalEndpoints]:
    made = LocalEndpoints()
    with made.open:
        yield made


def sockets(descriptor: int | str = "*") -> set[str]:
    """Return the open sockets of this process, by their numbers in the system."""
    found = set()
    for link in Path("/proc/self/fd").glob(str(descriptor)):
        with suppress(FileNotFoundError):  # the one the list was read from
            found.add(str(link.readlink()))
    return {name for name in found if name.startswith("socket:")}


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Return what runs a coroutine and checks that it left no socket open except its result."""

    async def checked(coroutine: Any) -> Any:
        await asyncio.sleep(0)
        before = sockets()
        result = await coroutine
        for _ in range(5):
            await asyncio.sleep(0)
        if isinstance(result, socket.socket):
            before |= sockets(result.fileno())
        assert sockets() <= before
        return result

    with asyncio.Runner(loop_factory=request.param) as runner:
        yield lambda coroutine: runner.run(checked(coroutine))


async def refusal(coroutine: Any) -> Refusal:
    with pytest.raises(Refusal) as raised:
        await coroutine
    return raised.value


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_socket_is_connected_and_non_blocking(run: Any, local: LocalEndpoints, host: str) -> None:
    target = local.answering(host)
    with run(dial([target])) as sock:
        assert endpoint_of_peer(sock) == target
        assert sock.gettimeout() == 0
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not sock.get_inheritable()
        accepted, _ = local.listeners[0].accept()
        with accepted:
            sock.send(b"through")
            assert accepted.recv(7) == b"through"


def endpoint_of_peer(sock: socket.socket) -> Endpoint:
    host, port = sock.getpeername()[:2]
    return Endpoint(ip_address(host), port)


@pytest.mark.parametrize("many", [1, 3])
def test_a_refused_connection_is_dial_refused(run: Any, local: LocalEndpoints, many: int) -> None:
    order = [local.refusing() for _ in range(many)]
    said = run(refusal(dial(order, delay=LONG)))
    assert said.reason == "dial_refused"
    assert said.rule.error == "connection_refused"
    assert str(order[0]) in said.detail
    assert os.strerror(errno.ECONNREFUSED) in said.detail


@pytest.mark.parametrize("many", [1, 2])
def test_a_silent_address_is_dial_timeout(run: Any, local: LocalEndpoints, many: int) -> None:
    order = [local.silent() for _ in range(many)]
    said = run(refusal(dial(order, seconds=0.05, delay=0.01)))
    assert said.reason == "dial_timeout"
    assert said.rule.error == "connection_timeout"


def test_the_next_address_is_tried_after_the_delay(run: Any, local: LocalEndpoints) -> None:
    good = local.answering()
    with run(dial([local.silent(), good], seconds=LONG, delay=0.01)) as sock:
        assert endpoint_of_peer(sock) == good


def test_the_next_address_is_tried_at_once_after_a_refusal(run: Any, local: LocalEndpoints) -> None:
    good = local.answering()
    with run(dial([local.refusing(), local.refusing(), good], seconds=LONG, delay=LONG)) as sock:
        assert endpoint_of_peer(sock) == good


def test_a_refusal_does_not_end_the_wait_for_another_address(run: Any, local: LocalEndpoints) -> None:
    said = run(refusal(dial([local.silent(), local.refusing()], seconds=0.1, delay=0.01)))
    assert said.reason == "dial_timeout"


def test_the_second_of_two_connections_is_closed(
    run: Any, local: LocalEndpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[socket.socket] = []

    async def both(*_: object) -> socket.socket:
        sock = socket.socket()
        made.append(sock)
        if len(made) == 2:
            answered.set()
        await answered.wait()
        return sock

    answered = asyncio.Event()
    monkeypatch.setattr(module, "_connect", both)
    with run(dial([local.refusing(), local.refusing()], seconds=LONG, delay=0)) as sock:
        assert sorted(each.fileno() != -1 for each in made) == [False, True]
        assert sock in made


def test_attempts_are_limited(run: Any, local: LocalEndpoints) -> None:
    order = [local.refusing() for _ in range(MAX_ATTEMPTS)] + [local.answering()]
    assert run(refusal(dial(order, delay=LONG))).reason == "dial_refused"


@pytest.mark.parametrize("many", [1, 3])
def test_a_cancelled_attempt_leaves_nothing_open(run: Any, local: LocalEndpoints, many: int) -> None:
    order = [local.silent() for _ in range(many)]

    async def leave() -> None:
        dialing = asyncio.create_task(dial(order, seconds=LONG, delay=0))
        await asyncio.sleep(0.01)
        dialing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialing

    run(leave())


def test_an_unroutable_address_has_its_own_error_type(run: Any) -> None:
    # TCP knows no multicast: Linux has no route for it, and sends nothing.
    said = run(refusal(dial([Endpoint(ip_address("224.0.0.1"), 443)])))
    assert said.reason == "dial_refused"
    assert said.rule.error == "destination_ip_unroutable"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
def test_running_out_of_sockets_is_a_local_failure(
    run: Any, local: LocalEndpoints, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    order = [local.refusing(), local.refusing()]
    monkeypatch.setattr(module, "socket", SimpleNamespace(**{**vars(socket), "socket": exhausted}))
    assert run(refusal(dial(order, delay=LONG))).reason == "connections"
    assert run(refusal(dial(order[:1], delay=LONG))).reason == "connections"


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ("6a", "6a"),
        ("6a 6b 6c 4a 4b", "6a 4a 6b 4b 6c"),
        ("4a 6a 6b 6c", "4a 6a 6b 6c"),
        ("4a 4b 4c 6a", "4a 6a 4b 4c"),
        ("6a 4a 4b 6b", "6a 4a 6b 4b"),
        ("4a 4b", "4a 4b"),
    ],
)
def test_families_alternate(given: str, order: str) -> None:
    def endpoints(text: str) -> list[Endpoint]:
        hosts = {"4": "192.0.2.{}", "6": "2001:db8::{}"}
        return [Endpoint(ip_address(hosts[each[0]].format("abc".index(each[1]))), 443) for each in text.split()]

    assert [*interleaved(endpoints(given))] == endpoints(order)


NOW = 1000.0


class Counting:
    """A poller that records the descriptors that it watches."""

    def __init__(self, poll: Poller) -> None:
        self._poll = poll
        self.watched: set[int] = set()

    def register(self, descriptor: int, wanted: int, ready: object) -> None:
        self.watched.add(descriptor)
        self._poll.register(descriptor, wanted, ready)

    def unregister(self, descriptor: int) -> None:
        self.watched.discard(descriptor)
        self._poll.unregister(descriptor)


def run_check(check: Callable[[Connector, Counting], Awaitable[None]], kind: type[Poller] = Poller) -> None:
    """Run a check, after which no descriptor is watched."""

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


@pytest.mark.parametrize("kind", [Poller, EpollPoller])
def test_connecting_leaves_the_socket_to_its_owner(kind: type[Poller]) -> None:
    async def check(connector: Connector, poll: Counting) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener, new_socket() as sock:
            await connector.connect(sock, listener.getsockname(), 10)
            assert sock.getpeername() == listener.getsockname()
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= receive_buffer_size()
            poll.register(sock.fileno(), WRITE, object())
            poll.unregister(sock.fileno())

    run_check(check, kind)


def test_connecting_times_out(local: LocalEndpoints) -> None:
    silent = local.silent()

    async def check(connector: Connector, poll: Counting) -> None:
        with new_socket() as sock:
            connecting = asyncio.ensure_future(connector.connect(sock, (silent.host, silent.port), 10))
            await asyncio.sleep(0.01)
            assert poll.watched
            connector.expire(NOW + 9)
            await asyncio.sleep(0)
            assert not connecting.done()
            connector.expire(NOW + 10)
            connector.expire(NOW + 11)
            with pytest.raises(TimeoutError) as raised:
                await connecting
            assert raised.value.errno is None

    run_check(check)
