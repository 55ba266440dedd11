"""Real sockets in one process, over which what is sent is there at once."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import zmq

names = count()


@pytest.fixture
def context() -> "Iterator[zmq.Context[Any]]":
    """Return a ZeroMQ context of the test's own, whose sockets live until the end and are closed then."""
    kept: list[Any] = []

    class Context(zmq.Context[Any]):
        def socket(self, *arguments: Any, **options: Any) -> Any:
            kept.append(super().socket(*arguments, **options))
            return kept[-1]

    with Context() as context:
        yield context
        context.destroy(linger=0)


@pytest.fixture
def pair(context: "zmq.Context[Any]") -> "Callable[[int, int], tuple[zmq.Socket[Any], zmq.Socket[Any]]]":
    """Return a function that gives two connected sockets: `pair(zmq.PUSH, zmq.PULL)`."""

    def connect(here: int, there: int) -> tuple[zmq.Socket[Any], zmq.Socket[Any]]:
        address = f"inproc://pair-{next(names)}"
        one, other = context.socket(here), context.socket(there)
        for socket in (one, other):
            socket.set_hwm(0)
        other.bind(address)
        one.connect(address)
        return one, other

    return connect
