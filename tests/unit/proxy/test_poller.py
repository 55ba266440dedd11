"""Both pollers."""

import asyncio
import contextlib
import select
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest

from headgate.proxy.poller import READ, WRITE, EpollPoller, Poller

KINDS = [
    Poller,
    pytest.param(EpollPoller, marks=pytest.mark.skipif(not hasattr(select, "epoll"), reason="no epoll")),
]
pytestmark = pytest.mark.parametrize("kind", KINDS)


class Told:
    """Remembers what it was told, and does something then."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.events: list[int] = []
        self._then = then

    def ready(self, events: int) -> None:
        self.events.append(events)
        self._then()


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        one.settimeout(0)
        other.settimeout(0)
        yield one, other


def trying(kind: type[Poller], check: Callable[[Poller], Awaitable[None]]) -> None:
    """Run a check with a poll of this kind, and let no error of the loop pass."""
    errors = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        poll = kind()
        try:
            await check(poll)
        finally:
            poll.close()
            poll.close()

    asyncio.run(run())
    assert errors == []


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0.001)


def test_requested_events_are_reported(kind: type[Poller]) -> None:
    async def check(poll: Poller) -> None:
        with pair() as (one, other):
            told = Told(lambda: one.recv(10) if told.events[-1] & READ else None)
            poll.register(one.fileno(), READ, told)
            await turns()
            assert told.events == []
            other.send(b"x")
            await turns()
            assert told.events == [READ]
            poll.modify(one.fileno(), READ | WRITE)
            await turns()
            assert set(told.events[1:]) == {WRITE}
            poll.modify(one.fileno(), 0)
            told.events.clear()
            other.send(b"x")
            await turns()
            assert told.events == []
            poll.modify(one.fileno(), READ)
            await turns()
            assert told.events == [READ]
            poll.drop(one.fileno())

    trying(kind, check)


def test_an_event_is_reported_until_it_is_handled(kind: type[Poller]) -> None:
    async def check(poll: Poller) -> None:
        with pair() as (one, other):
            told = Told()
            poll.register(one.fileno(), READ, told)
            other.send(b"x")
            await turns()
            assert len(told.events) > 1
            poll.unregister(one.fileno())
            told.events.clear()
            await turns()
            assert told.events == []
            poll.unregister(one.fileno())

    trying(kind, check)


def test_hand_over_changes_the_pollable(kind: type[Poller]) -> None:
    async def check(poll: Poller) -> None:
        with pair() as (one, other):
            first, second = Told(), Told(lambda: one.recv(10))
            poll.register(one.fileno(), READ, first)
            poll.hand_over(one.fileno(), second)
            other.send(b"x")
            await turns()
            assert (first.events, second.events) == ([], [READ])
            poll.drop(one.fileno())

    trying(kind, check)


def test_an_end_is_reported_as_read(kind: type[Poller]) -> None:
    async def check(poll: Poller) -> None:
        with pair() as (one, other):
            told = Told(lambda: poll.unregister(one.fileno()))
            poll.register(one.fileno(), READ, told)
            other.close()
            await turns()
            assert [events & (READ | WRITE) for events in told.events] == [READ]

    trying(kind, check)


def test_a_pollable_may_drop_another_that_is_ready(kind: type[Poller]) -> None:
    async def check(poll: Poller) -> None:
        with pair() as (one, other), pair() as (third, fourth):
            told = [Told(), Told()]

            def drop() -> None:
                for sock in (one, third):
                    if sock.fileno() >= 0:
                        poll.drop(sock.fileno())
                        sock.close()

            for sock, each in zip((one, third), told, strict=True):
                each._then = drop
                poll.register(sock.fileno(), READ, each)
            other.send(b"x")
            fourth.send(b"x")
            await turns()
            assert sorted(len(each.events) for each in told) == [0, 1]

    trying(kind, check)


async def test_an_exception_is_reported_and_others_are_served(kind: type[Poller]) -> None:
    loop = asyncio.get_running_loop()
    reported: list[dict] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    poll = kind()
    with pair() as (one, other), pair() as (third, fourth):

        def fail() -> None:
            poll.unregister(one.fileno())
            raise ZeroDivisionError

        told = Told(lambda: third.recv(1))
        poll.register(one.fileno(), READ, Told(fail))
        poll.register(third.fileno(), READ, told)
        other.send(b"x")
        fourth.send(b"x")
        await turns()
        assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]
        assert told.events == [READ]
        poll.close()
