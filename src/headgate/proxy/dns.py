"""Name lookups with the system's resolver, in threads: it blocks, cannot be cancelled, and may take half a minute.

Each lookup has a daemon thread of its own, which does not delay the exit. Threads are limited in all and for each
client, so that a client that requests hosts of a dead name server delays only its own lookups. Half of the threads are
for networks that use none, one for each: clients of a few networks cannot use up all threads. Concurrent requests for
one name share a lookup. No caller waits longer than the timeout; a thread that still runs then is left alone. Nothing
is cached.

All bookkeeping is on the event loop; a thread only looks up and reports.
"""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from headgate.fetch.destinations import Address
from headgate.proxy.refusal import EXHAUSTED, Refusal

LOOKUP_TIMEOUT: Final = 6.0
"""Seconds. The system asks a name server again after five (resolv.conf(5)), so that one lost packet is survived."""

_NETWORK_SIZE: Final = 6
"""Bytes of a client's identifier that its network has: /48, which one site has (RFC 6177). An IPv4 address is alone."""

_Found: TypeAlias = tuple[Address, ...]


class SystemLookup:
    """Looks names up: `await lookup("www.example.org", client)` returns the addresses, in the system's order.

    At most `threads` run at once, `client_threads` for one client, and half of all for networks that use more than one;
    further callers wait, and every caller has its result within `timeout` seconds. Raises `Refusal` "name", and
    "connections" if the system has no more threads or descriptors. For one event loop.
    """

    def __init__(
        self,
        *,
        threads: int = 512,
        client_threads: int = 32,
        timeout: float = LOOKUP_TIMEOUT,
        getaddrinfo: Callable[..., Any] = socket.getaddrinfo,
    ) -> None:
        self._timeout = timeout
        self._getaddrinfo = getaddrinfo
        self._client_threads = client_threads
        self._clients: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()
        self._free = threads
        self._reserved = threads // 2
        self._running: Counter[bytes] = Counter()
        """Threads by network."""
        self._turns: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        """By network, so that a thread that ends wakes one caller of each."""
        self._ended = asyncio.Event()
        """Set and replaced when a thread ends."""
        self._pending: dict[str, asyncio.Future[_Found | Refusal]] = {}

    async def __call__(self, host: str, client: bytes) -> _Found:
        """Look a name up, as the URL parser serialises it; returns at least one address, each once."""
        try:
            async with asyncio.timeout(self._timeout):
                if host not in self._pending:
                    await self._acquire_and_start(host, client)
                outcome = await asyncio.shield(self._pending[host])
        except TimeoutError:
            detail = f"{host} was not resolved within {self._timeout:g} s"
            raise Refusal("name", detail, error_type="dns_timeout") from None
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome

    async def _acquire_and_start(self, host: str, client: bytes) -> None:
        """Wait for a thread and start it, unless another caller has started one for this name meanwhile."""
        slots = self._clients.setdefault(client, asyncio.Semaphore(self._client_threads))
        network = client[:_NETWORK_SIZE]
        turn = self._turns.setdefault(network, asyncio.Lock())
        with ExitStack() as acquired:
            await slots.acquire()
            acquired.callback(slots.release)
            async with turn:
                while self._free <= (self._reserved if network in self._running else 0):
                    await self._ended.wait()
                if host not in self._pending:
                    self._free -= 1
                    self._running[network] += 1
                    acquired.callback(self._give_back, network)
                    self._pending[host] = self._start(host, acquired)

    def _give_back(self, network: bytes) -> None:
        """Count a thread that has ended, and wake callers that wait for one."""
        self._free += 1
        self._running[network] -= 1
        if not self._running[network]:
            del self._running[network]
        self._ended.set()
        self._ended = asyncio.Event()

    def _start(self, host: str, acquired: ExitStack) -> "asyncio.Future[_Found | Refusal]":
        """Start a thread, which keeps the acquired slots until it ends. Raises `Refusal` if the system has too many."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[_Found | Refusal] = loop.create_future()

        def end(outcome: _Found | Refusal) -> None:
            kept.close()
            del self._pending[host]
            result.set_result(outcome)

        def run() -> None:
            outcome = self._look_up(host)
            with suppress(RuntimeError):  # the event loop is closed, and no caller waits
                loop.call_soon_threadsafe(end, outcome)

        try:
            threading.Thread(target=run, name="headgate-lookup", daemon=True).start()
        except RuntimeError as error:
            raise Refusal("connections", f"the system has no more threads: {error}") from None
        kept = acquired.pop_all()
        return result

    def _look_up(self, host: str) -> _Found | Refusal:
        try:
            # As bytes, so that Python does not apply its IDNA codec.
            found = self._getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
            addresses: dict[Address, None] = {}
            for *_, sockaddr in found:
                with suppress(ValueError):  # not an address
                    addresses[ip_address(str(sockaddr[0]).partition("%")[0])] = None
        except Exception as error:  # whatever it is: the callers need a result
            detail = f"{host} does not resolve: {getattr(error, 'strerror', None) or error}"
            return Refusal("connections" if _is_local_failure(error) else "name", detail)
        return tuple(addresses) if addresses else Refusal("name", f"{host} does not have an address")


def _is_local_failure(error: Exception) -> bool:
    """Return whether a lookup failed for want of resources of this process, not because of the name."""
    # The resolver's own error numbers overlap with the system's.
    return isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno in EXHAUSTED
