"""Connecting to one of several addresses, the first that answers: Happy Eyeballs (RFC 8305, sections 4 and 5).

Whoever calls this has checked every address; nothing is looked up here. Sockets are the loop's to connect, whichever
loop it is; those that lose the race are closed before the winner is given away.
"""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from headgate.proxy.net.endpoint import Endpoint
from headgate.proxy.refusal import EXHAUSTED, Nearer, Refusal

__all__ = ["ATTEMPT_DELAY", "Connect", "CONNECT_TIMEOUT", "MOST_ATTEMPTS", "dial", "interleaved"]

CONNECT_TIMEOUT: Final = 10.0
"""Seconds for all attempts together."""

ATTEMPT_DELAY: Final = 0.25
"""Seconds until the next address is tried as well (8305 8: "Connection Attempt Delay", recommended)."""

MOST_ATTEMPTS: Final = 8
"""Addresses tried of a name that may have thousands: one CONNECT is not to send packets to all of them."""

Connect = Callable[[socket.socket, tuple[str, int], float], Awaitable[None]]
"""Connects a non-blocking socket to an address in figures, within so many seconds; raises `OSError`, and `TimeoutError`
without a number when they are over."""

_Attempt = Callable[[Endpoint], Coroutine[Any, Any, socket.socket]]

_NON_BLOCKING: Final = socket.SOCK_STREAM | getattr(socket, "SOCK_NONBLOCK", 0)
"""Where the system can make a socket so at once, that is one call of it less."""
_UNROUTABLE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


async def dial(
    endpoints: Sequence[Endpoint],
    *,
    seconds: float = CONNECT_TIMEOUT,
    delay: float = ATTEMPT_DELAY,
    connect: Connect | None = None,
) -> socket.socket:
    """Connect to one of `endpoints`: a non-blocking socket without Nagle's delay, which is the caller's to close.

    `connect` is how; the event loop's own way, unless there is a cheaper one.
    Raises `Refusal`: "dial_timeout" where some address has not answered after `seconds` or the system's own patience,
    "dial_refused" where every one said no, and "connections" where the system has no sockets left.
    """
    order = list(islice(interleaved(endpoints), MOST_ATTEMPTS)) if len(endpoints) > 1 else endpoints
    failures: list[OSError] = []
    try:
        if len(order) == 1:
            return await _connect(connect or _by_loop, seconds, order[0])
        async with asyncio.timeout(seconds):
            sock = await _race(order, delay, failures, partial(_connect, connect or _by_loop, seconds))
        if sock is not None:
            return sock
    except OSError as error:
        if _is_late(error):
            raise Refusal("dial_timeout", f"{_listed(order)} did not answer within {seconds:g} s") from None
        failures.append(error)
    raise _refusal(order, failures)


def interleaved(endpoints: Sequence[Endpoint]) -> Iterator[Endpoint]:
    """Yield endpoints in the order given, but the families in turn, beginning with the first one's (8305 4)."""
    first = [each for each in endpoints if each.address.version == endpoints[0].address.version]
    second = [each for each in endpoints if each.address.version != endpoints[0].address.version]
    for one, other in zip(first, second, strict=False):
        yield one
        yield other
    yield from first[len(second) :] or second[len(first) :]


async def _only(failures: list[OSError], attempt: Awaitable[socket.socket]) -> socket.socket | None:
    try:
        return await attempt
    except OSError as error:
        if _is_late(error):
            raise
        failures.append(error)
        return None


def _is_late(error: OSError) -> bool:
    """Say whether the time given was over, and not the system's patience."""
    return isinstance(error, TimeoutError) and error.errno is None


async def _race(
    order: Sequence[Endpoint], delay: float, failures: list[OSError], attempt: _Attempt
) -> socket.socket | None:
    """Begin an attempt each time the delay is over or one failed (8305 5); None once all have."""
    loop = asyncio.get_running_loop()
    coming = deque(order)
    begun: list[asyncio.Task[socket.socket]] = []
    pending: set[asyncio.Task[socket.socket]] = set()
    try:
        while coming or pending:
            if coming:
                begun.append(loop.create_task(attempt(coming.popleft())))
                pending.add(begun[-1])
            patience = delay if coming else None
            done, pending = await asyncio.wait(pending, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                sock = await _only(failures, one)
                if sock is not None:
                    begun.remove(one)
                    return sock
        return None
    finally:
        for lost in begun:
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


async def _by_loop(sock: socket.socket, address: tuple[str, int], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await asyncio.get_running_loop().sock_connect(sock, address)


def _refusal(order: Sequence[Endpoint], failures: Sequence[OSError]) -> Refusal:
    """Say what all attempts' failing comes to."""
    numbers = {failure.errno for failure in failures}
    # Not the loops' own words, which hide what the system said behind the address.
    said = "; ".join(sorted({os.strerror(number) if number else "no reason given" for number in numbers}))
    if numbers & EXHAUSTED:
        return Refusal("connections", f"{_listed(order)} cannot be dialled: {said}")
    if errno.ETIMEDOUT in numbers:
        return Refusal("dial_timeout", f"{_listed(order)}: {said}")
    nearer: Nearer | None = "destination_ip_unroutable" if numbers <= _UNROUTABLE else None
    return Refusal("dial_refused", f"{_listed(order)}: {said}", nearer=nearer)


def _listed(order: Sequence[Endpoint]) -> str:
    return ", ".join(map(str, order))
