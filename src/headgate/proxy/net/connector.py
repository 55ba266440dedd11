"""Connecting sockets by the poll that tunnels are relayed by: what event loops can do as well, at twice the cost."""

import asyncio
import errno
import os
import socket
from typing import Final

from headgate.proxy.net.poller import WRITE, Poll
from headgate.proxy.net.sockets import receive_buffer

__all__ = ["Connector"]

_CONNECTED: Final = frozenset({0, errno.EISCONN})  # what POSIX allows the second time
_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK})


class Connector:
    """Connects sockets; `look_after` has to be called from time to time, or nothing is ever given up."""

    __slots__ = ("_attempts", "_now", "_poll", "_receives")

    def __init__(self, poll: Poll, *, now: float) -> None:
        self._poll = poll
        self._now = now
        self._attempts: set[_Attempt] = set()
        self._receives = receive_buffer()

    async def connect(self, sock: socket.socket, address: tuple[str, int], seconds: float) -> None:
        """Connect a non-blocking socket to an address in figures.

        Raises `TimeoutError` without a number a little later than `seconds` from now, and `OSError`; cancelled or not,
        it leaves the socket to its owner.
        """
        if self._receives:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receives)
        error = sock.connect_ex(address)
        if error in _UNDER_WAY:
            # A target on this machine has answered by now, and what asks again is told so.
            error = sock.connect_ex(address)
        if error in _UNDER_WAY:
            await self._finish(sock, seconds)
        elif error not in _CONNECTED:
            raise OSError(error, os.strerror(error))

    async def _finish(self, sock: socket.socket, seconds: float) -> None:
        attempt = _Attempt(asyncio.get_running_loop().create_future(), self._now + seconds)
        self._attempts.add(attempt)
        self._poll.watch(sock.fileno(), WRITE, attempt)
        try:
            await attempt.future
        finally:
            self._poll.forget(sock.fileno())
            self._attempts.discard(attempt)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))

    def look_after(self, now: float) -> None:
        """Take note of the time, and give up what has taken too long."""
        self._now = now
        for attempt in self._attempts:
            if attempt.deadline <= now and not attempt.future.done():
                attempt.future.set_exception(TimeoutError())


class _Attempt:
    """A socket that is being connected."""

    __slots__ = ("deadline", "future")

    def __init__(self, future: "asyncio.Future[None]", deadline: float) -> None:
        self.future = future
        self.deadline = deadline

    def ready(self, _events: int) -> None:
        """Hear that it is connected, or cannot be; see `Ready`."""
        if not self.future.done():
            self.future.set_result(None)
