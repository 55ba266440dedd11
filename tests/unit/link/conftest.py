"""Real sockets in one process: a message is there as soon as it is sent."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import zmq

names = count()


@pytest.fixture
def context() -> "Iterator[zmq.Context[Any]]":
    """Return a ZeroMQ context of the test's own, which closes its sockets at the end of the test."""
    context: zmq.Context[Any] = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def pair(context: "zmq.Context[Any]") -> "Callable[[int, int], tuple[zmq.Socket[Any], zmq.Socket[Any]]]":
    """Return a function that makes two connected sockets: `pair(zmq.PUSH, zmq.PULL)`."""

    def connect(here: int, there: int) -> tuple[zmq.Socket[Any], zmq.Socket[Any]]:
        address = f"inproc://pair-{next(names)}"
        one, other = context.socket(here), context.socket(there)
        for socket in (one, other):
            socket.set_hwm(0)
        other.bind(address)
        one.connect(address)
        return one, other

    return connect
