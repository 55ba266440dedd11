"""Real sockets in one process, over which what is sent is there at once."""

from collections.abc import Iterator
from itertools import count

import pytest
import zmq

names = count()


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    """Return a ZeroMQ context of the test's own, whose sockets live until the end and are closed then."""
    kept = []

    class Context(zmq.Context):
        def socket(self, *arguments):
            kept.append(super().socket(*arguments))
            return kept[-1]

    with Context() as context:
        yield context
        context.destroy(linger=0)


@pytest.fixture
def pair(context):
    """Return a function that gives two connected sockets: `pair(zmq.PUSH, zmq.PULL)`."""

    def connect(here: int, there: int) -> tuple[zmq.Socket, zmq.Socket]:
        address = f"inproc://pair-{next(names)}"
        one, other = context.socket(here), context.socket(there)
        for socket in (one, other):
            socket.set_hwm(0)
        other.bind(address)
        one.connect(address)
        return one, other

    return connect
