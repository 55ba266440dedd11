"""Connecting to one of several addresses, the first that answers: Happy Eyeballs (RFC 8305, sections 4 and 5).

The caller has checked every address; nothing is looked up here. Sockets that lose the race are closed.
"""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from headgate.proxy.poller import WRITE, Poller
from headgate.proxy.refusal import EXHAUSTED, ProxyErrorType, Refusal
from headgate.proxy.sockets import Endpoint, receive_buffer_size

CONNECT_TIMEOUT: Final = 10.0
"""Seconds for all attempts together."""

ATTEMPT_DELAY: Final = 0.25
"""Seconds until the next address is tried as well (8305 8: "Connection Attempt Delay", recommended)."""

MAX_ATTEMPTS: Final = 8
"""Addresses tried of a name that may have thousands: one CONNECT must not send packets to all of them."""

Connect = Callable[[socket.socket, tuple[str, int], float], Awaitable[None]]
"""Connects a non-blocking socket to a numeric address within so many seconds; raises `OSError`, and `TimeoutError`
without a number when they are over."""

_StartAttempt = Callable[[Endpoint], Coroutine[Any, Any, socket.socket]]

_NON_BLOCKING: Final = socket.SOCK_STREAM | getattr(socket, "SOCK_NONBLOCK", 0)
"""Creates a non-blocking socket in one system call, where that is possible."""
_CONNECTED: Final = frozenset({0, errno.EISCONN})  # what POSIX allows the second time
_IN_PROGRESS: Final = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK})
_UNROUTABLE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


async def dial(
    endpoints: Sequence[Endpoint],
    *,
    seconds: float = CONNECT_TIMEOUT,
    delay: float = ATTEMPT_DELAY,
    connect: Connect | None = None,
) -> socket.socket:
    """Connect to one of `endpoints`; returns a non-blocking socket without Nagle's algorithm, which the caller closes.

    `connect` replaces the event loop's own way. Raises `Refusal`: "dial_timeout" if an address has not answered after
    `seconds` or the system's own timeout, "dial_refused" if all have refused, and "connections" if the system has no
    sockets left.
    """
    order = list(islice(interleaved(endpoints), MAX_ATTEMPTS)) if len(endpoints) > 1 else endpoints
    failures: list[OSError] = []
    try:
        if len(order) == 1:
            return await _connect(connect or _connect_by_loop, seconds, order[0])
        async with asyncio.timeout(seconds):
            sock = await _race(order, delay, failures, partial(_connect, connect or _connect_by_loop, seconds))
        if sock is not None:
            return sock
    except OSError as error:
        if _is_late(error):
            raise Refusal("dial_timeout", f"{_listed(order)} did not answer within {seconds:g} s") from None
        failures.append(error)
    raise _refusal(order, failures)


def interleaved(endpoints: Sequence[Endpoint]) -> Iterator[Endpoint]:
    """Yield endpoints in the order given, but alternate between families, starting with the first one's (8305 4)."""
    first = [each for each in endpoints if each.address.version == endpoints[0].address.version]
    second = [each for each in endpoints if each.address.version != endpoints[0].address.version]
    for one, other in zip(first, second, strict=False):
        yield one
        yield other
    yield from first[len(second) :] or second[len(first) :]


class Connector:
    """Connects sockets with a poller, at half the cost of the event loop's own way. Call `expire` now and then."""

    __slots__ = ("_attempts", "_now", "_poller", "_receive_size")

    def __init__(self, poller: Poller, *, now: float) -> None:
        self._poller = poller
        self._now = now
        self._attempts: set[_PendingConnection] = set()
        self._receive_size = receive_buffer_size()

    async def connect(self, sock: socket.socket, address: tuple[str, int], seconds: float) -> None:
        """Connect a non-blocking socket to a numeric address.

        Raises `OSError`, and `TimeoutError` without a number a little later than `seconds` from now. The socket stays
        the caller's to close.
        """
        if self._receive_size:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_size)
        error = sock.connect_ex(address)
        if error in _IN_PROGRESS:
            # A target on this machine has answered by now, which a second call reports.
            error = sock.connect_ex(address)
        if error in _IN_PROGRESS:
            await self._finish(sock, seconds)
        elif error not in _CONNECTED:
            raise OSError(error, os.strerror(error))

    async def _finish(self, sock: socket.socket, seconds: float) -> None:
        attempt = _PendingConnection(asyncio.get_running_loop().create_future(), self._now + seconds)
        self._attempts.add(attempt)
        self._poller.register(sock.fileno(), WRITE, attempt)
        try:
            await attempt.future
        finally:
            self._poller.unregister(sock.fileno())
            self._attempts.discard(attempt)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))

    def expire(self, now: float) -> None:
        """Advance the clock, and fail what has taken too long."""
        self._now = now
        for attempt in self._attempts:
            if attempt.deadline <= now and not attempt.future.done():
                attempt.future.set_exception(TimeoutError())


class _PendingConnection(NamedTuple):
    """A pending connection."""

    future: "asyncio.Future[None]"
    deadline: float

    def ready(self, _events: int) -> None:
        """It is connected, or has failed; see `Pollable`."""
        if not self.future.done():
            self.future.set_result(None)


async def _connected_or_failed(failures: list[OSError], attempt: Awaitable[socket.socket]) -> socket.socket | None:
    try:
        return await attempt
    except OSError as error:
        if _is_late(error):
            raise
        failures.append(error)
        return None


def _is_late(error: OSError) -> bool:
    """Return whether our own timeout was reached, not the system's."""
    return isinstance(error, TimeoutError) and error.errno is None


async def _race(
    order: Sequence[Endpoint], delay: float, failures: list[OSError], attempt: _StartAttempt
) -> socket.socket | None:
    """Start an attempt each time the delay is over or one fails (8305 5); returns None if all fail."""
    loop = asyncio.get_running_loop()
    waiting = deque(order)
    started: list[asyncio.Task[socket.socket]] = []
    pending: set[asyncio.Task[socket.socket]] = set()
    try:
        while waiting or pending:
            if waiting:
                started.append(loop.create_task(attempt(waiting.popleft())))
                pending.add(started[-1])
            timeout = delay if waiting else None
            done, pending = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                sock = await _connected_or_failed(failures, one)
                if sock is not None:
                    started.remove(one)
                    return sock
        return None
    finally:
        for lost in started:
            lost.cancel()
            lost.add_done_callback(_close)  # two may have connected in one moment


def _close(lost: "asyncio.Task[socket.socket]") -> None:
    if not lost.cancelled() and lost.exception() is None:
        lost.result().close()


async def _connect(connect: Connect, seconds: float, endpoint: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    sock = socket.socket(family, _NON_BLOCKING)
    try:
        if sock.gettimeout() != 0:
            sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await connect(sock, (endpoint.host, endpoint.port), seconds)
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect_by_loop(sock: socket.socket, address: tuple[str, int], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await asyncio.get_running_loop().sock_connect(sock, address)


def _refusal(order: Sequence[Endpoint], failures: Sequence[OSError]) -> Refusal:
    """Return the refusal for the failures of all attempts."""
    numbers = {failure.errno for failure in failures}
    # Not the event loop's message, which hides the system's behind the address.
    messages = "; ".join(sorted({os.strerror(number) if number else "no reason given" for number in numbers}))
    if numbers & EXHAUSTED:
        return Refusal("connections", f"{_listed(order)} cannot be connected to: {messages}")
    if errno.ETIMEDOUT in numbers:
        return Refusal("dial_timeout", f"{_listed(order)}: {messages}")
    error_type: ProxyErrorType | None = "destination_ip_unroutable" if numbers <= _UNROUTABLE else None
    return Refusal("dial_refused", f"{_listed(order)}: {messages}", error_type=error_type)


def _listed(order: Sequence[Endpoint]) -> str:
    return ", ".join(map(str, order))
