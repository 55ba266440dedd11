"""Stubs of a connection's socket, poller and server."""

from typing import Any, cast

from headgate.proxy.connect import Decide, RefusedConnect, TunnelTimeouts
from headgate.proxy.poller import LoopState, Poller


class StubSocket:
    """A socket that reads `received`, sends at most `capacity` bytes, and raises `error`."""

    def __init__(self) -> None:
        self.received = b""
        self.sent = b""
        self.capacity = 1 << 20
        self.ended = False
        self.closed = False
        self.error: OSError | None = None

    def fileno(self) -> int:
        return 99

    def recv_into(self, buffer: memoryview, size: int = 0) -> int:
        self._fail()
        size = min(size or len(buffer), len(self.received))
        if not size and not self.ended:
            raise BlockingIOError
        buffer[:size] = self.received[:size]
        self.received = self.received[size:]
        return size

    def send(self, data: bytes | memoryview) -> int:
        self._fail()
        size = min(len(data), self.capacity)
        if not size:
            raise BlockingIOError
        self.capacity -= size
        self.sent += bytes(data[:size])
        return size

    def setsockopt(self, *_: object) -> None:
        pass

    def shutdown(self, _how: int) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


class StubPoller:
    """Remembers nothing."""

    def register(self, *_: object) -> None:
        pass

    modify = hand_over = unregister = drop = register

    def close(self) -> None:
        pass


class StubServices:
    """A server without listeners."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.loop_state = LoopState(cast("Poller", StubPoller()), now=1000.0)
        self.timeouts = TunnelTimeouts()
        self.draining = False
        self.closed: list[object] = []
        self.tunnels: list[object] = []

    def refuse_early(self, reason: str, _peer: object) -> RefusedConnect:
        return RefusedConnect(status=405, reason=reason)

    def start_tunnel(self, *tunnel: Any) -> None:
        self.tunnels.append(tunnel)

    def connection_closed(self, connection: object) -> None:
        self.closed.append(connection)

    def tunnel_closed(self) -> None:
        pass
