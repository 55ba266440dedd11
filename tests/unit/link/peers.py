"""Masters and gatekeepers as two sockets without logic, in the process of the test."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import zmq

PATIENCE = 30.0
CONTROL = [b"api\0", b"DELAY_UNTIL", b"id", b"1700000060000"]
MALFORMED_CONTROLS = [
    CONTROL[:1],
    CONTROL[:3],
    [CONTROL[0], b"DELAY", *CONTROL[2:]],
    [*CONTROL[:3], b"soon"],
    [CONTROL[0], *[b"x"] * 5_000],
]

Found = TypeVar("Found")


class Peer:
    """The socket for accounting and the one for controls."""

    def __init__(self, accounting: "zmq.Socket[Any]", control: "zmq.Socket[Any]") -> None:
        self.accounting, self.control = accounting, control

    def touch(self) -> None:
        """Notice who connects or subscribes: within one process a socket does when it is used."""
        for socket in (self.accounting, self.control):
            socket.poll(0)

    def subscribe(self, *prefixes: bytes) -> None:
        """Subscribe to accounting."""
        for prefix in prefixes:
            self.accounting.subscribe(prefix)
        self.touch()

    def unsubscribe(self, *prefixes: bytes) -> None:
        """End subscriptions, as a lost connection does."""
        for prefix in prefixes:
            self.accounting.unsubscribe(prefix)
        self.touch()


def new_master(context: "zmq.Context[Any]", address: str, *subscriptions: bytes, hwm: int = 0) -> Peer:
    """Return a master that is bound to an address, and subscribes to accounting."""
    accounting, control = context.socket(zmq.SUB), context.socket(zmq.XPUB)
    control.setsockopt(zmq.XPUB_VERBOSER, 1)
    for socket in (accounting, control):
        socket.set_hwm(hwm)
    accounting.bind(address)
    control.bind(f"{address}.control")
    master = Peer(accounting, control)
    master.subscribe(*subscriptions)
    return master


def received(socket: "zmq.Socket[Any]") -> list[list[bytes]]:
    """Return the messages that have arrived."""
    messages = []
    while socket.poll(0):
        messages.append(socket.recv_multipart())
    return messages


def until(condition: Callable[[], Found], turn: Callable[[], object]) -> Found:
    """Return the first true value of `condition`, called after each turn."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, "condition not reached in time"
        turn()
    return value
