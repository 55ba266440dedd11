"""A gate that takes over from another one: it gets the listening sockets, and the other one drains once it is ready.

The sockets stay open all the time, so that no connection in their queues is lost. The gate that is to be replaced
listens at a unix socket that only its user can connect to. It sends the descriptors, and waits for a line.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from headgate.errors import ConfigurationError, reason_of

_READY: Final = b"ready\n"
_TIMEOUT: Final = 10.0
_RETRY_DELAY: Final = 0.1
_MAX_SOCKETS: Final = 250
"""Descriptors that one message can have (SCM_MAX_FD is 253)."""


class Predecessor:
    """The gate that listens at `path`, if there is one. Raises `ConfigurationError` if it does not answer."""

    def __init__(self, path: str) -> None:
        self.sockets: list[socket.socket] = []
        """Its listening sockets."""
        self._peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._peer.settimeout(_TIMEOUT)
        try:
            self._peer.connect(path)
            _, descriptors, _, _ = socket.recv_fds(self._peer, 1, _MAX_SOCKETS)
        except (FileNotFoundError, ConnectionRefusedError):
            descriptors = []
        except OSError as error:
            self._peer.close()
            raise ConfigurationError(
                f"gate.takeover: no answer at {path!r} ({reason_of(error)}); stop that gate, or name another path"
            ) from None
        self.sockets = [socket.socket(fileno=one) for one in descriptors]
        for sock in self.sockets:
            sock.set_inheritable(False)

    async def replace(self) -> None:
        """Have it drain; return when it has removed its socket."""
        with self._peer:
            await asyncio.to_thread(self._say_ready)

    def _say_ready(self) -> None:
        with suppress(OSError):  # there is none, or it has ended by itself
            self._peer.send(_READY)
            self._peer.recv(1)


async def serve_takeover(
    listener: socket.socket, sockets: Callable[[], Awaitable[Sequence[int]]], replaced: Callable[[], None]
) -> None:
    """Give the descriptors of `sockets` to each process that connects, until one is ready; then call `replaced`."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            peer, _ = await loop.sock_accept(listener)
        except OSError:  # no descriptor is left
            await asyncio.sleep(_RETRY_DELAY)
            continue
        with peer:
            try:
                socket.send_fds(peer, [b"."], await sockets())
                is_ready = await loop.sock_recv(peer, len(_READY)) == _READY
            except OSError:
                continue
            if is_ready:
                replaced()
                return
