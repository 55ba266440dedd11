"""A tunnel with a stub poller: a test calls `ready` itself, and sees which events are requested."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headgate.proxy.connect import DEFAULT_IDLE, AcceptedConnect
from headgate.proxy.poller import READ, LoopState, Pollable, Poller
from headgate.proxy.tunnel import Tunnel, Tunnels


class StubPoller(Poller):
    """Records the requested events of each descriptor."""

    def __init__(self) -> None:
        self.wanted: dict[int, int] = {}

    def register(self, descriptor: int, wanted: int, _ready: Pollable) -> None:
        assert descriptor not in self.wanted
        self.wanted[descriptor] = wanted

    def modify(self, descriptor: int, wanted: int) -> None:
        assert self.wanted[descriptor] != wanted, "a system call for nothing"
        self.wanted[descriptor] = wanted

    def hand_over(self, descriptor: int, _ready: Pollable) -> None:
        assert descriptor in self.wanted

    def unregister(self, descriptor: int) -> None:
        self.wanted.pop(descriptor, None)

    drop = unregister

    def close(self) -> None:
        self.wanted.clear()


def descriptors() -> int:
    """Return the number of open descriptors; 0 if the system does not report it."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


class Tunnelled:
    """The tunnel, and the two programs at its ends."""

    def __init__(self, idle: float, early: bytes) -> None:
        self.client, near = socket.socketpair()
        far, self.target = socket.socketpair()
        for sock in (self.client, near, far, self.target):
            sock.settimeout(0)
        self.poll = StubPoller()
        self.poll.register(near.fileno(), READ, self)
        self.told: list[tuple[Any, ...]] = []
        self.left = 0
        self.state = LoopState(self.poll, now=1000.0)
        self.tunnels = Tunnels(self.state, on_closed=self.leave)
        self.near, self.far = near, far
        self.descriptors = near.fileno(), far.fileno()
        self.tunnels.start(
            near, AcceptedConnect(socket=far, on_closed=lambda *told: self.told.append(told), idle=idle), early
        )
        self.tunnel: Tunnel | None = next(iter(self.tunnels.open), None)

    def leave(self) -> None:
        self.left += 1

    def ready(self, _events: int) -> None:
        """Stand in for the connection before the tunnel."""

    @property
    def wanted(self) -> list[int | None]:
        """What is wanted of the client's side, and of the target's; None where it is not even watched."""
        return [self.poll.wanted.get(descriptor) for descriptor in self.descriptors]

    def fill(self, sock: socket.socket) -> int:
        """Send until no more is taken."""
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                count += sock.send(b"x" * 65536)
        return count

    def drain(self, sock: socket.socket) -> bytes:
        """Receive what is there."""
        whole = b""
        with contextlib.suppress(BlockingIOError):
            while piece := sock.recv(1 << 20):
                whole += piece
        return whole


@contextlib.contextmanager
def tunnelled(*, idle: float = DEFAULT_IDLE, early: bytes = b"") -> Iterator[Tunnelled]:
    """Make one, and see that nothing of it is left."""
    before = descriptors()
    one = Tunnelled(idle, early)
    try:
        yield one
    finally:
        one.tunnels.close("drained")
        one.client.close()
        one.target.close()
    assert len(one.told) == 1
    assert one.left == 1
    assert one.state.buffered == 0
    assert descriptors() == before
